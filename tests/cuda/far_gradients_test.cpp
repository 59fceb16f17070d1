// SPDX-License-Identifier: Apache-2.0
// Gradients whose tensors lie more than 2^32 elements apart.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "cuda/far.h"

namespace aclgrad::test {
namespace {

// A table row without gradient rows, and rows of one chain, of several, of two segments and of one:
// each kind is summed elsewhere. Seven columns allow no access of several.
TEST_F(Far, EmbeddingDenseBackward) {
  const std::vector<int> counts = {0, 3, 30, 2100, 101};
  std::vector<double> rows;
  for (size_t row = 0; row < counts.size(); ++row) {
    rows.insert(rows.end(), static_cast<size_t>(counts[row]), static_cast<double>(row));
  }
  // Of every run half in either half of dy, which 1117 positions are.
  std::vector<double> values(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) values[i * 1119 % rows.size()] = rows[i];
  const auto half = static_cast<int64_t>(rows.size() / 2);
  const Dims indices = {2, half};
  for (const int64_t cols : {8, 7}) {
    SCOPED_TRACE(std::to_string(cols) + " columns");
    const Dims dy = {2, half, cols}, dw = {5, cols};
    expect_same({far_input("grad", dy, ACL_FLOAT16, far_along(dy, 0), 1),
                 far_input("indices", indices, ACL_INT32, far_along(indices, 0), values),
                 far_output("out", dw, ACL_FLOAT16, far_along(dw, 0))},
                [](const Handles& at) {
                  return run(
                      [&](uint64_t* size, aclOpExecutor** executor) {
                        return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
                            at[0], at[1], 5, 5, false, at[2], size, executor);
                      },
                      aclnnEmbeddingDenseBackward);
                });
  }
}

Outcome run_grouped_bias_add_grad(const aclTensor* dy, const aclTensor* ends, aclTensor* out) {
  return run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnGroupedBiasAddGradGetWorkspaceSize(dy, ends, out, size, executor);
      },
      aclnnGroupedBiasAddGrad);
}
Outcome of_groups_with_ends(const std::vector<aclTensor*>& at) {
  return run_grouped_bias_add_grad(at[0], at[1], at[2]);
}

// Narrow rows, short and long ones, and those between. One row is as far from the next as 32 bits
// cannot count.
TEST_F(Far, GroupedBiasAddGrad) {
  for (const int64_t cols : {8, 40, 100, 2100}) {
    SCOPED_TRACE(std::to_string(cols) + " columns");
    const Dims dy = {40, cols}, ends = {3}, out = {3, cols};
    expect_same({far_input("gradY", dy, ACL_BF16, far_along(dy, 0), 1),
                 far_input("groupIdxOptional", ends, ACL_INT64, far_along(ends, 0),
                           std::vector<double>{33, 36, 40}),
                 far_output("out", out, ACL_BF16, far_along(out, 0))},
                of_groups_with_ends);
  }
}

// Of several blocks, whose totals are joined: no row is far from the next, the last ones are from
// the first.
TEST_F(Far, GroupedBiasAddGradOfLongGroups) {
  for (const int64_t cols : {8, 100, 2100}) {
    SCOPED_TRACE(std::to_string(cols) + " columns");
    const int64_t rows = cols < 1000 ? 6000 : 600;
    const Dims dy = {rows, cols}, ends = {3}, out = {3, cols};
    expect_same({far_input("gradY", dy, ACL_BF16, {int64_t{1} << 21, 1}, 1),
                 far_input("groupIdxOptional", ends, ACL_INT64, {1},
                           std::vector<double>{1, static_cast<double>(rows - 1),
                                               static_cast<double>(rows)}),
                 far_output("out", out, ACL_BF16, far_along(out, 0))},
                of_groups_with_ends);
  }
}

TEST_F(Far, GroupedBiasAddGradOfEqualGroups) {
  for (const int64_t cols : {8, 40, 100}) {
    for (const size_t dim : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(cols) + " columns, dimension " + std::to_string(dim));
      const Dims dy = {3, 4, cols}, out = {3, cols};
      expect_same(
          {far_input("gradY", dy, ACL_BF16, far_along(dy, dim), 1),
           far_output("out", out, ACL_BF16, far_along(out, 0))},
          [](const Handles& at) { return run_grouped_bias_add_grad(at[0], nullptr, at[1]); });
    }
  }
}

// Rows that are staged, more than there is room for at once; and rows that are visited, because
// they are no multiple of sixteen bytes: of one chunk of columns and of several.
TEST_F(Far, LayerNormBackward) {
  for (const int64_t cols : {1024, 15, 601}) {
    for (const size_t dim : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(cols) + " columns, dimension " + std::to_string(dim));
      const Dims dims = {2, 8, 2, cols}, of_rows = {2, 8}, of_cols = {2, cols};
      const IntArray normalized(of_cols);
      const BoolArray wanted({true, true, true});
      const Dims rows = far_along(dims, dim), columns = far_along(of_cols, 0);
      const Dims numbers = far_along(of_rows, dim);
      expect_same({far_input("gradOut", dims, ACL_FLOAT16, rows, 1),
                   far_input("input", dims, ACL_FLOAT16, rows, 2),
                   far_input("mean", of_rows, ACL_FLOAT, numbers, 3),
                   far_input("rstd", of_rows, ACL_FLOAT, numbers, 4),
                   far_input("weightOptional", of_cols, ACL_FLOAT, columns, 5),
                   far_output("gradInputOut", dims, ACL_FLOAT16, rows),
                   far_output("gradWeightOut", of_cols, ACL_FLOAT, columns),
                   far_output("gradBiasOut", of_cols, ACL_FLOAT, columns)},
                  [&](const Handles& at) {
                    return run(
                        [&](uint64_t* size, aclOpExecutor** executor) {
                          return aclnnLayerNormBackwardGetWorkspaceSize(
                              at[0], at[1], normalized.handle(), at[2], at[3], at[4], nullptr,
                              wanted.handle(), at[5], at[6], at[7], size, executor);
                        },
                        aclnnLayerNormBackward);
                  });
    }
  }
}

TEST_F(Far, ScaledMaskedSoftmaxBackward) {
  each_far_attention([this](const Dims& dims, const Dims& strides) {
    expect_same({far_input("gradOutput", dims, ACL_FLOAT16, strides, 1),
                 far_input("y", dims, ACL_FLOAT16, strides, 2),
                 far_input("mask", dims, ACL_BOOL, strides, integer_values(8 * dims[3], 3, 0, 1)),
                 far_output("out", dims, ACL_FLOAT16, strides)},
                [](const Handles& at) {
                  return run(
                      [&](uint64_t* size, aclOpExecutor** executor) {
                        return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
                            at[0], at[1], at[2], 1.0, false, at[3], size, executor);
                      },
                      aclnnScaledMaskedSoftmaxBackward);
                });
  });
}

class FarWindows : public Far {
 protected:
  // `apart`: steps along `dim`, of the heads or of what comes before; an odd one allows no pairs of
  // columns, nor does `pad` between the tokens of a near x.
  void expect_same_gradients(int64_t tokens, int64_t window, int64_t step, size_t dim,
                             int64_t apart, int64_t pad) {
    SCOPED_TRACE("window " + std::to_string(window) + ", dimension " + std::to_string(dim) +
                 ", step " + std::to_string(apart));
    const int64_t windows = (tokens - window) / step + 1;
    const Dims x = {tokens, 2, 32}, w = {window, 2}, dy = {windows, 2, 32};
    const Dims far_w = far_along(w, dim, apart);
    const IntArray ends({tokens});
    char layout[] = "TND";
    FarOperand input = far_input("input", x, ACL_BF16, far_along(x, dim, apart), 2);
    input.near = {64 + pad, 32, 1};
    expect_same({far_input("outputGrad", dy, ACL_BF16, far_along(dy, dim, apart), 1), input,
                 far_input("weight", w, ACL_BF16, far_w, 3),
                 far_output("inputGradOut", x, ACL_BF16, far_along(x, dim, apart)),
                 far_output("weightGradOut", w, ACL_BF16, far_w)},
                [&](const Handles& at) {
                  return run(
                      [&](uint64_t* size, aclOpExecutor** executor) {
                        return aclnnNsaCompressGradGetWorkspaceSize(
                            at[0], at[1], at[2], ends.handle(), window, step, 0, layout, at[3],
                            at[4], size, executor);
                      },
                      aclnnNsaCompressGrad);
                });
  }
};

// Tokens of two windows, of one and (the last four) of none.
TEST_F(FarWindows, NsaCompressGrad) {
  for (const size_t dim : {0u, 1u}) {
    expect_same_gradients(52, 32, 16, dim, kFar, 0);
    expect_same_gradients(52, 32, 16, dim, kFar + 1, 1);
  }
}

// FP32 weights of long windows are made beforehand.
TEST_F(FarWindows, NsaCompressGradOfLongWindows) {
  expect_same_gradients(1056, 1040, 16, 1, kFar, 0);
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// Forward operators whose tensors lie more than 2^32 elements apart.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "cuda/far.h"

namespace aclgrad::test {
namespace {

TEST_F(Far, Embedding) {
  const Dims table = {3, 40}, indices = {2, 3}, out = {2, 3, 40};
  for (const aclDataType dtype : {ACL_INT8, ACL_FLOAT16}) {
    for (const size_t dim : {0u, 1u}) {
      expect_same({far_input("weight", table, dtype, far_along(table, 0),
                             integer_values(120, 1, -100, 100)),
                   far_input("indices", indices, ACL_INT64, far_along(indices, dim),
                             std::vector<double>{1, 0, 2, 2, 1, 0}),
                   far_output("out", out, dtype, far_along(out, dim))},
                  [](const Handles& at) {
                    return run(
                        [&](uint64_t* size, aclOpExecutor** executor) {
                          return aclnnEmbeddingGetWorkspaceSize(at[0], at[1], at[2], size,
                                                                executor);
                        },
                        aclnnEmbedding);
                  });
    }
  }
}

// Rows that are no runs are packed and unpacked by the same copy for all operators; its kernels
// have a test of their own.
TEST_F(Far, EmbeddingOfColumns) {
  const Dims table = {3, 5}, indices = {4}, out = {4, 5};
  expect_same({far_input("weight", table, ACL_FLOAT16, far_along(table, 1), 1),
               far_input("indices", indices, ACL_INT64, {1}, std::vector<double>{1, 0, 2, 2}),
               far_output("out", out, ACL_FLOAT16, far_along(out, 1))},
              [](const Handles& at) {
                return run(
                    [&](uint64_t* size, aclOpExecutor** executor) {
                      return aclnnEmbeddingGetWorkspaceSize(at[0], at[1], at[2], size, executor);
                    },
                    aclnnEmbedding);
              });
}

// What is common to all operators finds where a view begins.
TEST_F(Far, EmbeddingOfLateViews) {
  const Dims table = {3, 40}, indices = {4}, out = {4, 40};
  std::vector<FarOperand> operands = {
      far_input("weight", table, ACL_FLOAT16, {40, 1}, 1),
      far_input("indices", indices, ACL_INT64, {1}, std::vector<double>{1, 0, 2, 2}),
      far_output("out", out, ACL_FLOAT16, {40, 1})};
  for (FarOperand& operand : operands) operand.begin = kFar;
  expect_same(operands, [](const Handles& at) {
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingGetWorkspaceSize(at[0], at[1], at[2], size, executor);
        },
        aclnnEmbedding);
  });
}

TEST_F(Far, ScaledMaskedSoftmax) {
  each_far_attention([this](const Dims& dims, const Dims& strides) {
    expect_same({far_input("x", dims, ACL_FLOAT16, strides, 1),
                 far_input("mask", dims, ACL_BOOL, strides, integer_values(8 * dims[3], 2, 0, 1)),
                 far_output("y", dims, ACL_FLOAT16, strides)},
                [](const Handles& at) {
                  return run(
                      [&](uint64_t* size, aclOpExecutor** executor) {
                        return aclnnScaledMaskedSoftmaxGetWorkspaceSize(at[0], at[1], 1.0, false,
                                                                        at[2], size, executor);
                      },
                      aclnnScaledMaskedSoftmax);
                });
  });
}

// Rows that are held in registers; longer ones in accesses of several columns, and of one; rows of
// several panels, of a block and of all blocks.
TEST_F(Far, LayerNorm) {
  for (const int64_t cols : {20, 1028, 1027, 2100, 4200}) {
    for (const size_t dim : {0u, 1u}) {
      SCOPED_TRACE(std::to_string(cols) + " columns, dimension " + std::to_string(dim));
      const Dims dims = {2, 3, 2, cols}, of_rows = {2, 3, 1, 1}, of_cols = {2, cols};
      const IntArray normalized(of_cols);
      const Dims rows = far_along(dims, dim), columns = far_along(of_cols, 0);
      const Dims numbers = far_along(of_rows, dim);
      expect_same({far_input("input", dims, ACL_FLOAT16, rows, 1),
                   far_input("weight", of_cols, ACL_FLOAT, columns, 2),
                   far_input("bias", of_cols, ACL_FLOAT, columns, 3),
                   far_output("out", dims, ACL_FLOAT16, rows),
                   far_output("meanOut", of_rows, ACL_FLOAT, numbers),
                   far_output("rstdOut", of_rows, ACL_FLOAT, numbers)},
                  [&](const Handles& at) {
                    return run(
                        [&](uint64_t* size, aclOpExecutor** executor) {
                          return aclnnLayerNormGetWorkspaceSize(at[0], normalized.handle(), at[1],
                                                                at[2], 1e-5, at[3], at[4], at[5],
                                                                size, executor);
                        },
                        aclnnLayerNorm);
                  });
    }
  }
}

// Every token of two windows, so that all of a window's and both of its groups are far apart; an
// odd distance allows no access of several columns.
TEST_F(Far, NsaCompress) {
  constexpr int64_t kTokens = 52, kHeads = 2, kWidth = 16, kWindow = 32, kStep = 16, kWindows = 2;
  const Dims x = {kTokens, kHeads, kWidth}, w = {kWindow, kHeads}, y = {kWindows, kHeads, kWidth};
  const IntArray ends({kTokens});
  char layout[] = "TND";
  for (const size_t dim : {0u, 1u}) {
    for (const int64_t step : {kFar, kFar + 1}) {
      SCOPED_TRACE("dimension " + std::to_string(dim) + ", step " + std::to_string(step));
      expect_same({far_input("input", x, ACL_FLOAT16, far_along(x, dim, step), 1),
                   far_input("weight", w, ACL_FLOAT16, far_along(w, dim, step), 2),
                   far_output("output", y, ACL_FLOAT16, far_along(y, dim, step))},
                  [&](const Handles& at) {
                    return run(
                        [&](uint64_t* size, aclOpExecutor** executor) {
                          return aclnnNsaCompressGetWorkspaceSize(at[0], at[1], ends.handle(),
                                                                  layout, kWindow, kStep, 0, at[2],
                                                                  size, executor);
                        },
                        aclnnNsaCompress);
                  });
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

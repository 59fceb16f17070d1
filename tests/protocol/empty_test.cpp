// SPDX-License-Identifier: Apache-2.0
// Tensors without elements whose other dims multiply beyond 2^63: every operator takes them, and
// outputs that have elements get their empty sums.
#include <algorithm>

#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "base/status.h"
#include "support/run.h"

namespace aclgrad::test {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;  // its square is no count

// A tensor of any shape that has no memory.
class Shape {
 public:
  Shape(const Dims& dims, aclDataType dtype)
      : handle_(aclCreateTensor(dims.data(), dims.size(), dtype, nullptr, 0, ACL_FORMAT_ND, nullptr,
                                0, nullptr)) {}
  Shape(const Shape&) = delete;
  Shape& operator=(const Shape&) = delete;
  ~Shape() { static_cast<void>(aclDestroyTensor(handle_)); }
  aclTensor* handle() const { return handle_; }

 private:
  aclTensor* handle_;
};

void expect_zeros(const Tensor& tensor) {
  const std::vector<double> values = tensor.values();
  EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](double each) { return each == 0.0; }));
  EXPECT_TRUE(tensor.untouched_outside());
}

template <class Plan>
void expect_success(Plan&& plan, Execute execute) {
  const Outcome outcome = run(plan, execute);
  EXPECT_TRUE(outcome.ok()) << outcome;
}

struct LayerNormShapes {
  Dims input, normalized, mean;
};

TEST(Empty, LayerNorm) {
  for (const LayerNormShapes& each :
       {LayerNormShapes{{kMany, kMany, 0}, {0}, {}},
        LayerNormShapes{{0, kMany, kMany}, {kMany, kMany}, {0}},
        LayerNormShapes{{kMany, 0, kMany, 5}, {5}, {kMany, 0, kMany}},
        LayerNormShapes{{3, kMany, 0, kMany}, {kMany, 0, kMany}, {3, 1}}}) {
    const Shape x(each.input, ACL_FLOAT), y(each.input, ACL_FLOAT16);
    const IntArray normalized(each.normalized);
    const bool has_rows = each.mean == Dims{3, 1};
    const Shape no_mean(each.mean, ACL_FLOAT);
    const Tensor mean({3, 1}, ACL_FLOAT), rstd({3, 1}, ACL_FLOAT);
    aclTensor* const statistics = each.mean.empty() ? nullptr : no_mean.handle();
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnLayerNormGetWorkspaceSize(
              x.handle(), normalized.handle(), nullptr, nullptr, 1e-5, y.handle(),
              has_rows ? mean.handle() : statistics, has_rows ? rstd.handle() : statistics, size,
              executor);
        },
        aclnnLayerNorm);
    if (has_rows) expect_zeros(mean);
  }
}

TEST(Empty, LayerNormBackward) {
  for (const LayerNormShapes& each :
       {LayerNormShapes{{kMany, 0, kMany, 5}, {5}, {kMany, 0, kMany}},
        LayerNormShapes{{0, kMany, kMany}, {kMany, kMany}, {0}},
        LayerNormShapes{{3, kMany, 0, kMany}, {kMany, 0, kMany}, {3, 1}},
        LayerNormShapes{{kMany, 0, kMany, 20000}, {20000}, {0}}}) {
    const Shape dy(each.input, ACL_FLOAT), x(each.input, ACL_FLOAT), dx(each.input, ACL_FLOAT);
    const bool has_rows = each.mean == Dims{3, 1};
    const Tensor rows({3, 1}, ACL_FLOAT);
    const Shape no_rows(each.mean, ACL_FLOAT);
    const bool columns = each.normalized.size() == 1;
    const Tensor dgamma({columns ? each.normalized[0] : 0}, ACL_FLOAT);
    const Tensor dbeta({columns ? each.normalized[0] : 0}, ACL_BF16);
    const bool has_columns = columns || each.normalized[1] == 0;
    const IntArray normalized(each.normalized);
    const BoolArray mask({true, has_columns, has_columns});
    const aclTensor* const statistics = has_rows ? rows.handle() : no_rows.handle();
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnLayerNormBackwardGetWorkspaceSize(
              dy.handle(), x.handle(), normalized.handle(), statistics, statistics, nullptr,
              nullptr, mask.handle(), dx.handle(), dgamma.handle(), dbeta.handle(), size, executor);
        },
        aclnnLayerNormBackward);
    expect_zeros(dgamma);
    expect_zeros(dbeta);
  }
}

// The rows of [2^40, 2^40, 0] cannot be counted, so no mean has one element for each.
TEST(Empty, LayerNormBackwardOfUncountableRows) {
  const Shape x({kMany, kMany, 0}, ACL_FLOAT), mean({kMany, kMany}, ACL_FLOAT);
  const IntArray normalized({0});
  const BoolArray mask({false, false, false});
  expect_refused(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnLayerNormBackwardGetWorkspaceSize(
            x.handle(), x.handle(), normalized.handle(), mean.handle(), mean.handle(), nullptr,
            nullptr, mask.handle(), nullptr, nullptr, nullptr, size, executor);
      },
      kParamInvalid,
      {"mean has shape [1099511627776,1099511627776] (more than 2^63 elements); expected more than "
       "2^63-1 elements"});
}

TEST(Empty, Embedding) {
  const auto expect = [](const Shape& table, const Shape& indices, const Shape& y) {
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingGetWorkspaceSize(table.handle(), indices.handle(), y.handle(), size,
                                                executor);
        },
        aclnnEmbedding);
  };
  expect({{0, int64_t{1} << 62}, ACL_DOUBLE}, {{kMany, kMany, 0}, ACL_INT64},
         {{kMany, kMany, 0, int64_t{1} << 62}, ACL_DOUBLE});
  expect({{int64_t{1} << 62, 0}, ACL_FLOAT}, {{0, kMany, kMany}, ACL_INT32},
         {{0, kMany, kMany, 0}, ACL_FLOAT});
}

TEST(Empty, EmbeddingDenseBackward) {
  const auto expect = [](const Shape& dy, const Shape& indices, uint64_t rows,
                         const aclTensor* out) {
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingDenseBackwardGetWorkspaceSize(dy.handle(), indices.handle(), rows,
                                                             rows, true, out, size, executor);
        },
        aclnnEmbeddingDenseBackward);
  };
  const Tensor out({7, 4}, ACL_FLOAT);
  const Shape indices({kMany, 0, kMany}, ACL_INT64);
  expect({{kMany, kMany, 0, 4}, ACL_FLOAT16}, indices, 7, out.handle());
  expect_zeros(out);
  const Shape no_columns({5, 0}, ACL_FLOAT), no_rows({0, int64_t{1} << 62}, ACL_FLOAT);
  expect({{kMany, kMany, 0}, ACL_BF16}, indices, 5, no_columns.handle());
  expect({{kMany, 0, kMany, int64_t{1} << 62}, ACL_FLOAT}, indices, 0, no_rows.handle());
}

TEST(Empty, GroupedBiasAddGrad) {
  const auto expect = [](const Shape& dy, const aclTensor* ends, aclTensor* out) {
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnGroupedBiasAddGradGetWorkspaceSize(dy.handle(), ends, out, size, executor);
        },
        aclnnGroupedBiasAddGrad);
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnGroupedBiasAddGradV2GetWorkspaceSize(dy.handle(), ends, 1, out, size,
                                                           executor);
        },
        aclnnGroupedBiasAddGradV2);
  };
  Tensor ends({2}, ACL_INT32);
  ends.fill_constant(0.0);
  const Shape no_ends({0}, ACL_INT32), no_groups({0, int64_t{1} << 62}, ACL_FLOAT);
  const Shape no_columns({int64_t{1} << 62, 0}, ACL_BF16), two_of_none({2, 0}, ACL_BF16);
  expect({{int64_t{1} << 62, kMany, 0}, ACL_BF16}, nullptr, no_columns.handle());
  expect({{0, kMany, int64_t{1} << 62}, ACL_FLOAT}, nullptr, no_groups.handle());
  expect({{0, int64_t{1} << 62}, ACL_FLOAT}, no_ends.handle(), no_groups.handle());
  expect({{int64_t{1} << 62, 0}, ACL_BF16}, ends.handle(), two_of_none.handle());
  const Tensor out({3, 5}, ACL_FLOAT);
  expect({{3, 0, 5}, ACL_FLOAT}, nullptr, out.handle());
  expect_zeros(out);
}

TEST(Empty, ScaledMaskedSoftmax) {
  for (const Dims& dims : {Dims{kMany, kMany, 0, 5}, Dims{0, int64_t{1} << 62, 5, 4096}}) {
    const Shape x(dims, ACL_FLOAT), y(dims, ACL_FLOAT), out(dims, ACL_FLOAT);
    const Shape whole(dims, ACL_BOOL);
    const Tensor one({1, 1, dims[2], dims[3]}, ACL_BOOL);
    for (const aclTensor* mask : {whole.handle(), one.handle()}) {
      expect_success(
          [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask, 0.5, false,
                                                            y.handle(), size, executor);
          },
          aclnnScaledMaskedSoftmax);
      expect_success(
          [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
                x.handle(), y.handle(), mask, 0.5, false, out.handle(), size, executor);
          },
          aclnnScaledMaskedSoftmaxBackward);
    }
  }
}

// What would be packed for a kernel is not where none runs.
TEST(Empty, StridedInputsOfCallsThatDoNothingNeedNoWorkspace) {
  const Shape x({0, 2, 100, 100}, ACL_FLOAT), y({0, 2, 100, 100}, ACL_FLOAT);
  const Tensor mask({1, 2, 100, 100}, ACL_BOOL, Dims{20000, 10000, 1, 100});
  uint64_t size = 1;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask.handle(), 1.0, false,
                                                     y.handle(), &size, &executor),
            0)
      << take_message();
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(aclnnScaledMaskedSoftmax(nullptr, 0, executor, stream()), 0) << take_message();
  EXPECT_EQ(aclrtSynchronizeStream(stream()), 0);
}

TEST(Empty, NsaCompress) {
  // All tokens, in windows of 16: as many as there are.
  const int64_t tokens = int64_t{1} << 62;
  const IntArray ends({tokens});
  for (const auto& [heads, width] : {std::pair<int64_t, int64_t>{0, 16}, {3, 0}, {128, 0}}) {
    const Shape x({tokens, heads, width}, ACL_BF16), y({tokens / 16, heads, width}, ACL_BF16);
    Tensor w({16, heads}, ACL_BF16);
    w.fill_constant(1.0);
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnNsaCompressGetWorkspaceSize(x.handle(), w.handle(), ends.handle(), nullptr,
                                                  16, 16, 0, y.handle(), size, executor);
        },
        aclnnNsaCompress);
  }
}

TEST(Empty, NsaCompressGrad) {
  struct Case {
    int64_t tokens, heads, width;
  };
  const int64_t most = int64_t{1} << 62;
  for (const Case& each : {Case{0, 16, most}, Case{most, 3, 0}, Case{most, 0, most}}) {
    const int64_t windows = each.tokens == 0 ? 0 : (each.tokens - 32) / 16 + 1;
    const Shape dy({windows, each.heads, each.width}, ACL_BF16);
    const Shape x({each.tokens, each.heads, each.width}, ACL_BF16);
    const Shape dx({each.tokens, each.heads, each.width}, ACL_BF16);
    Tensor w({32, each.heads}, ACL_BF16);
    w.fill_constant(1.0);
    const Tensor dw({32, each.heads}, ACL_BF16);
    expect_success(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), x.handle(), w.handle(), nullptr,
                                                      32, 16, 0, nullptr, dx.handle(), dw.handle(),
                                                      size, executor);
        },
        aclnnNsaCompressGrad);
    expect_zeros(dw);
  }
}

}  // namespace
}  // namespace aclgrad::test

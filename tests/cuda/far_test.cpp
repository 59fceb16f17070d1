// SPDX-License-Identifier: Apache-2.0
// Rows that lie more than 2^31 elements apart, on an emulated GPU of so many addresses that only
// the pages of the rows exist: the numbers are those of neighbouring rows.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "base/dtype.h"
#include "runtime/services.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

constexpr int64_t kFar = (int64_t{1} << 31) + 16;
constexpr int64_t kRows = 2;
constexpr int64_t kCols = 40;

// Two rows, `apart` elements from one to the next.
class Rows {
 public:
  Rows(aclDataType dtype, int64_t apart, const Dims& outer = {})
      : row_bytes_(static_cast<size_t>(kCols) * dtype_size(dtype)),
        step_(static_cast<size_t>(apart) * dtype_size(dtype)) {
    const size_t bytes = step_ + row_bytes_;
    require(aclrtMalloc(&memory_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    Dims dims = outer, strides(outer.size(), 2 * apart);
    dims.insert(dims.end(), {kRows, kCols});
    strides.insert(strides.end(), {apart, 1});
    handle_ = aclCreateTensor(dims.data(), dims.size(), dtype, strides.data(), 0, ACL_FORMAT_ND,
                              nullptr, 0, memory_);
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() {
    EXPECT_EQ(aclDestroyTensor(handle_), 0);
    EXPECT_EQ(aclrtFree(memory_), 0);
  }
  const Rows& fill(const Tensor& from) const {
    const std::vector<uint8_t> bytes = from.bits();
    for (size_t i = 0; i < kRows; ++i) {
      require(aclrtMemcpy(row(i), row_bytes_, bytes.data() + i * row_bytes_, row_bytes_,
                          ACL_MEMCPY_HOST_TO_DEVICE),
              "aclrtMemcpy");
    }
    return *this;
  }
  std::vector<uint8_t> bits() const {
    std::vector<uint8_t> bytes(kRows * row_bytes_);
    for (size_t i = 0; i < kRows; ++i) {
      require(aclrtMemcpy(bytes.data() + i * row_bytes_, row_bytes_, row(i), row_bytes_,
                          ACL_MEMCPY_DEVICE_TO_HOST),
              "aclrtMemcpy");
    }
    return bytes;
  }
  aclTensor* handle() const { return handle_; }

 private:
  void* row(size_t i) const { return static_cast<uint8_t*>(memory_) + i * step_; }
  size_t row_bytes_, step_;
  void* memory_ = nullptr;
  aclTensor* handle_ = nullptr;
};

class FarRows : public testing::Test {
 protected:
  void SetUp() override {
    use_device();
    if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
  }
  // compute(apart) gives the bits of a result whose rows, and whose inputs', are so far apart.
  template <class Compute>
  void expect_same(Compute&& compute) {
    EXPECT_EQ(compute(kFar), compute(kCols));
  }
};

Tensor numbers(aclDataType dtype, uint64_t seed) {
  Tensor out({kRows, kCols}, dtype);
  if (dtype == ACL_BOOL) {
    out.fill_integers(seed, 0, 2);
  } else if (dtype == ACL_INT8) {
    out.fill_integers(seed, -100, 100);
  } else {
    out.fill_normal(seed);
  }
  return out;
}

TEST_F(FarRows, Embedding) {
  Tensor indices({kRows}, ACL_INT64);
  indices.fill({1, 0});
  for (const aclDataType dtype : {ACL_INT8, ACL_FLOAT16}) {
    expect_same([&](int64_t apart) {
      const Rows table(dtype, apart), out(dtype, apart);
      table.fill(numbers(dtype, 1));
      const Outcome outcome = run(
          [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnEmbeddingGetWorkspaceSize(table.handle(), indices.handle(), out.handle(),
                                                  size, executor);
          },
          aclnnEmbedding);
      EXPECT_TRUE(outcome.ok()) << outcome;
      return out.bits();
    });
  }
}

TEST_F(FarRows, ScaledMaskedSoftmax) {
  expect_same([&](int64_t apart) {
    const Dims outer = {1, 1};
    const Rows x(ACL_FLOAT16, apart, outer), mask(ACL_BOOL, apart, outer);
    const Rows y(ACL_FLOAT16, apart, outer);
    x.fill(numbers(ACL_FLOAT16, 1));
    mask.fill(numbers(ACL_BOOL, 2));
    const Outcome outcome = run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask.handle(), 1.0, false,
                                                          y.handle(), size, executor);
        },
        aclnnScaledMaskedSoftmax);
    EXPECT_TRUE(outcome.ok()) << outcome;
    return y.bits();
  });
}

TEST_F(FarRows, LayerNorm) {
  const IntArray normalized({kCols});
  expect_same([&](int64_t apart) {
    const Rows x(ACL_FLOAT, apart), y(ACL_FLOAT, apart);
    x.fill(numbers(ACL_FLOAT, 1));
    const Outcome outcome = run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnLayerNormGetWorkspaceSize(x.handle(), normalized.handle(), nullptr, nullptr,
                                                1e-5, y.handle(), nullptr, nullptr, size, executor);
        },
        aclnnLayerNorm);
    EXPECT_TRUE(outcome.ok()) << outcome;
    return y.bits();
  });
}

TEST_F(FarRows, GroupedBiasAddGrad) {
  Tensor ends({kRows}, ACL_INT64);
  ends.fill({1, 2});
  expect_same([&](int64_t apart) {
    const Rows dy(ACL_BF16, apart), out(ACL_BF16, apart);
    dy.fill(numbers(ACL_BF16, 1));
    const Outcome outcome = run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnGroupedBiasAddGradGetWorkspaceSize(dy.handle(), ends.handle(), out.handle(),
                                                         size, executor);
        },
        aclnnGroupedBiasAddGrad);
    EXPECT_TRUE(outcome.ok()) << outcome;
    return out.bits();
  });
}

}  // namespace
}  // namespace aclgrad::test

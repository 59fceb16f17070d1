// SPDX-License-Identifier: Apache-2.0
// The kernels that pack and unpack, on an emulated device, against the definition.
#include "kernels/cuda/strided_copy.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace aclgrad::test {
namespace {

struct Shape {
  std::vector<int64_t> dims, source, target;  // steps in elements
  int64_t source_begin = 0, target_begin = 0;
};

View view_of(aclDataType dtype, const Shape& shape, const std::vector<int64_t>& strides) {
  View view;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.dims.size());
  std::copy(shape.dims.begin(), shape.dims.end(), view.dims.begin());
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

class StridedCopy : public testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{1} << 20;

  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    for (void*& memory : memory_) ASSERT_EQ(cudaMalloc(&memory, kBytes), cudaSuccess);
  }
  void TearDown() override {
    for (void* const memory : memory_) EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  void expect_copied(const Shape& shape, aclDataType dtype, bool sequential = false) {
    const View from = view_of(dtype, shape, shape.source), to = view_of(dtype, shape, shape.target);
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    std::mt19937_64 random(3);
    std::vector<uint8_t> source(kBytes), target(kBytes);
    for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
    std::memcpy(memory_[0], source.data(), kBytes);
    std::memcpy(memory_[1], target.data(), kBytes);
    for (int64_t number = 0; number < to.numel(); ++number) {
      int64_t left = number, at = shape.source_begin, put = shape.target_begin;
      for (int i = to.rank - 1; i >= 0; --i) {
        const auto index = static_cast<size_t>(i);
        at += left % to.dims[index] * from.strides[index];
        put += left % to.dims[index] * to.strides[index];
        left /= to.dims[index];
      }
      std::memcpy(&target[static_cast<size_t>(put * size)], &source[static_cast<size_t>(at * size)],
                  static_cast<size_t>(size));
    }
    const CudaQueue queue{stream_, 0};
    ASSERT_EQ(cuda_strided_copy(from, static_cast<char*>(memory_[0]) + shape.source_begin * size,
                                to, static_cast<char*>(memory_[1]) + shape.target_begin * size,
                                sequential, queue),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess)
        << cudaGetErrorString(cudaGetLastError());
    EXPECT_EQ(std::memcmp(memory_[1], target.data(), kBytes), 0);
  }

  cudaStream_t stream_ = nullptr;
  void* memory_[2] = {};
};

TEST_F(StridedCopy, EveryKind) {
  const Shape shapes[] = {
      {{7, 33, 24}, {1000, 30, 1}, {792, 24, 1}},           // rows with gaps
      {{7, 33, 25}, {1001, 30, 1}, {825, 25, 1}, 1, 3},     // nothing is aligned
      {{3, 70, 100}, {7000, 1, 70}, {7000, 100, 1}},        // transposed
      {{3, 70, 101}, {7100, 1, 70}, {7100, 101, 1}, 5, 2},  // and ragged
      {{70, 3, 65}, {1, 4550, 70}, {200, 66, 1}},           // with a dimension between
      {{70, 65}, {-1, 70}, {65, 1}, 69, 0},                 // backwards
      {{70, 65}, {65, 1}, {-65, -1}, 0, 4549},              // both ways
      {{40, 50}, {0, 1}, {50, 1}},                          // broadcast
      {{40, 50}, {1, 0}, {50, 1}},
      {{5000}, {3}, {2}},
      {{}, {}, {}, 4, 7},
      {{0, 4}, {4, 1}, {4, 1}},
  };
  for (const Shape& shape : shapes) {
    for (const aclDataType dtype : {ACL_BOOL, ACL_FLOAT16, ACL_FLOAT, ACL_DOUBLE, ACL_COMPLEX128}) {
      SCOPED_TRACE(testing::PrintToString(shape.dims) + testing::PrintToString(shape.source) +
                   " of dtype " + std::to_string(dtype));
      expect_copied(shape, dtype);
    }
  }
}

// The last one in row-major order stays.
TEST_F(StridedCopy, InOrderWhereOnePlaceIsNamedTwice) {
  expect_copied({{20, 30}, {30, 1}, {0, 1}}, ACL_FLOAT, true);
  expect_copied({{20, 30}, {30, 1}, {1, -1}, 0, 29}, ACL_FLOAT16, true);
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// The kernels that pack and unpack where accesses of one of the views lie more than 2^32 accesses
// apart: an offset that lost its upper half, signed or not, leads to another one.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/strided_copy.h"
#include "kernels/cuda/strided_copy_plan.h"

namespace aclgrad::test {
namespace {

using cuda::CopyKind;

constexpr int64_t kFar = (int64_t{1} << 32) + 16;

struct Copy {
  std::string name;
  CopyKind kind;
  int bytes;  // of an access
  aclDataType dtype;
  std::vector<int64_t> dims, source, target;  // steps in elements
};

class Side {
 public:
  Side(const Copy& copy, const std::vector<int64_t>& steps) {
    view_.dtype = copy.dtype;
    view_.rank = static_cast<int>(copy.dims.size());
    std::copy(copy.dims.begin(), copy.dims.end(), view_.dims.begin());
    std::copy(steps.begin(), steps.end(), view_.strides.begin());
    int64_t low = 0, high = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
      const int64_t reach = (copy.dims[i] - 1) * steps[i];
      (reach < 0 ? low : high) += reach;
    }
    const auto size = static_cast<int64_t>(dtype_size(copy.dtype));
    EXPECT_EQ(cudaMalloc(&memory_, static_cast<size_t>((high - low + 1) * size)), cudaSuccess);
    if (memory_ != nullptr) first_ = static_cast<std::byte*>(memory_) - low * size;
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() { EXPECT_EQ(cudaFree(memory_), cudaSuccess); }

  const View& view() const { return view_; }
  void* first() const { return first_; }
  // Element `number` in row-major order of the indices.
  std::byte* element(int64_t number) const {
    int64_t at = 0;
    for (int i = view_.rank - 1; i >= 0; --i) {
      const auto index = static_cast<size_t>(i);
      at += number % view_.dims[index] * view_.strides[index];
      number /= view_.dims[index];
    }
    return first_ + at * static_cast<int64_t>(dtype_size(view_.dtype));
  }

 private:
  View view_;
  void* memory_ = nullptr;
  std::byte* first_ = nullptr;  // of element (0, 0, ...)
};

void expect_copied(const Copy& copy, cudaStream_t stream) {
  SCOPED_TRACE(copy.name);
  const Side from(copy, copy.source), to(copy, copy.target);
  ASSERT_TRUE(from.first() != nullptr && to.first() != nullptr);
  const bool in_order = copy.kind == CopyKind::kInOrder;
  const auto addresses =
      reinterpret_cast<uintptr_t>(from.first()) | reinterpret_cast<uintptr_t>(to.first());
  const cuda::CopyPlan plan = cuda::plan_copy(from.view(), to.view(), in_order, addresses);
  EXPECT_EQ(plan.kind, copy.kind);
  EXPECT_EQ(plan.bytes, copy.bytes);
  const size_t size = dtype_size(copy.dtype);
  std::mt19937_64 random(3);
  std::vector<std::byte> expected(size * static_cast<size_t>(to.view().numel()));
  for (std::byte& byte : expected) byte = static_cast<std::byte>(random());
  for (int64_t i = 0; i < to.view().numel(); ++i) {
    std::memcpy(from.element(i), &expected[static_cast<size_t>(i) * size], size);
  }
  const CudaQueue queue{stream, 0};
  ASSERT_EQ(cuda_strided_copy(from.view(), from.first(), to.view(), to.first(), in_order, queue),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  std::vector<std::byte> found(expected.size());
  for (int64_t i = 0; i < to.view().numel(); ++i) {
    std::memcpy(&found[static_cast<size_t>(i) * size], to.element(i), size);
  }
  EXPECT_EQ(found, expected);
}

TEST(FarCopy, EveryKernel) {
  const Copy copies[] = {
      {"narrow from afar", CopyKind::kAccesses, 2, ACL_FLOAT16, {3, 5}, {kFar + 1, 1}, {5, 1}},
      {"narrow to afar", CopyKind::kAccesses, 2, ACL_FLOAT16, {3, 5}, {5, 1}, {kFar + 1, 1}},
      {"backwards to afar", CopyKind::kAccesses, 2, ACL_FLOAT16, {3, 5}, {5, 1}, {-kFar - 1, 1}},
      {"backwards from afar", CopyKind::kAccesses, 2, ACL_FLOAT16, {3, 5}, {kFar + 1, 1}, {-5, 1}},
      {"wide from afar", CopyKind::kAccesses, 16, ACL_FLOAT, {2, 8}, {4 * kFar, 1}, {8, 1}},
      {"wide to afar", CopyKind::kAccesses, 16, ACL_FLOAT, {2, 8}, {8, 1}, {4 * kFar, 1}},
      {"in order from afar", CopyKind::kInOrder, 2, ACL_FLOAT16, {3, 5}, {kFar, 1}, {5, 1}},
      {"in order to afar", CopyKind::kInOrder, 2, ACL_FLOAT16, {3, 5}, {5, 1}, {kFar, 1}},
      // Seventy elements are two tiles.
      {"tiles from afar", CopyKind::kTiles, 1, ACL_BOOL, {20, 70}, {1, kFar}, {70, 1}},
      {"tiles to afar", CopyKind::kTiles, 1, ACL_BOOL, {70, 20}, {1, 70}, {kFar, 1}},
      {"tiles to afar, both ways",
       CopyKind::kTiles,
       1,
       ACL_BOOL,
       {20, 20},
       {1, 20},
       {kFar + 1, kFar}},
      {"tiles that are far apart, from",
       CopyKind::kTiles,
       1,
       ACL_BOOL,
       {2, 20, 20},
       {kFar, 1, 20},
       {400, 20, 1}},
      {"tiles that are far apart, to",
       CopyKind::kTiles,
       1,
       ACL_BOOL,
       {2, 20, 20},
       {400, 1, 20},
       {kFar, 20, 1}},
  };
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  for (const Copy& copy : copies) expect_copied(copy, stream);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace aclgrad::test

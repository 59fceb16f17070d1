// SPDX-License-Identifier: Apache-2.0
// What a GPU adds to the contract, through the C interface: which memory is refused where, its own
// memory running out, several of them; and the CPU where there is no GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "runtime/services.h"
#include "support/device.h"
#include "support/run.h"
#include "support/tensor.h"
#include "tensor/scale_add.h"

namespace aclgrad::test {
namespace {

bool on_cuda() { return aclgrad_has_device_queues(); }

aclnnStatus plan_softmax(aclTensor* dy, aclTensor* y, aclTensor* mask, aclTensor* out,
                         uint64_t* size, aclOpExecutor** executor) {
  return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(dy, y, mask, 1.0, false, out, size,
                                                          executor);
}

// A build with CUDA serves the CPU where there is no driver.
TEST(CudaDevice, ThereIsADevice) {
  uint32_t count = 0;
  ASSERT_EQ(aclrtGetDeviceCount(&count), 0);
  EXPECT_GE(count, 1u);
  const char* const wanted = std::getenv("ACLGRAD_DEVICE");
  if (wanted != nullptr && std::string(wanted) == "cpu") {
    EXPECT_FALSE(on_cuda());
  }
}

TEST(CudaDevice, MemoryOfTheHostIsRefusedByName) {
  use_device();
  if (!on_cuda()) GTEST_SKIP() << "the CPU's device takes it";
  const Dims dims = {1, 1, 2, 8};
  Tensor y(dims, ACL_FLOAT), mask(dims, ACL_BOOL), out(dims, ACL_FLOAT);
  std::vector<float> values(16);
  const int64_t strides[] = {16, 16, 8, 1};
  aclTensor* const dy = aclCreateTensor(dims.data(), 4, ACL_FLOAT, strides, 0, ACL_FORMAT_ND,
                                        dims.data(), 4, values.data());
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return plan_softmax(dy, y.handle(), mask.handle(), out.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  EXPECT_EQ(outcome.phase_one, 161002);
  expect_message(outcome.message, {"gradOutput", "memory of the host", "live device memory"});
  EXPECT_EQ(aclDestroyTensor(dy), 0);
  EXPECT_EQ(aclrtMemset(values.data(), 64, 0, 64), 107000);
  expect_message(take_message(), {"aclrtMemset", "devPtr", "memory of the host"});
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 64), 0);
  EXPECT_EQ(aclrtMemset(pinned, 64, 0, 64), 107000);
  expect_message(take_message(), {"aclrtMemset", "devPtr", "pinned memory of the host"});
  EXPECT_EQ(aclrtFreeHost(pinned), 0);
}

TEST(CudaDevice, FreedMemoryIsRefusedByName) {
  use_device();
  const Dims dims = {1, 1, 2, 8};
  Tensor y(dims, ACL_FLOAT), mask(dims, ACL_BOOL), out(dims, ACL_FLOAT);
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  const int64_t strides[] = {16, 16, 8, 1};
  aclTensor* const dy =
      aclCreateTensor(dims.data(), 4, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, dims.data(), 4, memory);
  ASSERT_EQ(aclrtFree(memory), 0);
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return plan_softmax(dy, y.handle(), mask.handle(), out.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  EXPECT_EQ(outcome.phase_one, 161002);
  expect_message(outcome.message, {"gradOutput", "freed or was never allocated"});
  EXPECT_EQ(aclDestroyTensor(dy), 0);
}

// Never somewhere else in silence.
TEST(CudaDevice, AnOperatorWithoutKernelsRefuses) {
  use_device();
  if (!on_cuda()) GTEST_SKIP() << "it has one for the CPU";
  const Dims dims = {3, 4};
  const Tensor x(dims, ACL_FLOAT), out(dims, ACL_FLOAT);
  ScaleAdd arguments;
  arguments.x = x.handle();
  arguments.out = out.handle();
  const Outcome outcome = run_scale_add<ScaleAddOnCpu>(arguments);
  EXPECT_EQ(outcome.phase_one, 561003);
  expect_message(outcome.message, {"aclnnScaleAdd", "no CUDA kernel", "ACLGRAD_DEVICE=cpu"});
}

TEST(CudaDevice, AddressesThatNoGpuTakesAreRefusedByName) {
  use_device();
  if (!on_cuda()) GTEST_SKIP() << "the CPU takes any";
  const Dims dims = {1, 1, 2, 8};
  const Tensor y(dims, ACL_FLOAT), mask(dims, ACL_BOOL), out(dims, ACL_FLOAT);
  const DeviceMemory memory(128);
  const int64_t strides[] = {16, 16, 8, 1};
  aclTensor* const dy = aclCreateTensor(dims.data(), 4, ACL_FLOAT, strides, 0, ACL_FORMAT_ND,
                                        dims.data(), 4, static_cast<char*>(memory.get()) + 2);
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return plan_softmax(dy, y.handle(), mask.handle(), out.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  EXPECT_EQ(outcome.phase_one, 161002);
  expect_message(outcome.message, {"gradOutput", "a multiple of 4 bytes"});
  EXPECT_EQ(aclDestroyTensor(dy), 0);
}

TEST(CudaDevice, CopiesGoWhereTheirKindSays) {
  use_device();
  if (!on_cuda()) GTEST_SKIP() << "there a kind is only advice";
  const DeviceMemory first(64), second(64);
  std::array<uint8_t, 64> local{};
  void* pinned = nullptr;
  ASSERT_EQ(aclrtMallocHost(&pinned, 64), 0);
  struct Row {
    void *to, *from;
    aclrtMemcpyKind kind;
    const char* wrong;  // null: none
  };
  for (const Row& row : {Row{first.get(), local.data(), ACL_MEMCPY_HOST_TO_DEVICE, nullptr},
                         Row{local.data(), first.get(), ACL_MEMCPY_DEFAULT, nullptr},
                         Row{pinned, local.data(), ACL_MEMCPY_HOST_TO_HOST, nullptr},
                         Row{first.get(), second.get(), ACL_MEMCPY_DEVICE_TO_DEVICE, nullptr},
                         Row{local.data(), pinned, ACL_MEMCPY_HOST_TO_DEVICE, "dst"},
                         Row{pinned, local.data(), ACL_MEMCPY_HOST_TO_DEVICE, "dst"},
                         Row{first.get(), second.get(), ACL_MEMCPY_HOST_TO_DEVICE, "src"},
                         Row{first.get(), second.get(), ACL_MEMCPY_DEVICE_TO_HOST, "dst"},
                         Row{local.data(), pinned, ACL_MEMCPY_DEVICE_TO_HOST, "src"},
                         Row{first.get(), local.data(), ACL_MEMCPY_HOST_TO_HOST, "dst"},
                         Row{first.get(), local.data(), ACL_MEMCPY_DEVICE_TO_DEVICE, "src"}}) {
    for (const bool later : {false, true}) {
      const aclError status = later ? aclrtMemcpyAsync(row.to, 64, row.from, 64, row.kind, stream())
                                    : aclrtMemcpy(row.to, 64, row.from, 64, row.kind);
      EXPECT_EQ(status, row.wrong == nullptr ? 0 : 107000) << row.kind;
      if (row.wrong == nullptr) continue;
      expect_message(take_message(),
                     {later ? "aclrtMemcpyAsync" : "aclrtMemcpy", row.wrong, "as kind says"});
    }
  }
  EXPECT_EQ(aclrtSynchronizeStream(stream()), 0);
  EXPECT_EQ(aclrtFreeHost(pinned), 0);
}

TEST(CudaDevice, WhatIsFreedIsFree) {
  use_device();
  if (!on_cuda()) GTEST_SKIP() << "the machine's memory is everybody's";
  constexpr size_t kBytes = size_t{64} << 20;
  size_t before = 0, used = 0, after = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total), 0);
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &used, &total), 0);
  EXPECT_LE(used, before - kBytes);
  ASSERT_EQ(aclrtFree(memory), 0);
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), 0);
  EXPECT_GE(after, used + kBytes);
}

TEST(CudaDevice, OverlappingCopiesMoveAsIfByAnotherPlace) {
  use_device();
  std::vector<uint8_t> bytes(1000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  const DeviceMemory memory(1000);
  auto* const at = static_cast<uint8_t*>(memory.get());
  for (const bool later : {false, true}) {
    for (const auto& [to, from] : {std::pair{10, 0}, std::pair{0, 10}}) {
      require(aclrtMemcpy(at, 1000, bytes.data(), 1000, ACL_MEMCPY_HOST_TO_DEVICE), "aclrtMemcpy");
      if (later) {
        ASSERT_EQ(
            aclrtMemcpyAsync(at + to, 990, at + from, 990, ACL_MEMCPY_DEVICE_TO_DEVICE, stream()),
            0);
        ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
      } else {
        ASSERT_EQ(aclrtMemcpy(at + to, 990, at + from, 990, ACL_MEMCPY_DEVICE_TO_DEVICE), 0);
      }
      std::vector<uint8_t> expected = bytes, got(1000);
      std::memmove(&expected[static_cast<size_t>(to)], &bytes[static_cast<size_t>(from)], 990);
      require(aclrtMemcpy(got.data(), 1000, at, 1000, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
      EXPECT_EQ(got, expected);
    }
  }
}

TEST(CudaDevice, OutOfMemoryLosesNothing) {
  use_device();
  if (!on_cuda()) GTEST_SKIP();
  size_t free_bytes = 0, total = 0;
  std::vector<void*> blocks;
  constexpr size_t kBlock = size_t{64} << 20;
  void* memory = nullptr;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 0);
  if (total > (size_t{8} << 30)) GTEST_SKIP() << "takes all memory of a GPU that others may use";
  aclError status = 0;
  while ((status = aclrtMalloc(&memory, kBlock, ACL_MEM_MALLOC_HUGE_FIRST)) == 0) {
    blocks.push_back(memory);
  }
  EXPECT_EQ(status, 207001);
  EXPECT_GT(blocks.size(), 1u);
  for (void* block : blocks) EXPECT_EQ(aclrtFree(block), 0);
  ASSERT_EQ(aclrtMalloc(&memory, 2 * kBlock, ACL_MEM_MALLOC_HUGE_FIRST), 0) << take_message();
  EXPECT_EQ(aclrtFree(memory), 0);
}

// What an operator needs for itself is worth what the library keeps for later.
TEST(CudaDevice, AnOperatorGetsMemoryThatIsOnlyKept) {
  use_device();
  if (!on_cuda()) GTEST_SKIP();
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 0);
  if (total > (size_t{8} << 30)) GTEST_SKIP() << "takes all memory of a GPU that others may use";
  Tensor dy({300, 8}, ACL_FLOAT), indices({300}, ACL_INT64), dw({40, 8}, ACL_FLOAT);
  indices.fill_constant(7.0);
  dy.fill_normal(1, 0.0, 1.0);
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(
      aclnnEmbeddingDenseBackwardGetWorkspaceSize(dy.handle(), indices.handle(), 40, UINT64_MAX,
                                                  false, dw.handle(), &size, &executor),
      0);
  const DeviceMemory workspace(size);
  std::vector<void*> blocks;
  for (const size_t bytes : {size_t{64} << 20, size_t{1} << 20, size_t{1} << 14, size_t{256}}) {
    void* memory = nullptr;
    while (aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST) == 0) blocks.push_back(memory);
  }
  EXPECT_EQ(aclrtFree(blocks.front()), 0);
  EXPECT_EQ(aclnnEmbeddingDenseBackward(workspace.get(), size, executor, stream()), 0)
      << take_message();
  EXPECT_EQ(aclrtSynchronizeStream(stream()), 0);
  for (size_t i = 1; i < blocks.size(); ++i) EXPECT_EQ(aclrtFree(blocks[i]), 0);
}

TEST(CudaDevice, PeersReachEachOther) {
  uint32_t count = 0;
  ASSERT_EQ(aclrtGetDeviceCount(&count), 0);
  if (count < 2) GTEST_SKIP() << "one device";
  use_device();
  int32_t can = -1;
  EXPECT_EQ(aclrtDeviceCanAccessPeer(&can, 0, 1), 0);
  if (can == 1) {
    EXPECT_EQ(aclrtDeviceEnablePeerAccess(1, 0), 0);
  }
  ASSERT_EQ(aclrtSetDevice(1), 0);
  int32_t device = -1;
  EXPECT_EQ(aclrtGetDevice(&device), 0);
  EXPECT_EQ(device, 1);
  aclrtStream second = nullptr;
  ASSERT_EQ(aclrtCreateStream(&second), 0);
  const DeviceMemory memory(64);
  EXPECT_EQ(aclrtMemsetAsync(memory.get(), 64, 5, 64, second), 0);
  EXPECT_EQ(aclrtSynchronizeStream(second), 0);
  std::array<uint8_t, 64> got{};
  EXPECT_EQ(aclrtMemcpy(got.data(), 64, memory.get(), 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  EXPECT_EQ(got[63], 5);
  EXPECT_EQ(aclrtDestroyStream(second), 0);
  EXPECT_EQ(aclrtResetDevice(1), 0);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

}  // namespace
}  // namespace aclgrad::test

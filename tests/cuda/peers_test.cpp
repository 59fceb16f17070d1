// SPDX-License-Identifier: Apache-2.0
// Several emulated devices: whose memory an operator may use, and that a device which the program
// never chose stays as it was.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "faults.h"
#include "runtime/services.h"
#include "support/device.h"

namespace aclgrad::test {
namespace {

constexpr int64_t kDims[] = {1, 1, 2, 8};
constexpr int64_t kStrides[] = {16, 16, 8, 1};

struct Block {
  explicit Block(size_t bytes) {
    EXPECT_EQ(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0) << take_message();
    EXPECT_EQ(aclrtMemset(memory, bytes, 0, bytes), 0) << take_message();
  }
  ~Block() { EXPECT_EQ(aclrtFree(memory), 0); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* memory = nullptr;
};

// Both phases on `stream`; the first status that is not 0.
aclnnStatus run_softmax(void* dy, void* y, void* mask, void* out, aclrtStream stream) {
  const auto make = [](void* memory, aclDataType dtype) {
    return aclCreateTensor(kDims, 4, dtype, kStrides, 0, ACL_FORMAT_ND, kDims, 4, memory);
  };
  aclTensor* const tensors[] = {make(dy, ACL_FLOAT), make(y, ACL_FLOAT), make(mask, ACL_BOOL),
                                make(out, ACL_FLOAT)};
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  aclnnStatus status = aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
      tensors[0], tensors[1], tensors[2], 1.0, false, tensors[3], &size, &executor);
  EXPECT_EQ(size, 0u);
  if (status == 0) status = aclnnScaledMaskedSoftmaxBackward(nullptr, 0, executor, stream);
  for (aclTensor* tensor : tensors) EXPECT_EQ(aclDestroyTensor(tensor), 0);
  return status;
}

// First, while nothing has used the other device.
TEST(CudaPeers, ADeviceThatNobodyChoseGetsNoContext) {
  ASSERT_EQ(aclInit(nullptr), 0);
  if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
  ASSERT_EQ(aclrtSetDevice(1), 0);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&event), 0);
  {
    const Block dy(64), y(64), mask(16), out(64);
    EXPECT_EQ(run_softmax(dy.memory, y.memory, mask.memory, out.memory, stream), 0)
        << take_message();
    EXPECT_EQ(aclrtRecordEvent(event, stream), 0);
    EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    size_t free_bytes = 0, total = 0;
    EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 0);
    std::vector<char> local(64);
    EXPECT_EQ(aclrtMemcpy(local.data(), 64, out.memory, 64, ACL_MEMCPY_DEVICE_TO_HOST), 0);
  }
  EXPECT_TRUE(emulated::has_context(1));
  EXPECT_FALSE(emulated::has_context(0)) << "half a gigabyte on a real one";
  EXPECT_EQ(aclrtDestroyEvent(event), 0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST(CudaPeers, MemoryOutOfReachIsRefusedByName) {
  if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
  ASSERT_EQ(aclrtSetDevice(1), 0);
  const Block far(64);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  const Block dy(64), mask(16), out(64);
  EXPECT_EQ(run_softmax(dy.memory, far.memory, mask.memory, out.memory, stream), 161002);
  const std::string message = take_message();
  for (const char* part : {"aclnnScaledMaskedSoftmaxBackward", ": y is at", "another device",
                           "aclrtDeviceEnablePeerAccess"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  ASSERT_EQ(aclrtDeviceEnablePeerAccess(1, 0), 0);
  EXPECT_EQ(run_softmax(dy.memory, far.memory, mask.memory, out.memory, stream), 0)
      << take_message();
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

// All devices together have more.
TEST(CudaPeers, AnAllocationIsOfOneDevice) {
  if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
  ASSERT_EQ(aclrtSetDevice(1), 0);
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 0);
  void* memory = nullptr;
  EXPECT_EQ(aclrtMalloc(&memory, total + 1, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
  const std::string message = take_message();
  EXPECT_NE(message.find("the device's " + std::to_string(total)), std::string::npos) << message;
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// A device that fails for good. On the emulated one only: a real one may take others with it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/services.h"
#include "support/device.h"

namespace aclgrad::test {
namespace {

__global__ void touch(int* at) { *at = 1; }

// A kernel that does what none of ours should.
class BadKernel final : public Work {
 public:
  void run(DataErrors&) noexcept override {}
  Status submit(const char* function, DeviceQueue& queue) override {
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = 1;
    config.stream = static_cast<cudaStream_t>(queue.native());
    void* memory = nullptr;
    cudaMalloc(&memory, 4);
    cudaFree(memory);
    return queue.launched(function, cudaLaunchKernelEx(&config, touch, static_cast<int*>(memory)));
  }
};

// Every call from then on tells the first cause, until the device is reset.
TEST(CudaDevice, AFailureSticksUntilTheDeviceIsReset) {
  use_device();
  if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
  aclrtStream mine = nullptr;
  ASSERT_EQ(aclrtCreateStream(&mine), 0);
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  // The kernel may have failed before all of its work is handed over.
  const Status queued = aclgrad_enqueue("aclnnTest", mine, new BadKernel, nullptr);
  EXPECT_TRUE(queued == 0 || queued == 361001) << queued;
  take_message();
  EXPECT_EQ(aclrtSynchronizeStream(mine), 507015);
  const std::vector<std::string> cause = {"cudaErrorIllegalAddress", "block (0,0,0)",
                                          "aclrtResetDevice"};
  const auto expect_cause = [&](const char* function) {
    const std::string message = take_message();
    EXPECT_NE(message.find(function), std::string::npos) << message;
    for (const std::string& part : cause) {
      EXPECT_NE(message.find(part), std::string::npos) << message;
    }
  };
  expect_cause("aclrtSynchronizeStream");
  EXPECT_EQ(aclrtSynchronizeDevice(), 507015);
  expect_cause("aclrtSynchronizeDevice");
  void* other = nullptr;
  EXPECT_EQ(aclrtMalloc(&other, 64, ACL_MEM_MALLOC_HUGE_FIRST), 507015);
  expect_cause("aclrtMalloc");
  int local = 0;
  EXPECT_EQ(aclrtMemcpy(memory, 4, &local, 4, ACL_MEMCPY_HOST_TO_DEVICE), 507015);
  expect_cause("aclrtMemcpy");
  EXPECT_EQ(aclgrad_enqueue("aclnnTest", mine, new BadKernel, nullptr), 361001);
  expect_cause("aclnnTest");
  EXPECT_EQ(aclrtResetDevice(0), 507015);
  expect_cause("aclrtResetDevice");
  ASSERT_EQ(aclrtSetDevice(0), 0);
  EXPECT_EQ(aclrtFree(memory), 0) << "what it had is gone, freeing it is no error";
  ASSERT_EQ(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_EQ(aclrtCreateStream(&mine), 0);
  EXPECT_EQ(aclrtMemsetAsync(memory, 64, 1, 64, mine), 0);
  EXPECT_EQ(aclrtSynchronizeStream(mine), 0);
  EXPECT_EQ(aclrtDestroyStream(mine), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
}

}  // namespace
}  // namespace aclgrad::test

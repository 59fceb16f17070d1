// SPDX-License-Identifier: Apache-2.0
// What tests of failures share: a kernel that makes its device fail, the way back, and the cause
// that every message tells. On the emulated devices only: a real one may take others with it.
#ifndef ACLGRAD_TESTS_CUDA_FAILURE_H_
#define ACLGRAD_TESTS_CUDA_FAILURE_H_

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>

#include "runtime/services.h"
#include "support/device.h"

namespace aclgrad::test {

inline __global__ void touch(int* at) { *at = 1; }

// A multiple of what allocations align to.
inline constexpr size_t kBytes = 256;

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
    cudaMalloc(&memory, kBytes);  // until the reset
    int* const behind = static_cast<int*>(memory) + kBytes / sizeof(int);
    return queue.launched(function, cudaLaunchKernelEx(&config, touch, behind));
  }
};

// By the message of the call that just failed.
inline void expect_cause(const std::string& function,
                         const std::string& way_out = "aclrtResetDevice") {
  const std::string message = take_message();
  for (const std::string& part : {function, std::string("cudaErrorIllegalAddress"), way_out}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

class FailureTest : public testing::Test {
 protected:
  void SetUp() override {
    use_device();
    if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
    ASSERT_EQ(aclrtCreateStream(&stream_), 0);
  }

  void fail_device() {
    const Status queued = aclgrad_enqueue("aclnnTest", stream_, new BadKernel, nullptr);
    // The kernel may have failed before all of its work is handed over.
    EXPECT_TRUE(queued == 0 || queued == 361001) << queued;
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
    take_message();
  }
  void reset_device() {
    EXPECT_EQ(aclrtResetDevice(0), 507015);
    expect_cause("aclrtResetDevice");
    ASSERT_EQ(aclrtSetDevice(0), 0);
    ASSERT_EQ(aclrtCreateStream(&stream_), 0);
  }
  void* allocate(size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0) << take_message();
    return memory;
  }

  aclrtStream stream_ = nullptr;
};

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_CUDA_FAILURE_H_

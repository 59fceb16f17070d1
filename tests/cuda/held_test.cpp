// SPDX-License-Identifier: Apache-2.0
// Streams that a blocking callback holds up, while calls of CUDA are refused or wait for the
// device. On the emulated devices only, where a test says which call that is.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "faults.h"
#include "runtime/services.h"
#include "support/device.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

// Longer than anything here takes that does not wait for the callback.
constexpr std::chrono::seconds kPatience{10};

class CudaHeld : public testing::Test {
 protected:
  void SetUp() override {
    use_device();
    if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
    ASSERT_EQ(aclrtCreateStream(&stream_), 0);
    std::promise<void> subscribed;
    reports_ = std::thread([&] {
      use_device();
      EXPECT_EQ(aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), stream_), 0);
      subscribed.set_value();
      while (!ended_) aclrtProcessReport(10);
      take_message();
    });
    subscribed.get_future().wait();
    ends_.fill({4000.0, 9000.0});
    dy_.fill_normal(1, 0.0, 1.0);
  }
  void TearDown() override {
    if (!reports_.joinable()) return;
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << take_message();
    ended_ = true;
    reports_.join();
    EXPECT_EQ(aclrtDestroyStream(stream_), 0);
  }

  // The stream goes on when `function` has run.
  void hold(std::function<void()> function) {
    function_ = std::move(function);
    const auto call = [](void* self) {
      auto& held = *static_cast<CudaHeld*>(self);
      held.entered_ = true;
      held.function_();
    };
    entered_ = false;
    ASSERT_EQ(aclrtLaunchCallback(call, this, ACL_CALLBACK_BLOCK, stream_), 0);
    while (!entered_) std::this_thread::yield();
  }
  // In a thread of its own, so that one that hangs lets the callback end.
  static bool in_time(std::function<void()> function) {
    auto done = std::make_shared<std::promise<void>>();
    std::future<void> end = done->get_future();
    std::thread([done, function = std::move(function)] {
      use_device();
      function();
      done->set_value();
    }).detach();
    return end.wait_for(kPatience) == std::future_status::ready;
  }
  static void* allocate(size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST), 0) << take_message();
    return memory;
  }
  aclnnStatus phase_one() {
    return aclnnGroupedBiasAddGradGetWorkspaceSize(dy_.handle(), ends_.handle(), out_.handle(),
                                                   &size_, &executor_);
  }
  aclnnStatus phase_two(void* workspace) {
    return aclnnGroupedBiasAddGrad(workspace, size_, executor_, stream_);
  }
  bool runs() {
    return run(
               [&](uint64_t* size, aclOpExecutor** executor) {
                 return aclnnGroupedBiasAddGradGetWorkspaceSize(dy_.handle(), ends_.handle(),
                                                                out_.handle(), size, executor);
               },
               aclnnGroupedBiasAddGrad, stream_)
        .ok();
  }

  aclrtStream stream_ = nullptr;
  Tensor dy_{{9000, 24}, ACL_FLOAT}, ends_{{2}, ACL_INT64}, out_{{2, 24}, ACL_FLOAT};
  uint64_t size_ = 0;
  aclOpExecutor* executor_ = nullptr;

 private:
  std::function<void()> function_;
  std::atomic<bool> entered_{false}, ended_{false};
  std::thread reports_;
};

// Whatever of it is under way is waited for by nobody.
TEST_F(CudaHeld, PhaseTwoThatIsRefusedWaitsForNothing) {
  void* const other = allocate(64);
  ASSERT_EQ(phase_one(), 0);
  void* const workspace = allocate(size_);
  EXPECT_EQ(phase_two(workspace), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  int refused = 0;
  bool called = true;
  for (int call = 1; call < 100 && called; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    ASSERT_EQ(phase_one(), 0);
    EXPECT_EQ(aclrtFree(allocate(5 << 20)), 0);  // kept, and freed when memory is short
    std::promise<void> answered;
    hold([&] {
      const bool first = answered.get_future().wait_for(kPatience) == std::future_status::ready;
      EXPECT_TRUE(first) << "phase two waits for the stream";
      if (first) {
        EXPECT_EQ(aclrtMemsetAsync(other, 64, 1, 64, stream_), 0);
      }
    });
    emulated::fail_call(call, cudaErrorMemoryAllocation);
    const aclnnStatus status = phase_two(workspace);
    called = emulated::call_failed();
    emulated::fail_call(0, cudaSuccess);
    answered.set_value();
    EXPECT_TRUE(status == 0 || status == 207001 || status == 361001) << status;
    if (status != 0) ++refused;
    take_message();
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << take_message();
    EXPECT_TRUE(runs());
  }
  EXPECT_FALSE(called);
  EXPECT_GE(refused, 2);
  EXPECT_EQ(aclrtFree(workspace), 0);
  EXPECT_EQ(aclrtFree(other), 0);
}

// CUDA frees memory only when the device has nothing to do.
TEST_F(CudaHeld, FreeingMemoryHoldsUpNoCallback) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocate(size_t{64} << 20));
  for (void* const block : blocks) EXPECT_EQ(aclrtFree(block), 0);  // more than is to be kept
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  hold([] {
    EXPECT_TRUE(in_time([] {
      void* const memory = allocate(100 << 10);
      EXPECT_EQ(aclrtFree(memory), 0);
    })) << "memory waits for a call of CUDA";
  });
  void* const memory = allocate(3 << 20);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  void* const other = allocate(7 << 20);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_GE(after, before + (size_t{200} << 20)) << "what is too much is freed when it can be";
  EXPECT_EQ(aclrtFree(memory), 0);
  EXPECT_EQ(aclrtFree(other), 0);
}

// One that asks for more than is left waits for the callback, which frees the rest.
TEST_F(CudaHeld, MemoryThatIsShortIsFreedBehindTheCallback) {
  constexpr size_t kBlock = size_t{200} << 20;
  std::vector<void*> blocks;
  size_t left = 0, total = 0;
  aclgrad_make_room();
  ASSERT_EQ(cudaMemGetInfo(&left, &total), cudaSuccess);
  for (; left > 2 * kBlock; left -= kBlock) {
    blocks.push_back(allocate(kBlock));
  }
  EXPECT_EQ(aclrtFree(allocate(kBlock)), 0);
  hold([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
  blocks.push_back(allocate(left - (left >> 4)));
  for (void* const block : blocks) EXPECT_EQ(aclrtFree(block), 0);
  aclgrad_make_room();
}

// Kept memory is freed for scratch that CUDA has not got, which waits for the device.
TEST_F(CudaHeld, RoomForScratchHoldsUpNoCallback) {
  void* const other = allocate(64);
  ASSERT_EQ(phase_one(), 0);
  void* const workspace = allocate(size_);
  EXPECT_EQ(phase_two(workspace), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  bool called = true;
  for (int call = 1; call < 100 && called; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    ASSERT_EQ(phase_one(), 0);
    EXPECT_EQ(aclrtFree(allocate(5 << 20)), 0);
    hold([&] {
      EXPECT_TRUE(in_time([stream = stream_, other] {
        // All threads' calls of CUDA are counted: the one that fails may be this one's.
        const aclError answer = aclrtMemsetAsync(other, 64, 1, 64, stream);
        EXPECT_TRUE(answer == 0 || answer == 207001) << answer;
      })) << "the stream takes nothing while phase two waits";
    });
    emulated::fail_call(call, cudaErrorMemoryAllocation);
    const aclnnStatus status = phase_two(workspace);
    called = emulated::call_failed();
    emulated::fail_call(0, cudaSuccess);
    EXPECT_TRUE(status == 0 || status == 207001 || status == 361001) << status;
    take_message();
    EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << take_message();
    EXPECT_TRUE(runs());
  }
  EXPECT_FALSE(called);
  EXPECT_EQ(aclrtFree(workspace), 0);
  EXPECT_EQ(aclrtFree(other), 0);
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// Devices that fail for good: what every call answers then, and what a reset brings back. On the
// emulated devices only: a real one may take others with it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "faults.h"
#include "runtime/services.h"
#include "support/device.h"

namespace aclgrad::test {
namespace {

using CudaFailure = FailureTest;

// Every call from then on tells the first cause, until the device is reset.
TEST_F(CudaFailure, SticksUntilTheDeviceIsReset) {
  void* memory = allocate(64);
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&event), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  const Status queued = aclgrad_enqueue("aclnnTest", stream_, new BadKernel, nullptr);
  EXPECT_TRUE(queued == 0 || queued == 361001) << queued;
  take_message();
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 507015);
  const std::string message = take_message();
  EXPECT_NE(message.find("block (0,0,0)"), std::string::npos) << message;
  EXPECT_EQ(aclrtSynchronizeDevice(), 507015);
  expect_cause("aclrtSynchronizeDevice");
  void* other = nullptr;
  EXPECT_EQ(aclrtMalloc(&other, 64, ACL_MEM_MALLOC_HUGE_FIRST), 507015);
  expect_cause("aclrtMalloc");
  int local = 0;
  EXPECT_EQ(aclrtMemcpy(memory, 4, &local, 4, ACL_MEMCPY_HOST_TO_DEVICE), 507015);
  expect_cause("aclrtMemcpy");
  EXPECT_EQ(aclgrad_enqueue("aclnnTest", stream_, new BadKernel, nullptr), 361001);
  expect_cause("aclnnTest");
  aclrtStream stream = nullptr;
  EXPECT_EQ(aclrtCreateStream(&stream), 507015);
  expect_cause("aclrtCreateStream");
  aclrtContext context = nullptr;
  EXPECT_EQ(aclrtCreateContext(&context, 0), 507015);
  expect_cause("aclrtCreateContext");
  EXPECT_EQ(aclrtSetDevice(0), 507015);
  expect_cause("aclrtSetDevice");
  size_t free_bytes = 0, total = 0;
  EXPECT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 507015);
  expect_cause("aclrtGetMemInfo");
  aclrtEventRecordedStatus state{};
  EXPECT_EQ(aclrtQueryEventStatus(event, &state), 507015);
  expect_cause("aclrtQueryEventStatus");
  reset_device();
  EXPECT_EQ(aclrtDestroyEvent(event), 0);
  EXPECT_EQ(aclrtFree(memory), 0) << "what it had is gone, freeing it is no error";
  memory = allocate(64);
  EXPECT_EQ(aclrtMemsetAsync(memory, 64, 1, 64, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
}

// Whichever call is the first to meet it.
TEST_F(CudaFailure, TheFirstCallThatMeetsItTellsTheCause) {
  emulated::fail_call(1, cudaErrorIllegalAddress);
  void* memory = nullptr;
  EXPECT_EQ(aclrtMalloc(&memory, 1000, ACL_MEM_MALLOC_HUGE_FIRST), 507015);
  expect_cause("aclrtMalloc");
  reset_device();
  std::vector<aclrtStream> streams;
  emulated::fail_call(1, cudaErrorIllegalAddress);
  aclError status = 0;
  for (int i = 0; i < 20 && status == 0; ++i) {  // until none is left that was used before
    status = aclrtCreateStream(&streams.emplace_back());
  }
  EXPECT_EQ(status, 507015);
  expect_cause("aclrtCreateStream");
  reset_device();
}

// One that does not take back all of the program's aclrtSetDevice calls mends nothing.
TEST_F(CudaFailure, AResetThatIsNotTheLastTellsTheCause) {
  aclrtEvent event = nullptr;
  ASSERT_EQ(aclrtCreateEvent(&event), 0);
  ASSERT_EQ(aclrtRecordEvent(event, stream_), 0);
  ASSERT_EQ(aclrtSetDevice(0), 0);
  fail_device();
  aclrtEvent other = nullptr;
  EXPECT_EQ(aclrtCreateEvent(&other), 507015);
  expect_cause("aclrtCreateEvent");
  aclrtEventWaitStatus waits{};
  EXPECT_EQ(aclrtQueryEventWaitStatus(event, &waits), 507015);
  expect_cause("aclrtQueryEventWaitStatus");
  EXPECT_EQ(aclrtResetDevice(0), 507015);
  expect_cause("aclrtResetDevice");
  EXPECT_EQ(aclrtSynchronizeDevice(), 507015);
  expect_cause("aclrtSynchronizeDevice");
  reset_device();
  EXPECT_EQ(aclrtSynchronizeEvent(event), 107000) << "recorded before the reset";
  EXPECT_NE(take_message().find("expected a record since"), std::string::npos);
  EXPECT_EQ(aclrtRecordEvent(event, stream_), 0);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0) << take_message();
  EXPECT_EQ(aclrtDestroyEvent(event), 0);
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// A callback that nobody processes holds its stream for ever, but no further than a reset.
TEST_F(CudaFailure, WhatHeldTheDeviceGoesWithAReset) {
  aclrtStream held = nullptr;
  ASSERT_EQ(aclrtCreateStream(&held), 0);
  ASSERT_EQ(aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), held), 0);
  const auto frees_kept = [] {
    size_t before = 0, after = 0, total = 0;
    EXPECT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
    aclgrad_make_room();
    EXPECT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
    return after > before;
  };
  EXPECT_EQ(aclrtFree(allocate(64 << 20)), 0);
  ASSERT_EQ(aclrtLaunchCallback([](void*) {}, nullptr, ACL_CALLBACK_BLOCK, held), 0);
  EXPECT_FALSE(frees_kept()) << "CUDA would wait for the callback";
  fail_device();
  reset_device();
  EXPECT_EQ(aclrtFree(allocate(64 << 20)), 0);
  EXPECT_TRUE(frees_kept());
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// CUDA's runtime says of these too that the process can do nothing more on the device.
TEST_F(CudaFailure, LessUsualFailuresStickToo) {
  for (const int number : {703, 721, 810, 911, 999}) {
    SCOPED_TRACE(number);
    emulated::fail_call(1, static_cast<cudaError_t>(number));
    void* memory = nullptr;
    EXPECT_EQ(aclrtMalloc(&memory, 1000, ACL_MEM_MALLOC_HUGE_FIRST), 507015);
    EXPECT_EQ(aclrtSynchronizeDevice(), 507015);
    const std::string message = take_message();
    EXPECT_NE(message.find("failed before"), std::string::npos) << message;
    EXPECT_EQ(aclrtResetDevice(0), 507015);
    take_message();
    ASSERT_EQ(aclrtSetDevice(0), 0);
  }
}

// CUDA runs a host function to its end before it resets a device, and a host function may ask for
// what a reset holds.
TEST_F(CudaFailure, AResetWaitsForAHostFunction) {
  static struct { std::atomic<bool> entered{false}, let_go{false}; } state;
  class Slow final : public Work {
   public:
    void run(DataErrors&) noexcept override {
      state.entered = true;
      while (!state.let_go) std::this_thread::yield();
    }
  };
  aclrtStream healthy = nullptr;
  ASSERT_EQ(aclrtCreateStream(&healthy), 0);
  ASSERT_EQ(aclgrad_enqueue("aclnnTest", healthy, new Slow, nullptr), 0);
  while (!state.entered) std::this_thread::yield();
  fail_device();
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    state.let_go = true;
  });
  reset_device();
  later.join();
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// CUDA gives the addresses of what a reset took to what is allocated next.
TEST_F(CudaFailure, WhatAResetTookIsDead) {
  void* const lost = allocate(4096);
  void* const other = allocate(5 << 20);
  void* host = nullptr;
  ASSERT_EQ(aclrtMallocHost(&host, 64), 0);
  fail_device();
  reset_device();
  EXPECT_EQ(aclgrad_find_allocation(lost).kind, AddressKind::kDeadDevice);
  EXPECT_EQ(aclgrad_find_allocation(host).kind, AddressKind::kDeadHost);
  int local = 0;
  EXPECT_EQ(aclrtMemcpy(lost, 4, &local, 4, ACL_MEMCPY_HOST_TO_DEVICE), 107000);
  take_message();
  void* const fresh = allocate(4096);
  ASSERT_EQ(fresh, lost) << "the emulation gives an address out again";
  EXPECT_EQ(aclgrad_find_allocation(fresh).kind, AddressKind::kDevice);
  EXPECT_EQ(aclrtMemset(fresh, 4096, 1, 4096), 0);
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &before, &total), 0);
  EXPECT_EQ(aclrtFree(fresh), 0);
  EXPECT_EQ(aclrtFree(fresh), 100000) << "once is enough";
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &after, &total), 0);
  EXPECT_GT(after, before) << "what is freed is free";
  EXPECT_EQ(aclrtFree(other), 0);
  EXPECT_EQ(aclrtFreeHost(host), 0);
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// Holds a host function until it is let go, and looks whether it still lives then.
struct HeldState {
  std::atomic<bool> entered{false}, let_go{false}, destroyed{false}, survived{false}, left{false};
};
class HeldWork final : public Work {
 public:
  explicit HeldWork(HeldState& state) : state_(state) {}
  ~HeldWork() override { state_.destroyed = true; }
  void run(DataErrors&) noexcept override {
    HeldState& state = state_;
    state.entered = true;
    while (!state.let_go) std::this_thread::yield();
    state.survived = !state.destroyed;
    state.left = true;
  }

 private:
  HeldState& state_;
};

TEST_F(CudaFailure, AHostFunctionThatRunsKeepsItsWork) {
  static HeldState state;
  aclrtStream healthy = nullptr;
  ASSERT_EQ(aclrtCreateStream(&healthy), 0);
  ASSERT_EQ(aclgrad_enqueue("aclnnTest", healthy, new HeldWork(state), nullptr), 0);
  while (!state.entered) std::this_thread::yield();
  fail_device();
  EXPECT_EQ(aclrtSynchronizeStream(healthy), 507015);
  take_message();
  EXPECT_EQ(aclrtStreamQuery(healthy, nullptr), 100000);
  take_message();
  state.let_go = true;
  while (!state.left) std::this_thread::yield();
  EXPECT_TRUE(state.survived);
  reset_device();
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// The last one: the device stays as it is.
TEST_F(CudaFailure, ThatAResetDoesNotMendStays) {
  fail_device();
  emulated::refuse_resets(true);
  EXPECT_EQ(aclrtResetDevice(0), 507015);
  expect_cause("aclrtResetDevice");
  EXPECT_EQ(aclrtSetDevice(0), 507015);
  expect_cause("aclrtSetDevice", "a new process");
}

}  // namespace
}  // namespace aclgrad::test

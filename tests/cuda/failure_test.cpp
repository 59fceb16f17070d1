// SPDX-License-Identifier: Apache-2.0
// Devices that fail for good, and calls of CUDA that fail once. On the emulated devices only: a
// real one may take others with it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "faults.h"
#include "kernels/cuda/launch.cuh"
#include "runtime/services.h"
#include "support/device.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

__global__ void touch(int* at) { *at = 1; }

// A multiple of what allocations align to.
constexpr size_t kBytes = 256;

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
void expect_cause(const std::string& function, const std::string& way_out = "aclrtResetDevice") {
  const std::string message = take_message();
  for (const std::string& part : {function, std::string("cudaErrorIllegalAddress"), way_out}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

class CudaFailure : public testing::Test {
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

  using PhaseOne = std::function<aclnnStatus(uint64_t*, aclOpExecutor**)>;
  void expect_calls_may_fail(const std::string& name, const std::function<PhaseOne()>& make,
                             Execute phase_two);

  aclrtStream stream_ = nullptr;
};

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

// What CUDA refuses for once is told in its words; it is no lack of memory unless CUDA says so.
TEST_F(CudaFailure, ARefusalHasTheWordsOfCuda) {
  void* memory = allocate(64);
  void* made = nullptr;
  aclrtEvent event = nullptr;
  aclrtStream streams[64] = {};
  int local = 0;
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(aclrtCreateEvent(&event), 0);
  struct Row {
    const char* function;
    std::function<aclError()> call;
  };
  const Row rows[] = {
      {"aclrtMalloc", [&] { return aclrtMalloc(&made, 4 << 20, ACL_MEM_MALLOC_HUGE_FIRST); }},
      {"aclrtMallocHost", [&] { return aclrtMallocHost(&made, 4 << 20); }},
      {"aclrtCreateStream",
       [&] {
         aclError status = 0;  // until none is left that was used before
         for (size_t i = 0; i < 64 && status == 0; ++i) status = aclrtCreateStream(&streams[i]);
         for (aclrtStream& each : streams) {
           if (each != nullptr) aclrtDestroyStream(std::exchange(each, nullptr));
         }
         return status;
       }},
      {"aclrtCreateContext", [&] { return aclrtCreateContext(&made, 0); }},
      {"aclrtRecordEvent", [&] { return aclrtRecordEvent(event, stream_); }},
      {"aclrtMemset", [&] { return aclrtMemset(memory, 64, 1, 64); }},
      {"aclrtMemcpy", [&] { return aclrtMemcpy(memory, 4, &local, 4, ACL_MEMCPY_HOST_TO_DEVICE); }},
      {"aclrtMemsetAsync", [&] { return aclrtMemsetAsync(memory, 64, 1, 64, stream_); }},
      {"aclrtGetMemInfo", [&] { return aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total); }},
  };
  // The first one also makes the stream for copies.
  for (const cudaError_t error : {cudaErrorInvalidResourceHandle, cudaErrorMemoryAllocation}) {
    for (const Row& row : rows) {
      SCOPED_TRACE(testing::Message() << row.function << " and error " << error);
      // An allocation is tried twice.
      const bool twice = std::string(row.function).starts_with("aclrtMalloc");
      emulated::fail_calls(1, twice ? 2 : 1, error);
      const aclError status = row.call();
      emulated::fail_call(0, cudaSuccess);
      EXPECT_EQ(status, error == cudaErrorMemoryAllocation ? 207001 : 507000);
      const std::string message = take_message();
      for (const char* const part : {row.function, cudaGetErrorName(error)}) {
        EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
      }
      EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
    }
  }
  EXPECT_EQ(aclrtDestroyEvent(event), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
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

// Else every wait for the device makes the next scratch as slow as the first.
TEST_F(CudaFailure, ScratchIsKept) {
  cudaMemPool_t pool = nullptr;
  ASSERT_EQ(cudaDeviceGetDefaultMemPool(&pool, 0), cudaSuccess);
  uint64_t kept = 0;
  ASSERT_EQ(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept), cudaSuccess);
  EXPECT_GE(kept, uint64_t{1} << 20);
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// CUB, for one, asks for the last error and takes it for its own.
TEST_F(CudaFailure, ARefusedLaunchLeavesNoLastError) {
  class Launch final : public Work {
   public:
    explicit Launch(CudaAnswer (*launch)(const CudaQueue&)) : launch_(launch) {}
    void run(DataErrors&) noexcept override {}
    Status submit(const char*, DeviceQueue& queue) override {
      EXPECT_EQ(launch_({queue.native(), queue.native_device()}), cudaErrorInvalidConfiguration);
      EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
      return kOk;
    }

   private:
    CudaAnswer (*launch_)(const CudaQueue&);
  };
  const auto as_answer = [](const CudaQueue& queue) -> CudaAnswer {
    return cuda::launch(queue, {1, 2048}, touch, nullptr);
  };
  EXPECT_EQ(aclgrad_enqueue("aclnnTest", stream_, new Launch(as_answer), nullptr), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream_), 0);
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// Every call of CUDA that an operator makes fails once: phase two answers what the contract has for
// that, in the name of the operator, and afterwards the operator runs.
void CudaFailure::expect_calls_may_fail(const std::string& name,
                                        const std::function<PhaseOne()>& make, Execute phase_two) {
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}) {
    bool called = true;
    for (int call = 1; call < 100 && called; ++call) {
      SCOPED_TRACE(testing::Message() << "error " << error << " at call " << call);
      const PhaseOne phase_one = make();
      uint64_t size = 0;
      aclOpExecutor* executor = nullptr;
      ASSERT_EQ(phase_one(&size, &executor), 0) << take_message();
      void* const workspace = allocate(size);
      emulated::fail_call(call, error);
      const aclnnStatus status = phase_two(workspace, size, executor, stream_);
      called = emulated::call_failed();
      emulated::fail_call(0, cudaSuccess);
      if (!called) {
        EXPECT_EQ(status, 0);
      } else if (error == cudaErrorMemoryAllocation) {
        EXPECT_TRUE(status == 207001 || status == 361001) << status;
      } else {
        EXPECT_EQ(status, 361001);
        expect_cause(name);
      }
      take_message();
      const bool failed = called && error == cudaErrorIllegalAddress;
      EXPECT_EQ(aclrtSynchronizeStream(stream_), failed ? 507015 : 0);
      take_message();
      if (failed) {
        reset_device();
      } else {
        EXPECT_TRUE(run(phase_one, phase_two, stream_).ok());
      }
      EXPECT_EQ(aclrtFree(workspace), 0);
    }
    EXPECT_FALSE(called);
  }
}

TEST_F(CudaFailure, EveryCallOfAnOperatorMayFail) {
  const auto make = []() -> PhaseOne {
    const auto dy = std::make_shared<Tensor>(Dims{9000, 24}, ACL_FLOAT);
    const auto ends = std::make_shared<Tensor>(Dims{2}, ACL_INT64);
    const auto out = std::make_shared<Tensor>(Dims{2, 24}, ACL_FLOAT);
    ends->fill({4000.0, 9000.0});
    dy->fill_normal(1, 0.0, 1.0);
    return [=](uint64_t* size, aclOpExecutor** executor) {
      return aclnnGroupedBiasAddGradGetWorkspaceSize(dy->handle(), ends->handle(), out->handle(),
                                                     size, executor);
    };
  };
  expect_calls_may_fail("aclnnGroupedBiasAddGrad", make, aclnnGroupedBiasAddGrad);
  EXPECT_EQ(aclrtDestroyStream(stream_), 0);
}

// Its rows lie in more shared memory than a kernel may have unasked.
TEST_F(CudaFailure, EveryCallForALargeKernelMayFail) {
  const auto make = []() -> PhaseOne {
    const auto operand = [](Dims dims) {
      const auto tensor = std::make_shared<Tensor>(std::move(dims), ACL_FLOAT);
      tensor->fill_normal(1, 1.0, 0.1);
      return tensor;
    };
    const auto dy = operand({4, 8192}), x = operand({4, 8192}), gamma = operand({8192});
    const auto mean = operand({4, 1}), rstd = operand({4, 1});
    const auto dx = operand({4, 8192}), dgamma = operand({8192}), dbeta = operand({8192});
    return [=](uint64_t* size, aclOpExecutor** executor) {
      const IntArray normalized({8192});
      const BoolArray mask({true, true, true});
      return aclnnLayerNormBackwardGetWorkspaceSize(
          dy->handle(), x->handle(), normalized.handle(), mean->handle(), rstd->handle(),
          gamma->handle(), gamma->handle(), mask.handle(), dx->handle(), dgamma->handle(),
          dbeta->handle(), size, executor);
    };
  };
  expect_calls_may_fail("aclnnLayerNormBackward", make, aclnnLayerNormBackward);
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

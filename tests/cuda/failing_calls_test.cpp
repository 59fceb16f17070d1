// SPDX-License-Identifier: Apache-2.0
// Calls of CUDA that fail once, below the runtime's functions and below operators. On the emulated
// devices only, where a test says which call fails.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "failure.h"
#include "faults.h"
#include "kernels/cuda/launch.cuh"
#include "runtime/services.h"
#include "support/device.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

class CudaFailure : public FailureTest {
 protected:
  using PhaseOne = std::function<aclnnStatus(uint64_t*, aclOpExecutor**)>;
  void expect_calls_may_fail(const std::string& name, const std::function<PhaseOne()>& make,
                             Execute phase_two);
};

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

}  // namespace
}  // namespace aclgrad::test

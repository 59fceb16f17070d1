// SPDX-License-Identifier: Apache-2.0
// Every call of CUDA that an operator makes fails once, on the emulated devices: the call says what
// failed and loses no memory, and the same call works afterwards.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>

#include "faults.h"
#include "protocol/planned.h"
#include "runtime/services.h"

namespace aclgrad::test {
namespace {

// cudaErrorInvalidValue and cudaErrorLaunchOutOfResources: errors of one call.
constexpr cudaError_t kOtherErrors[] = {static_cast<cudaError_t>(1), static_cast<cudaError_t>(701)};

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return free;
}

class Faults : public EachOperator {
 protected:
  void SetUp() override {
    use_device();
    if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU was chosen";
    ASSERT_EQ(aclrtCreateStream(&stream_), 0) << take_message();
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_EQ(aclrtDestroyStream(stream_), 0);
    }
  }

  static void expect_said(const Planned& planned, aclnnStatus status, cudaError_t error) {
    const std::string message = take_message();
    // There was room the second time, or memory could not be given back.
    if (status == 0) return;
    if (error == cudaErrorMemoryAllocation) {
      EXPECT_TRUE(status == 207001 || status == 361001) << status << message;
      return;
    }
    EXPECT_EQ(status, 361001) << message;
    expect_message(message, {planned.problem.function, cudaGetErrorName(error)});
  }

  void expect_calls_may_fail(Arrangement arrangement, cudaError_t error) {
    bool failed = true;
    for (int call = 1; call < 200 && failed; ++call) {
      SCOPED_TRACE(testing::Message() << cudaGetErrorName(error) << " at call " << call);
      Planned planned(row(), arrangement);
      planned.problem.poison_outputs();
      EXPECT_EQ(aclrtSynchronizeDevice(), 0);
      const size_t before = free_bytes();
      emulated::fail_call(call, error);
      const aclnnStatus status = planned.execute(stream_);
      failed = emulated::call_failed();
      emulated::fail_call(0, cudaSuccess);
      if (failed) {
        expect_said(planned, status, error);
      } else {
        EXPECT_EQ(status, 0) << take_message();
      }
      EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << take_message();
      if (!failed || status != 0) {
        EXPECT_GE(free_bytes(), before) << "more is free where caches were given back";
      }
      if (status == 0) {
        EXPECT_TRUE(planned.problem.result() == expected());
      }
      planned.replan();
      ASSERT_EQ(planned.execute(stream_), 0) << take_message();
      EXPECT_EQ(aclrtSynchronizeStream(stream_), 0) << take_message();
      EXPECT_TRUE(planned.problem.result() == expected());
      EXPECT_TRUE(planned.problem.guards_intact());
      EXPECT_TRUE(planned.workspace->guards_intact());
    }
    EXPECT_FALSE(failed);
  }

  aclrtStream stream_ = nullptr;
};

TEST_P(Faults, MemoryIsShort) {
  for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
    expect_calls_may_fail(arrangement, cudaErrorMemoryAllocation);
  }
}

TEST_P(Faults, CudaRefuses) {
  for (const cudaError_t error : kOtherErrors) {
    for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
      expect_calls_may_fail(arrangement, error);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, Faults, testing::Range(size_t{0}, small_problem_count()),
                         row_name);

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// The two phases on right arguments: the workspace, tensors that go early, threads, data errors and
// the verbose line.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/target.h"
#include "runtime/services.h"
#include "scale_add.h"
#include "support/arrangement.h"
#include "support/stream_threads.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

TEST(Phases, WorkspaceIsWhatWasBookedAndPacked) {
  Tensor x({4, 6}, ACL_FLOAT, Arrangement::kTransposed);
  Tensor out({4, 6}, ACL_FLOAT);
  x.fill_integers(8, -9, 9);
  const auto size = [&](Layout layout, int64_t book) {
    const Planned made =
        planned({.x = x.handle(), .out = out.handle(), .layout = layout, .book = book});
    EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 0);
    return made.size;
  };
  EXPECT_EQ(size(kAnyStrides, 0), 0u);
  EXPECT_EQ(size(kAnyStrides, 1), 64u + 63u);
  EXPECT_EQ(size(kAnyStrides, 100), 128u + 63u);
  EXPECT_EQ(size(kDense, 0), 128u + 63u);  // 24 floats of x
  EXPECT_EQ(size(kDense, 65), 256u + 63u);
}

TEST(Phases, WorkspaceMayBeMisalignedAndLargerThanPlanned) {
  Tensor x({40, 6}, ACL_FLOAT, Arrangement::kTransposed);
  Tensor out({40, 6}, ACL_FLOAT, Arrangement::kTransposed);
  x.fill_integers(9, -9, 9);
  const DeviceMemory memory(1 << 16);
  for (const uint64_t lead : {0u, 1u, 31u, 63u}) {
    out.poison();
    const Planned made =
        planned({.x = x.handle(), .out = out.handle(), .layout = kDense, .book = 100});
    ASSERT_EQ(execute(static_cast<uint8_t*>(memory.get()) + lead, made.size + 1000, made.executor,
                      stream()),
              0)
        << take_message();
    ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
    EXPECT_EQ(out.values(), scaled(x.values(), {}));
  }
}

// So that phase two does not have to.
TEST(Phases, PhaseOneWakesAStreamThatFellIdle) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "streams of a GPU have no threads";
  Tensor x({4, 6}, ACL_FLOAT);
  Tensor out({4, 6}, ACL_FLOAT);
  x.fill_integers(8, -9, 9);
  ASSERT_TRUE(run_scale_add({.x = x.handle(), .out = out.handle()}).ok());
  const Sleeps before = sleeps_when_parked();
  ASSERT_FALSE(before.empty());
  const Planned made = planned({.x = x.handle(), .out = out.handle()});
  EXPECT_NE(sleeps_when_parked(), before);
  EXPECT_EQ(aclDestroyAclOpExecutor(made.executor), 0);
}

// The planned size counts, not the one passed: an allocation that holds the plan is enough.
TEST(Phases, WorkspaceSizePassedIsNotChecked) {
  Tensor x({4, 6}, ACL_FLOAT, Arrangement::kTransposed);
  Tensor out({4, 6}, ACL_FLOAT);
  x.fill_integers(10, -9, 9);
  const Planned made = planned({.x = x.handle(), .out = out.handle(), .layout = kDense});
  const DeviceMemory memory(made.size);
  EXPECT_EQ(execute(memory.get(), uint64_t{1} << 62, made.executor, stream()), 0) << take_message();
  ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
  EXPECT_EQ(out.values(), scaled(x.values(), {}));
}

TEST(Phases, TensorsMayGoRightAfterPhaseTwo) {
  Tensor out({2000}, ACL_FLOAT);
  std::vector<double> expected;
  for (int i = 0; i < 100; ++i) {
    Tensor x({2000}, ACL_FLOAT);
    x.fill_integers(static_cast<uint64_t>(i), -99, 99);
    aclTensor* handle = out.make_handle();
    const Planned made = planned({.x = x.handle(), .out = handle, .book = 100});
    const DeviceMemory memory(made.size);
    ASSERT_EQ(execute(memory.get(), made.size, made.executor, stream()), 0) << take_message();
    x.destroy_handle();
    EXPECT_EQ(aclDestroyTensor(handle), 0);
    expected = scaled(x.values(), {});
  }  // its memory and the workspace's are freed while the work may still wait
  ASSERT_EQ(aclrtSynchronizeStream(stream()), 0);
  EXPECT_EQ(out.values(), expected);
}

TEST(Phases, EachOnItsOwnThread) {
  Tensor x({100}, ACL_FLOAT), out({100}, ACL_FLOAT);
  x.fill_integers(12, -99, 99);
  const aclrtStream on = stream();
  Planned made;
  std::thread([&] { made = planned({.x = x.handle(), .out = out.handle()}); }).join();
  aclnnStatus status = -1;
  std::thread([&] { status = execute(nullptr, 0, made.executor, on); }).join();
  EXPECT_EQ(status, 0);
  ASSERT_EQ(aclrtSynchronizeStream(on), 0);
  EXPECT_EQ(out.values(), scaled(x.values(), {}));
}

TEST(Phases, ManyThreadsWithAStreamEach) {
  std::vector<std::thread> threads;
  std::vector<std::string> failures(4);
  for (size_t t = 0; t < failures.size(); ++t) {
    threads.emplace_back([&failures, t] {
      use_device();
      aclrtStream own = nullptr;
      require(aclrtCreateStream(&own), "aclrtCreateStream");
      for (uint64_t i = 0; i < 200; ++i) {
        Tensor x({30, 5}, ACL_FLOAT, Arrangement::kTransposed), out({30, 5}, ACL_FLOAT);
        x.fill_integers(i, -99, 99);
        const Planned made =
            planned({.x = x.handle(), .out = out.handle(), .layout = kDense, .book = 10});
        const DeviceMemory memory(made.size);
        if (execute(memory.get(), made.size, made.executor, own) != 0) failures[t] = take_message();
        if (aclrtSynchronizeStream(own) != 0) failures[t] = take_message();
        if (out.values() != scaled(x.values(), {})) failures[t] = "wrong values";
      }
      aclrtDestroyStream(own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(Phases, DataErrorsReachTheSynchronise) {
  Tensor x({4}, ACL_FLOAT), out({4}, ACL_FLOAT);
  x.fill_integers(13, -9, 9);
  const Outcome outcome = run_scale_add({.x = x.handle(), .out = out.handle(), .report = true});
  EXPECT_EQ(outcome.phase_two, 0);
  EXPECT_EQ(outcome.synchronise, ACL_ERROR_RT_AICORE_EXCEPTION);
  expect_message(outcome.message, {"aclnnScaleAdd: as ordered"});
  EXPECT_EQ(out.values(), scaled(x.values(), {}));
  EXPECT_EQ(aclrtSynchronizeStream(stream()), 0);
}

TEST(Phases, TheVerboseLineTellsProblemTimeAndBytes) {
  const char* verbose = std::getenv("ACLGRAD_VERBOSE");
  if (verbose == nullptr || std::string(verbose) != "1") {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    const std::string command =
        "ACLGRAD_VERBOSE=1 '" + self +
        "' --gtest_filter=Phases.TheVerboseLineTellsProblemTimeAndBytes 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    std::string output;
    char part[256];
    while (std::fgets(part, sizeof part, pipe) != nullptr) output += part;
    EXPECT_EQ(pclose(pipe), 0) << output;
    // One line a run: the first in place of the views, the second packed, 96 bytes each way.
    int lines = 0;
    for (size_t at = output.find("aclgrad: "); at != std::string::npos;
         at = output.find("aclgrad: ", at + 1), ++lines) {
      char device[8] = "", target[32] = "";
      double time = -1.0;
      int packed = -1;
      ASSERT_EQ(std::sscanf(output.c_str() + at,
                            "aclgrad: scale_add/f32/24 %7s %31s time %lf us bytes 1234 packed %d",
                            device, target, &time, &packed),
                4)
          << output;
      const bool on_cuda = aclgrad_has_device_queues();
      EXPECT_STREQ(device, on_cuda ? "cuda" : "cpu");
      EXPECT_STREQ(target, on_cuda ? "gpu" : aclgrad_active_target());
      EXPECT_GE(time, 0.0);
      EXPECT_EQ(packed, lines == 0 ? 0 : 192) << output;
    }
    EXPECT_EQ(lines, 2) << output;
    return;
  }
  Tensor x({4, 6}, ACL_FLOAT, Arrangement::kTransposed);
  Tensor out({4, 6}, ACL_FLOAT, Arrangement::kTransposed);
  x.fill_integers(14, -9, 9);
  EXPECT_TRUE(run_scale_add({.x = x.handle(), .out = out.handle()}).ok());
  EXPECT_TRUE(run_scale_add({.x = x.handle(), .out = out.handle(), .layout = kDense}).ok());
}

}  // namespace
}  // namespace aclgrad::test

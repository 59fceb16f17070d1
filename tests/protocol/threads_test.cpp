// SPDX-License-Identifier: Apache-2.0
// Many threads at once, and the floating-point environment of the calling one.
#include <cfenv>
#include <thread>

#include "protocol/planned.h"
#include "support/float_control.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

TEST(Threads, ManyWithAStreamEach) {
  constexpr size_t kThreads = 8;
  constexpr int kCalls = 40;
  std::vector<std::vector<uint8_t>> expected;
  for (size_t row = 0; row < small_problem_count(); ++row) expected.push_back(expected_result(row));
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      use_device();
      OwnStream own;
      for (int call = 0; call < kCalls; ++call) {
        const size_t row = (thread + static_cast<size_t>(call)) % small_problem_count();
        const Arrangement arrangement =
            call % 2 == 0 ? Arrangement::kContiguous : Arrangement::kInnerStrided;
        const Planned planned(row, arrangement);
        const bool good = planned.execute(own.get()) == kOk &&
                          aclrtSynchronizeStream(own.get()) == ACL_SUCCESS &&
                          planned.problem.result() == expected[row];
        if (!good) failures[thread] = planned.problem.function + ": " + take_message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

TEST(Threads, SharedInputsAndOneStream) {
  const SmallProblem shared = make_small_problem(0);
  const std::vector<uint8_t> expected = expected_result(0);
  OwnStream own;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([&, thread] {
      use_device();
      SmallProblem mine = make_small_problem(0);
      for (size_t i = 0; i < mine.first_output(); ++i) mine.tensors[i] = shared.tensors[i];
      for (int call = 0; call < 25; ++call) {
        mine.poison_outputs();
        uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        if (mine.plan(&size, &executor) != kOk) ++wrong[thread];
        const Workspace workspace(size);
        if (mine.execute(workspace.get(), size, executor, own.get()) != kOk) ++wrong[thread];
        if (aclrtSynchronizeStream(own.get()) != ACL_SUCCESS) ++wrong[thread];
        if (mine.result() != expected) ++wrong[thread];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

TEST(Threads, TheirNumberDoesNotMatter) {
  for (size_t row = 0; row < small_problem_count(); ++row) {
    const std::vector<uint8_t> expected = expected_result(row);
    for_each_thread_count([&](int) { EXPECT_TRUE(expected_result(row) == expected); });
    for_each_target([&](const std::string&) { EXPECT_TRUE(expected_result(row) == expected); });
  }
}

// Flush-to-zero and denormals-are-zero on, rounding upward; restores what was there.
class OddFloatEnvironment {
 public:
  OddFloatEnvironment() {
    std::fesetround(FE_UPWARD);
    set_float_control(float_control() | kSubnormalsAreZero);
  }
  OddFloatEnvironment(const OddFloatEnvironment&) = delete;
  OddFloatEnvironment& operator=(const OddFloatEnvironment&) = delete;
  ~OddFloatEnvironment() {
    std::fesetround(FE_TONEAREST);
    set_float_control(float_control() & ~kSubnormalsAreZero);
  }
  static bool intact() {
    if ((float_control() & kSubnormalsAreZero) != kSubnormalsAreZero) return false;
    return std::fegetround() == FE_UPWARD;
  }
};

TEST(FloatEnvironment, IsKeptAndWithoutInfluence) {
  for (size_t row = 0; row < small_problem_count(); ++row) {
    const std::vector<uint8_t> expected = expected_result(row);
    for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
      const Planned planned(row, arrangement);
      uint64_t size = 0;
      aclOpExecutor* executor = nullptr;
      int status[3] = {kNotReached, kNotReached, kNotReached};
      bool intact = false;
      {
        const OddFloatEnvironment odd;
        status[0] = planned.problem.plan(&size, &executor);
        status[1] = planned.problem.execute(planned.workspace->get(), size, executor, stream());
        status[2] = aclrtSynchronizeStream(stream());
        intact = OddFloatEnvironment::intact();
      }
      EXPECT_TRUE(intact) << planned.problem.function;
      EXPECT_EQ(status[0], kOk);
      EXPECT_EQ(status[1], kOk);
      EXPECT_EQ(status[2], ACL_SUCCESS);
      EXPECT_TRUE(planned.problem.result() == expected) << planned.problem.function;
      EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

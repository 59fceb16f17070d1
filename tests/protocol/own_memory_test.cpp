// SPDX-License-Identifier: Apache-2.0
// What calls take from the heap: phase one one piece at most, phase two nothing. Operator new is
// this program's own: it counts the calls of each thread.
#include <cstdlib>
#include <new>

#include "protocol/planned.h"

namespace {

thread_local int pieces_taken = 0;

}  // namespace

// None is inline: g++ 12 would see free() of what this program's operator new gave, and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  ++pieces_taken;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace aclgrad::test {
namespace {

using OwnMemory = EachOperator;

template <class Call>
int pieces_of(Call&& call) {
  const int before = pieces_taken;
  call();
  return pieces_taken - before;
}

// What is kept between calls is there after the first ones.
constexpr int kCalls = 5;
constexpr int kWarm = 2;

TEST_P(OwnMemory, OneShotExecutors) {
  Planned planned(row());
  const Handles handles = planned.problem.handles();
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  for (int i = 0; i < kCalls; ++i) {
    int status = kNotReached;
    const int plan_pieces = pieces_of(
        [&] { status = planned.problem.plan_with(handles, &planned.size, &planned.executor); });
    ASSERT_EQ(status, kOk) << take_message();
    const int run_pieces = pieces_of([&] {
      status = planned.problem.execute(planned.workspace->get(), planned.size, planned.executor,
                                       stream());
    });
    ASSERT_EQ(status, kOk) << take_message();
    ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
    if (i < kWarm) continue;
    EXPECT_LE(plan_pieces, 1);
    EXPECT_EQ(run_pieces, 0);
  }
}

TEST_P(OwnMemory, RunsOfARepeatableExecutor) {
  const Planned planned(row());
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(planned.executor), kOk) << take_message();
  for (int i = 0; i < kCalls; ++i) {
    int status = kNotReached;
    const int pieces = pieces_of([&] {
      status = planned.problem.execute(planned.workspace->get(), planned.size, planned.executor,
                                       stream());
    });
    ASSERT_EQ(status, kOk) << take_message();
    ASSERT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
    if (i >= kWarm) {
      EXPECT_EQ(pieces, 0);
    }
  }
  EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kOk);
}

INSTANTIATE_TEST_SUITE_P(Operators, OwnMemory, ::testing::Range(size_t{0}, small_problem_count()),
                         row_name);

}  // namespace
}  // namespace aclgrad::test

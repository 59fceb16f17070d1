// SPDX-License-Identifier: Apache-2.0
// What calls take from the heap, on all threads: phase one one piece at most, phase two, up to the
// synchronise, nothing. This program's own malloc() and its kin count; under a sanitizer, which has
// those of its own, operator new does.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <thread>

#include "protocol/planned.h"

namespace {

std::atomic<int> pieces_taken = 0;

}  // namespace

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  ++pieces_taken;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++pieces_taken;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  ++pieces_taken;
  return __libc_realloc(memory, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  ++pieces_taken;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = aligned_alloc(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}
#else
// None is inline: g++ 12 would see free() of what this program's operator new gave, and warn.
[[gnu::noinline]] void* operator new(size_t size) {
  ++pieces_taken;
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace aclgrad::test {
namespace {

using OwnMemory = EachOperator;

template <class Call>
int pieces_of(Call&& call) {
  const int before = pieces_taken;
  call();
  return pieces_taken - before;
}

TEST(PiecesOfMemory, AreCountedOnEveryThread) {
  const auto take = [] { ::operator delete(::operator new(1)); };
  EXPECT_EQ(pieces_of(take), 1);
  EXPECT_GE(pieces_of([&] { std::thread(take).join(); }), 2);  // one is the thread
}

// Handles that no call has seen before.
struct OwnHandles {
  explicit OwnHandles(const SmallProblem& problem) {
    for (const auto& tensor : problem.tensors) handles.push_back(tensor->make_handle());
  }
  ~OwnHandles() {
    for (const aclTensor* handle : handles) EXPECT_EQ(aclDestroyTensor(handle), ACL_SUCCESS);
  }
  OwnHandles(const OwnHandles&) = delete;
  OwnHandles& operator=(const OwnHandles&) = delete;

  Handles handles;
};

// What is kept between calls is there after the first ones.
constexpr int kCalls = 5;
constexpr int kWarm = 2;

TEST_P(OwnMemory, OneShotExecutors) {
  Planned planned(row());
  ASSERT_EQ(planned.execute(), kOk) << take_message();
  for (int i = 0; i < kCalls; ++i) {
    const OwnHandles own(planned.problem);
    int status = kNotReached, done = kNotReached;
    const int plan_pieces = pieces_of(
        [&] { status = planned.problem.plan_with(own.handles, &planned.size, &planned.executor); });
    ASSERT_EQ(status, kOk) << take_message();
    const int run_pieces = pieces_of([&] {
      status = planned.problem.execute(planned.workspace->get(), planned.size, planned.executor,
                                       stream());
      done = aclrtSynchronizeStream(stream());
    });
    ASSERT_EQ(status, kOk) << take_message();
    ASSERT_EQ(done, ACL_SUCCESS) << take_message();
    if (i < kWarm) continue;
    EXPECT_LE(plan_pieces, 1);
    EXPECT_EQ(run_pieces, 0);
  }
}

TEST_P(OwnMemory, RunsOfARepeatableExecutor) {
  const Planned planned(row());
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(planned.executor), kOk) << take_message();
  for (int i = 0; i < kCalls; ++i) {
    int status = kNotReached, done = kNotReached;
    const int pieces = pieces_of([&] {
      status = planned.problem.execute(planned.workspace->get(), planned.size, planned.executor,
                                       stream());
      done = aclrtSynchronizeStream(stream());
    });
    ASSERT_EQ(status, kOk) << take_message();
    ASSERT_EQ(done, ACL_SUCCESS) << take_message();
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

// SPDX-License-Identifier: Apache-2.0
// What streams cost the machine: how many threads work at once, and how often one is put to sleep.
#include <dlfcn.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "bench/bench.h"
#include "kernels/cpu/parallel.h"
#include "protocol/gate.h"

namespace aclgrad {
namespace {

using Body = void (*)(void* context, int64_t block);

// While a Watch lives it sees every block of every parallel loop. The first loops, one of each
// stream, wait for each other, and blocks last long enough that they meet on any machine.
class Watch {
 public:
  explicit Watch(int streams) : streams_(streams), first_(streams) { in_use = this; }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { in_use = nullptr; }

  void begin_loop() {
    if (loops_.fetch_add(1) < streams_) first_.arrive_and_wait();
  }
  void in_block(Body body, void* context, int64_t block) {
    constexpr auto kShort = std::chrono::milliseconds(1);
    const int now = inside_.fetch_add(1) + 1;
    int most = most_.load();
    while (most < now && !most_.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(kShort);
    body(context, block);
    inside_.fetch_sub(1);
    blocks_.fetch_add(1);
  }
  // Threads inside blocks at the same time, and the blocks in all.
  int most() const { return most_.load(); }
  int blocks() const { return blocks_.load(); }

  static inline Watch* in_use = nullptr;

 private:
  int streams_;
  std::latch first_;
  std::atomic<int> loops_{0}, inside_{0}, most_{0}, blocks_{0};
};

struct Watched {
  Body body;
  void* context;
};

}  // namespace

// Stands before the library's own, which every parallel loop of two blocks or more calls.
extern "C" void aclgrad_parallel(int64_t blocks, Body body, void* context) noexcept {
  using Parallel = void (*)(int64_t, Body, void*);
  static const auto own = reinterpret_cast<Parallel>(dlsym(RTLD_NEXT, "aclgrad_parallel"));
  if (Watch::in_use == nullptr) {
    own(blocks, body, context);
    return;
  }
  Watch::in_use->begin_loop();
  Watched watched{body, context};
  own(
      blocks,
      [](void* of, int64_t block) {
        const auto* loop = static_cast<const Watched*>(of);
        Watch::in_use->in_block(loop->body, loop->context, block);
      },
      &watched);
}

namespace bench {
namespace {

// A problem with its workspace, on a stream.
class Queued {
 public:
  Queued(const std::string& name, aclrtStream stream) : stream_(stream) {
    const Job job = parse_job(name);
    problem_ = job.op->make(parse_dtype(job.dtype), job.shape);
    require(aclDestroyAclOpExecutor(plan()), "aclDestroyAclOpExecutor");
    if (size_ > 0) require(aclrtMalloc(&workspace_, size_, ACL_MEM_MALLOC_HUGE_FIRST), "malloc");
  }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;
  ~Queued() {
    wait();
    if (workspace_ != nullptr) static_cast<void>(aclrtFree(workspace_));
  }
  void queue() { require(problem_.execute(workspace_, size_, plan(), stream_), "phase two"); }
  void wait() const { require(aclrtSynchronizeStream(stream_), "aclrtSynchronizeStream"); }

 private:
  aclOpExecutor* plan() {
    aclOpExecutor* executor = nullptr;
    require(problem_.plan(&size_, &executor), "phase one");
    return executor;
  }

  aclrtStream stream_;
  Problem problem_;
  uint64_t size_ = 0;
  void* workspace_ = nullptr;
};

TEST(Streams, BusyAtOnceTheyShareTheThreads) {
#if defined(ACLGRAD_THREADS_TWIN)
  GTEST_SKIP() << "the plain threads in oneTBB's place start anew in every loop";
#else
  const int threads_before = aclgrad_threads();
  for (const int threads : {2, 3}) {
    aclgrad_use_threads(threads);
    for (const int streams : {2, 3, 5}) {
      constexpr int kCalls = 2;
      constexpr int kSlabs = 64;  // of 64 rows
      Watch watch(streams);
      std::vector<std::thread> callers;
      for (int i = 0; i < streams; ++i) {
        callers.emplace_back([] {
          const test::OwnStream own;
          Queued queued("layer_norm_backward/f32/4096x64", own.get());
          for (int call = 0; call < kCalls; ++call) queued.queue();
          queued.wait();
        });
      }
      for (std::thread& caller : callers) caller.join();
      EXPECT_LE(watch.most(), threads) << streams << " streams";
      EXPECT_GE(watch.blocks(), streams * kCalls * kSlabs);
    }
  }
  aclgrad_use_threads(threads_before);
#endif
}

// Of the whole process.
int64_t times_put_to_sleep() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

// The best turn counts: a stream that finds nothing to do meanwhile goes to sleep, and how often it
// does depends on what else the machine has to do.
TEST(Streams, AThousandQueuedOperatorsCostFewThreadSwitches) {
  constexpr int kOperators = 1000;
  constexpr int kTurns = 5;
  constexpr int64_t kMost = kOperators / 10;
  const test::OwnStream own;
  Queued queued("grouped_bias_add_grad/f32/16x64-g4", own.get());
  int64_t fewest = kOperators;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t before = times_put_to_sleep();
    for (int i = 0; i < kOperators; ++i) queued.queue();
    queued.wait();
    fewest = std::min(fewest, times_put_to_sleep() - before);
  }
  EXPECT_LE(fewest, kMost);
}

}  // namespace
}  // namespace bench
}  // namespace aclgrad

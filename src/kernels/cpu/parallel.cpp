// SPDX-License-Identifier: Apache-2.0
// The only file that names oneTBB. Under ThreadSanitizer a twin on std::thread takes its place: the
// packaged oneTBB is not instrumented, and silencing its false reports would hide our own races.
#include "kernels/cpu/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>

#include "base/float_environment.h"
#include "base/knobs.h"
#include "kernels/cpu/cache.h"

#if defined(ACLGRAD_THREADS_TWIN)
#include <vector>
#else
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>
#endif

namespace aclgrad {
namespace {

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int threads_at_start() {
  const int threads = threads_knob();
  return threads > 0 ? threads : usable_cpus();
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{threads_at_start()};
  return count;
}

// Blocks are claimed one at a time, so each runs exactly once even when starting helpers fails
// half-way, and uneven blocks balance themselves. Consecutive ones stay with a worker, because a
// core's prefetchers run ahead into the next block: two Zen 4 cores read 64 KiB by turns at 30
// GB/s, half of all each at 41.
class Loop {
 public:
  Loop(int64_t blocks, void (*body)(void*, int64_t), void* context, int workers)
      : body_(body), context_(context), runs_(static_cast<int>(run_count(blocks, workers))) {
    for (int i = 0; i < runs_; ++i) {
      run_[i].next.store(run_begin(blocks, runs_, i), std::memory_order_relaxed);
      run_[i].end = run_begin(blocks, runs_, i + 1);
    }
  }

  void work(int worker) {
    const DefaultFloatEnvironment environment;
    for (int i = 0; i < runs_; ++i) {
      Run& run = run_[(worker + i) % runs_];
      for (int64_t block = run.claim(); block < run.end; block = run.claim()) {
        body_(context_, block);
      }
    }
  }

 private:
  struct alignas(kLineBytes) Run {
    std::atomic<int64_t> next;
    int64_t end;
    int64_t claim() { return next.fetch_add(1, std::memory_order_relaxed); }
  };

  void (*body_)(void*, int64_t);
  void* context_;
  int runs_;
  Run run_[kMostRuns];
};

#if defined(ACLGRAD_THREADS_TWIN)

void run(Loop& loop, int workers) {
  std::vector<std::thread> helpers;
  try {
    for (int i = 1; i < workers; ++i) helpers.emplace_back([&loop, i] { loop.work(i); });
  } catch (...) {  // fewer helpers then
  }
  loop.work(0);
  for (std::thread& helper : helpers) helper.join();
}

#else

// One arena for the whole process, so that streams that are busy at once share its threads instead
// of multiplying them. Leaked: kernels may still run while static destructors do.
struct Scheduler {
  explicit Scheduler(int threads)
      : limit(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads)),
        arena(threads) {}
  tbb::global_control limit;
  tbb::task_arena arena;
};

std::atomic<Scheduler*>& scheduler_slot() {
  static std::atomic<Scheduler*> slot{nullptr};
  return slot;
}

Scheduler& scheduler(int threads) {
  Scheduler* current = scheduler_slot().load(std::memory_order_acquire);
  if (current != nullptr) return *current;
  auto* made = new Scheduler(threads);
  if (scheduler_slot().compare_exchange_strong(current, made, std::memory_order_acq_rel)) {
    return *made;
  }
  delete made;
  return *current;
}

void run(Loop& loop, int workers) {
  try {
    scheduler(aclgrad_threads()).arena.execute([&] {
      tbb::parallel_for(
          0, workers, [&loop](int worker) { loop.work(worker); }, tbb::simple_partitioner());
    });
  } catch (...) {  // no memory for tasks: this thread does what is left
  }
  loop.work(0);
}

#endif

}  // namespace

extern "C" {

int aclgrad_threads() noexcept { return thread_count().load(std::memory_order_relaxed); }

void aclgrad_use_threads(int n) noexcept {
  thread_count().store(std::clamp(n, 1, kMostThreads), std::memory_order_relaxed);
#if !defined(ACLGRAD_THREADS_TWIN)
  delete scheduler_slot().exchange(nullptr, std::memory_order_acq_rel);
#endif
}

void aclgrad_parallel(int64_t blocks, void (*body)(void*, int64_t), void* context) noexcept {
  const auto workers = static_cast<int>(std::min<int64_t>(blocks, aclgrad_threads()));
  Loop loop(blocks, body, context, std::max(workers, 1));
  if (workers <= 1) {
    loop.work(0);
  } else {
    run(loop, workers);
  }
}

}  // extern "C"

}  // namespace aclgrad

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

// Blocks are claimed one at a time through a shared counter, so each runs exactly once even when
// starting helpers fails half-way, and uneven blocks balance themselves.
struct Loop {
  int64_t blocks;
  void (*body)(void*, int64_t);
  void* context;
  std::atomic<int64_t> next{0};

  void work() {
    const DefaultFloatEnvironment environment;
    for (int64_t block = next.fetch_add(1, std::memory_order_relaxed); block < blocks;
         block = next.fetch_add(1, std::memory_order_relaxed)) {
      body(context, block);
    }
  }
};

#if defined(ACLGRAD_THREADS_TWIN)

void run(Loop& loop, int workers) {
  std::vector<std::thread> helpers;
  try {
    for (int i = 1; i < workers; ++i) helpers.emplace_back([&loop] { loop.work(); });
  } catch (...) {  // fewer helpers then
  }
  loop.work();
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
          0, workers, [&loop](int) { loop.work(); }, tbb::simple_partitioner());
    });
  } catch (...) {  // no memory for tasks: this thread does what is left
  }
  loop.work();
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
  Loop loop{blocks, body, context};
  const auto workers = static_cast<int>(std::min<int64_t>(blocks, aclgrad_threads()));
  if (workers <= 1) {
    loop.work();
  } else {
    run(loop, workers);
  }
}

}  // extern "C"

}  // namespace aclgrad

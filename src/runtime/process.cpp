// SPDX-License-Identifier: Apache-2.0
#include "runtime/process.h"

#include <unistd.h>

#include <cstdlib>

#include "runtime/callback.h"
#include "runtime/stream_registry.h"
#include "runtime/stream_threads.h"

namespace aclgrad::process {

constinit std::atomic<bool> exit_begun{false};

namespace {

// How long the end of the process waits for work that runs, and for the threads of streams.
constexpr int32_t kPatienceMilliseconds = 5000;

constinit std::atomic<pid_t> owner{0};
constinit std::atomic<bool> watched_again{false};

void on_exit() {
  // In a forked child the workers do not exist and a lock may be held for ever.
  if (owner.load(std::memory_order_relaxed) != getpid()) return;
  if (exit_begun.exchange(true, std::memory_order_acq_rel)) return;
  callbacks::interrupt_all();
  const Deadline deadline = Deadline::in_milliseconds(kPatienceMilliseconds);
  streams::interrupt_all(deadline);
  stream_threads::join_all(deadline);
}

[[gnu::constructor]] void watch_exit_from_load() {
  owner.store(getpid(), std::memory_order_relaxed);
  std::atexit(on_exit);
}

}  // namespace

void watch_exit() noexcept {
  if (watched_again.load(std::memory_order_relaxed)) return;
  if (!watched_again.exchange(true, std::memory_order_relaxed)) std::atexit(on_exit);
}

}  // namespace aclgrad::process

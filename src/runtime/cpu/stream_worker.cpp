// SPDX-License-Identifier: Apache-2.0
// The thread of a CPU stream: when it starts, looks for work, sleeps, is woken and ends.
#include <pthread.h>

#include <chrono>
#include <memory>
#include <new>
#include <system_error>

#include "runtime/cpu/awake_workers.h"
#include "runtime/cpu/stream.h"
#include "runtime/memory.h"
#include "runtime/process.h"
#include "runtime/stream_threads.h"

namespace aclgrad {
namespace {

using Clock = Deadline::Clock;

constexpr auto kPollInterval = std::chrono::microseconds(200);
// 15 polls of about 3 us each: eight streams that fall idle stay below 1 ms of CPU, and a wake-up
// after a pause this long is nothing beside the pause.
constexpr auto kPollWindow = std::chrono::milliseconds(3);
// While a waiting thread runs the queue there is nothing to find, and each look takes a core from
// the kernel.
constexpr auto kRareInterval = std::chrono::milliseconds(1);

}  // namespace

bool CpuStream::start_worker_locked() {
  try {
    stream_threads::start([self = shared_from_this()] { self->worker_loop(); });
    set_worker_locked(Worker::kAwake);
    return true;
  } catch (const std::system_error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void CpuStream::set_worker_locked(Worker state) noexcept {
  const bool was_awake = worker_ == Worker::kAwake;
  worker_ = state;
  if (was_awake == (state == Worker::kAwake)) return;
  if (was_awake) {
    awake_workers::note_asleep(state == Worker::kParked ? weak_from_this()
                                                        : std::weak_ptr<CpuStream>());
  } else {
    awake_workers::note_awake();
  }
}

void CpuStream::hurry() {
  const Lock lock(mutex_);
  hurry_locked();
}

void CpuStream::hurry_locked() {
  if (running_ || head_ == nullptr) return;
  if (worker_ == Worker::kNone) {
    start_worker_locked();
    return;
  }
  set_worker_locked(Worker::kAwake);
  kicked_ = true;
  wake_.notify_one();
}

void CpuStream::expect_work() noexcept {
  {
    // Whoever has the lock is at work.
    const Lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || worker_ != Worker::kParked || closed_) return;
    set_worker_locked(Worker::kAwake);
  }
  wake_.notify_one();
}

void CpuStream::worker_loop() {
  pthread_setname_np(pthread_self(), "aclgrad-stream");
  Lock lock(mutex_);
  uint64_t seen = 0;
  Clock::time_point quiet_since = Clock::now();
  while (!closed_ && !process::exiting()) {
    if (head_ != nullptr && !running_) {
      run_queue(lock, UINT64_MAX);
      lock.unlock();
      memory::reclaim_if_much();
      lock.lock();
      continue;
    }
    const uint64_t now_enqueued = enqueued_.load(std::memory_order_relaxed);
    if (now_enqueued != seen) {
      seen = now_enqueued;
      quiet_since = Clock::now();
    }
    if (Clock::now() - quiet_since < kPollWindow) {
      wake_.wait_for(lock, running_ ? kRareInterval : kPollInterval,
                     [this] { return kicked_ || closed_; });
    } else {
      set_worker_locked(Worker::kParked);
      wake_.wait(lock,
                 [this] { return worker_ == Worker::kAwake || closed_ || process::exiting(); });
      quiet_since = Clock::now();
    }
    kicked_ = false;
  }
  set_worker_locked(Worker::kNone);
}

void CpuStream::end_worker_locked() {
  closed_ = true;
  wake_.notify_one();
}

}  // namespace aclgrad

// SPDX-License-Identifier: Apache-2.0
#include "runtime/cpu/stream.h"

#include <algorithm>

#include "base/float_environment.h"
#include "runtime/memory.h"
#include "runtime/process.h"
#include "runtime/stream_threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace aclgrad {
namespace {

using Clock = Deadline::Clock;

// A wait that ends within this time costs no sleep.
constexpr auto kSpin = std::chrono::microseconds(5);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

CpuStream::~CpuStream() { drop_queue(); }

void CpuStream::drop_queue() {
  while (head_ != nullptr) {
    Work* const work = std::exchange(head_, head_->next);
    delete work;
  }
  tail_ = nullptr;
}

Status CpuStream::refusal(const char* function, Status closed) {
  return fail(closed,
              "%s: the stream takes no more work, it is being destroyed or the process is ending",
              function);
}

uint64_t CpuStream::enqueue(const char*, Work* work) {
  work->next = nullptr;
  work->ticket = memory::current_ticket();
  bool wake = false;
  bool run_here = false;
  uint64_t sequence = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!closed_ && !process::exiting()) {
      (head_ == nullptr ? head_ : tail_->next) = work;
      tail_ = work;
      sequence = enqueued_.load(std::memory_order_relaxed) + 1;
      note_ticket(work->ticket, sequence);
      enqueued_.store(sequence, std::memory_order_release);
      if (!running_ && worker_ != Worker::kAwake) {
        wake = worker_ == Worker::kParked;
        run_here = !wake && !start_worker_locked();
        if (wake) set_worker_locked(Worker::kAwake);
      }
    }
  }
  if (sequence == 0) delete work;
  if (wake) wake_.notify_one();
  // No thread could be made: the queue still has to make progress.
  if (run_here) wait(sequence, Deadline::never(), true);
  return sequence;
}

void CpuStream::note_ticket(uint64_t ticket, uint64_t sequence) {
  const uint64_t oldest = oldest_ticket_.load(std::memory_order_relaxed);
  if (ticket < oldest) oldest_ticket_.store(ticket, std::memory_order_release);
  if (completed_.load(std::memory_order_relaxed) >= late_until_) late_ticket_ = UINT64_MAX;
  if (ticket >= latest_ticket_) {
    latest_ticket_ = ticket;
    return;
  }
  late_ticket_ = std::min(late_ticket_, ticket);
  late_until_ = sequence;
}

// The oldest ticket of what is left.
void CpuStream::note_end_of_work() noexcept {
  uint64_t oldest = UINT64_MAX;
  if (head_ != nullptr) {
    const bool late = completed_.load(std::memory_order_relaxed) < late_until_;
    oldest = std::min(late ? late_ticket_ : UINT64_MAX, head_->ticket);
  }
  oldest_ticket_.store(oldest, std::memory_order_release);
}

void CpuStream::run_queue(Lock& lock, uint64_t last) {
  running_ = true;
  while (head_ != nullptr && completed_.load(std::memory_order_relaxed) < last &&
         !process::exiting()) {
    Work* const work = std::exchange(head_, head_->next);
    if (head_ == nullptr) tail_ = nullptr;
    lock.unlock();
    TaskErrors errors;
    {
      const DefaultFloatEnvironment environment;
      work->run(errors);
    }
    delete work;
    lock.lock();
    complete(completed_.load(std::memory_order_relaxed) + 1, errors);
  }
  running_ = false;
  // Somebody else has to go on: a waiting thread, or the worker.
  if (head_ != nullptr || process::exiting()) {
    if (waiting_ > 0) done_.notify_all();
    hurry_locked();
  } else if (waiting_ > 0 && closed_) {
    done_.notify_all();
  }
}

void CpuStream::complete(uint64_t sequence, TaskErrors& errors) noexcept {
  if (errors.any()) [[unlikely]] {
    errors_.keep(sequence, errors);
  }
  completed_.store(sequence, std::memory_order_release);
  note_end_of_work();
  if (waiting_ > 0 && sequence >= wake_at_) {
    wake_at_ = UINT64_MAX;
    done_.notify_all();
  }
}

bool CpuStream::spin(uint64_t sequence) const {
  const Clock::time_point end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) relax();
    if (completed_.load(std::memory_order_acquire) >= sequence) return true;
  } while (Clock::now() < end);
  return false;
}

Wait CpuStream::wait(uint64_t sequence, const Deadline& deadline, bool may_run) {
  if (completed_.load(std::memory_order_acquire) >= sequence) return Wait::kDone;
  const bool run_here = may_run && !deadline.finite();
  bool ran = false;
  bool spun = false;
  Wait result = Wait::kDone;
  {
    Lock lock(mutex_);
    while (completed_.load(std::memory_order_relaxed) < sequence) {
      if (process::exiting()) {
        result = Wait::kAbandoned;
        break;
      }
      if (!running_ && run_here && head_ != nullptr) {
        run_queue(lock, sequence);
        ran = true;
        continue;
      }
      if (running_ && !spun) {
        spun = true;
        lock.unlock();
        const bool complete_now = spin(sequence);
        lock.lock();
        if (complete_now) break;
        continue;
      }
      hurry_locked();
      if (!wait_once(lock, sequence, deadline)) {
        result = Wait::kTimedOut;
        break;
      }
    }
  }
  if (ran) memory::reclaim_if_much();
  return result;
}

// False when the deadline has passed and the work is not complete.
bool CpuStream::wait_once(Lock& lock, uint64_t sequence, const Deadline& deadline) {
  ++waiting_;
  wake_at_ = std::min(wake_at_, sequence);
  bool in_time = true;
  if (deadline.finite()) {
    in_time = done_.wait_until(lock, deadline.at()) == std::cv_status::no_timeout;
  } else {
    done_.wait(lock);
  }
  --waiting_;
  return in_time || completed_.load(std::memory_order_relaxed) >= sequence;
}

void CpuStream::drain_locked(Lock& lock) {
  while (completed_.load(std::memory_order_relaxed) < enqueued_.load(std::memory_order_relaxed) &&
         !process::exiting()) {
    if (running_ || head_ == nullptr) {
      wait_once(lock, enqueued_.load(std::memory_order_relaxed), Deadline::never());
    } else {
      run_queue(lock, UINT64_MAX);
    }
  }
}

void CpuStream::close() {
  {
    Lock lock(mutex_);
    drain_locked(lock);
    end_worker_locked();
  }
  stream_threads::join_ended();
  memory::reclaim_if_deferred();
}

void CpuStream::abort() {
  {
    Lock lock(mutex_);
    closed_ = true;
    drop_queue();
    while (running_ && !process::exiting()) {
      wait_once(lock, 0, Deadline::never());
    }
    if (!process::exiting()) {
      completed_.store(enqueued_.load(std::memory_order_relaxed), std::memory_order_release);
      note_end_of_work();
      done_.notify_all();
    }
    end_worker_locked();
  }
  stream_threads::join_ended();
  memory::reclaim_if_deferred();
}

void CpuStream::interrupt() {
  const Lock lock(mutex_);
  done_.notify_all();
  wake_.notify_one();
}

void CpuStream::await_running(const Deadline& deadline) {
  Lock lock(mutex_);
  while (running_ && wait_once(lock, UINT64_MAX, deadline)) {
  }
}

DataErrorList CpuStream::take_errors(uint64_t sequence) {
  if (!errors_.any()) return {};
  const Lock lock(mutex_);
  return errors_.take(sequence);
}

DataErrorList CpuStream::copy_errors(uint64_t sequence) {
  if (!errors_.any()) return {};
  const Lock lock(mutex_);
  return errors_.copy(sequence);
}

void CpuStream::adopt_errors(DataErrorList errors) noexcept {
  if (errors.empty()) return;
  const Lock lock(mutex_);
  errors_.adopt(completed_.load(std::memory_order_relaxed) + 1, std::move(errors));
}

}  // namespace aclgrad

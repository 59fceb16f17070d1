// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/stream.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "runtime/memory.h"
#include "runtime/process.h"

namespace aclgrad::cuda {
namespace {

// Entries after which a program that never waits has them looked after by enqueue().
constexpr size_t kMostEntries = 256;

// Between two looks of a wait that ends at a time: short against what a program would wait for.
constexpr auto kPollInterval = std::chrono::microseconds(50);

// What the last enqueue() of this thread answered 0 for; 0: the stream was closed.
constinit thread_local Status last_refusal = kOk;

// The stream that this thread hands work over to.
constinit thread_local CudaStream* handing_over = nullptr;

}  // namespace

CudaStream::~CudaStream() {
  // Left by a thread that handed over while the stream was closed.
  if (!entries_.empty() && age_ == device_.age() && !process::exiting()) {
    const DeviceScope scope(device_.number());
    device_.note(cudaStreamSynchronize(stream_));
  }
  for (const std::shared_ptr<Entry>& entry : entries_) retire(*entry, true);
  device_.give_stream(stream_, age_);
}

Status CudaStream::refusal(const char* function, Status closed) {
  if (last_refusal != kOk) return last_refusal;
  return fail(closed,
              "%s: the stream takes no more work, it is being destroyed or the process is ending",
              function);
}

Status CudaStream::check(const char* function) {
  if (const Status status = device_.check(function)) return status;
  if (age_ == device_.age()) return kOk;
  return fail(ACL_ERROR_RT_STREAM_CONTEXT,
              "%s: the stream's device was reset after a failure; expected a new stream", function);
}

CudaStream::Pause::Pause() noexcept : stream_(handing_over) {
  if (stream_ == nullptr) return;
  entry_ = std::move(stream_->current_);
  handing_over = nullptr;
  stream_->submit_mutex_.unlock();
}

CudaStream::Pause::~Pause() {
  if (stream_ == nullptr) return;
  stream_->submit_mutex_.lock();
  handing_over = stream_;
  stream_->current_ = std::move(entry_);
}

// The work and, behind it, the point that tells when it is done.
Status CudaStream::submit(const char* function, Entry& entry) {
  try {
    if (const Status status = entry.work->submit(function, *this)) return status;
    if (entry.done != nullptr) return kOk;
    return device_.answer(function, Point::record(device_, stream_, false, entry.done));
  } catch (const std::bad_alloc&) {
    return fail(ACL_ERROR_BAD_ALLOC, "%s: out of memory", function);
  }
}

Status CudaStream::hand_over(const char* function, const std::shared_ptr<Entry>& entry,
                             bool& begun) {
  const DeviceScope scope(device_.number());
  if (const Status status = check(function)) return status;
  begun = true;
  current_ = entry;
  handing_over = this;
  const Status status = submit(function, *entry);
  handing_over = nullptr;
  current_ = nullptr;
  if (status != kOk) mark_refused(*entry);
  return status;
}

void CudaStream::mark_refused(Entry& entry) noexcept {
  entry.refused.store(true, std::memory_order_release);
  if (entry.gate != nullptr) entry.gate->open();
  entry.done = nullptr;
  try {
    device_.note(Point::record(device_, stream_, false, entry.done));
    if (entry.done == nullptr) entry.done = std::make_shared<Point>(device_, stream_);
  } catch (const std::bad_alloc&) {
    // enqueue() waits for it.
  }
}

uint64_t CudaStream::enqueue(const char* function, Work* work) {
  std::unique_ptr<Work> owned(work);
  std::shared_ptr<Entry> entry;
  last_refusal = kOk;
  try {
    entry = std::make_shared<Entry>();
  } catch (const std::bad_alloc&) {
    last_refusal = fail(ACL_ERROR_BAD_ALLOC, "%s: out of memory", function);
    return 0;
  }
  entry->work = std::move(owned);
  entry->work->ticket = entry->ticket = memory::current_ticket();
  uint64_t sequence = 0;
  size_t waiting = 0;
  bool begun = false;
  {
    const std::lock_guard submit_lock(submit_mutex_);
    if (closed_ || process::exiting()) return 0;
    last_refusal = hand_over(function, entry, begun);
    if (begun && entry->done != nullptr) sequence = list(entry, waiting);
  }
  if (sequence == 0) {
    if (begun) await_unlisted(function, *entry);
    retire(*entry, true);
    return 0;
  }
  if (last_refusal != kOk) return 0;
  if (waiting > kMostEntries && waiting % 16 == 0) look_after(sequence);
  return sequence;
}

uint64_t CudaStream::list(const std::shared_ptr<Entry>& entry, size_t& waiting) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    entries_.push_back(entry);
  } catch (const std::bad_alloc&) {
    return 0;
  }
  const uint64_t sequence = enqueued_.load(std::memory_order_relaxed) + 1;
  enqueued_.store(sequence, std::memory_order_release);
  waiting = entries_.size();
  // interrupt() may have been here before.
  if (entry->gate != nullptr && process::exiting()) entry->gate->open();
  return sequence;
}

// It uses what goes with the entry.
void CudaStream::await_unlisted(const char* function, Entry& entry) {
  if (entry.gate != nullptr) entry.gate->open();
  const DeviceScope scope(device_.number());
  device_.note(cudaStreamSynchronize(stream_));
  if (last_refusal == kOk) {
    last_refusal = fail(ACL_ERROR_BAD_ALLOC, "%s: out of memory", function);
  }
}

void CudaStream::retire(Entry& entry, bool failed) noexcept {
  if (!failed) entry.work->finish(entry.sink());
  if (!failed || !entry.called) entry.work.reset();
  if (entry.record != nullptr) device_.give_record(std::exchange(entry.record, nullptr), age_);
}

// Finishes what is done, in order; one thread at a time. False when another one does so already.
// To finish a wait for an event is to look after the other stream, no further than the event: that
// was recorded earlier, so threads that wait for each other's looking after end somewhere.
bool CudaStream::look_after(uint64_t last) {
  Lock lock(mutex_);
  if (looking_) return false;
  looking_ = true;
  bool any = false;
  while (!entries_.empty()) {
    std::shared_ptr<Entry> entry = entries_.front();
    const uint64_t sequence = completed_.load(std::memory_order_relaxed) + 1;
    if (sequence > last) break;
    looked_at_ = sequence;
    lock.unlock();
    const Point::State state = entry->done->state();
    if (state != Point::State::kAhead) {
      retire(*entry, state == Point::State::kFailed || entry->refused ||
                         aborted_->load(std::memory_order_relaxed));
    }
    lock.lock();
    if (state == Point::State::kAhead) break;
    if (entry->errors.any() && !entry->refused) errors_.keep(sequence, entry->errors);
    entries_.pop_front();
    completed_.store(sequence, std::memory_order_release);
    changed_.notify_all();
    any = true;
    lock.unlock();
    entry.reset();
    lock.lock();
  }
  looking_ = false;
  changed_.notify_all();
  lock.unlock();
  if (any) memory::reclaim_if_deferred();
  return true;
}

uint64_t CudaStream::completed() {
  const uint64_t last = enqueued();
  if (completed_.load(std::memory_order_acquire) < last) look_after(last);
  return completed_.load(std::memory_order_acquire);
}

std::shared_ptr<Point> CudaStream::point_of(uint64_t sequence) const {
  const uint64_t completed = completed_.load(std::memory_order_relaxed);
  if (sequence <= completed) return nullptr;
  return entries_[static_cast<size_t>(sequence - completed - 1)]->done;
}

Wait CudaStream::wait(uint64_t sequence, const Deadline& deadline, bool) {
  for (;;) {
    const bool looked = look_after(sequence);
    std::shared_ptr<Point> point;
    {
      Lock lock(mutex_);
      point = point_of(sequence);
      if (point == nullptr) return Wait::kDone;
      if (process::exiting()) return Wait::kAbandoned;
      if (!looked && looking_ && point->state() != Point::State::kAhead) {
        changed_.wait(lock);  // another thread is about to come to it
        continue;
      }
    }
    if (!deadline.finite()) {
      point->wait();
    } else if (point->state() == Point::State::kAhead) {
      if (Deadline::Clock::now() >= deadline.at()) return Wait::kTimedOut;
      std::this_thread::sleep_for(kPollInterval);
    }
  }
}

void CudaStream::close() {
  {
    const std::lock_guard lock(submit_mutex_);
    closed_ = true;
  }
  wait(enqueued(), Deadline::never(), false);
  memory::reclaim_if_deferred();
}

void CudaStream::abort() {
  completed();
  aborted_->store(true, std::memory_order_release);
  close();
}

void CudaStream::interrupt() {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Entry>& entry : entries_) {
    if (entry->gate != nullptr) entry->gate->open();
  }
  changed_.notify_all();
}

void CudaStream::await_running(const Deadline& deadline) {
  std::shared_ptr<Point> last;
  {
    const std::lock_guard lock(mutex_);
    if (!entries_.empty()) last = entries_.back()->done;
  }
  while (last != nullptr && last->state() == Point::State::kAhead &&
         (!deadline.finite() || Deadline::Clock::now() < deadline.at())) {
    std::this_thread::sleep_for(kPollInterval);
  }
}

// What is done needs no memory any more, even if nobody has looked after it.
uint64_t CudaStream::oldest_ticket() {
  const std::lock_guard lock(mutex_);
  uint64_t oldest = UINT64_MAX;
  bool passed = true;
  for (const std::shared_ptr<Entry>& entry : entries_) {
    passed = passed && entry->done->state() != Point::State::kAhead;
    if (!passed) oldest = std::min(oldest, entry->ticket);
  }
  return oldest;
}

DataErrorList CudaStream::take_errors(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  return errors_.take(sequence);
}

DataErrorList CudaStream::copy_errors(uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  return errors_.copy(sequence);
}

void CudaStream::adopt_errors(DataErrorList errors) noexcept {
  if (errors.empty()) return;
  const std::lock_guard lock(mutex_);
  errors_.adopt(looked_at_, std::move(errors));
}

}  // namespace aclgrad::cuda

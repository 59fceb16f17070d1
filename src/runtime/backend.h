// SPDX-License-Identifier: Apache-2.0
// What a kind of device must do for the runtime: memory, copies, and streams that run work in
// order. The CPU is the one implementation; a CUDA one would stand beside it.
#ifndef ACLGRAD_RUNTIME_BACKEND_H_
#define ACLGRAD_RUNTIME_BACKEND_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/data_errors.h"
#include "runtime/work.h"

namespace aclgrad {

// When a wait gives up.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(); }
  // Negative: never.
  static Deadline in_milliseconds(int32_t timeout) {
    Deadline deadline;
    deadline.finite_ = timeout >= 0;
    if (deadline.finite_) deadline.at_ = Clock::now() + std::chrono::milliseconds(timeout);
    return deadline;
  }
  bool finite() const { return finite_; }
  Clock::time_point at() const { return at_; }

 private:
  bool finite_ = false;
  Clock::time_point at_;
};

enum class Wait : uint8_t {
  kDone,
  kTimedOut,
  kAbandoned,  // the process is ending
};

// An in-order queue of work. Work has sequence numbers 1, 2, 3, ... in the order of enqueue().
class Stream {
 public:
  virtual ~Stream() = default;

  // Owns the work from now on. Returns its sequence number, 0 (and the work is gone) when the
  // stream was closed or the process is ending.
  virtual uint64_t enqueue(Work* work) = 0;
  virtual uint64_t enqueued() const = 0;
  virtual uint64_t completed() const = 0;
  // Until work `sequence` is complete. `may_run`: this thread may run the queue itself meanwhile
  // (never with a finite deadline).
  virtual Wait wait(uint64_t sequence, const Deadline& deadline, bool may_run) = 0;
  // Sees to it that queued work starts now.
  virtual void hurry() = 0;
  // Waits for everything queued, refuses all later work, ends the worker.
  virtual void close() = 0;
  // Like close(), but work that has not started is dropped.
  virtual void abort() = 0;
  // Process exit: lets waiting threads go; then waits for the piece of work that runs.
  virtual void interrupt() = 0;
  virtual void await_running(const Deadline& deadline) = 0;
  // The ticket of the oldest work that is not complete; the largest number when there is none.
  virtual uint64_t oldest_ticket() = 0;

  // Data errors of work up to `sequence` that nobody was told of yet, moved out of the stream.
  virtual DataErrorList take_errors(uint64_t sequence) = 0;
  // The same without taking them, for a stream that waits for this one; and its counterpart, called
  // by the running work.
  virtual DataErrorList copy_errors(uint64_t sequence) = 0;
  virtual void adopt_errors(DataErrorList errors) noexcept = 0;
};

enum class MemorySpace : uint8_t { kDevice, kHost };

struct MemoryInfo {
  size_t free = 0;
  size_t total = 0;
};

class Backend {
 public:
  virtual std::shared_ptr<Stream> make_stream() = 0;

  // 64-byte aligned and uninitialised; null when there is none.
  virtual void* allocate(MemorySpace space, size_t bytes) noexcept = 0;
  virtual void release(MemorySpace space, void* memory, size_t bytes) noexcept = 0;
  // Gives memory back to the system that is kept for later allocations.
  virtual void trim() noexcept = 0;
  // Inside the addresses that the space's allocations come from, live or not.
  virtual bool reserved(MemorySpace space, uintptr_t address) const noexcept = 0;

  virtual void copy(void* to, const void* from, size_t bytes) noexcept = 0;
  virtual void fill(void* to, int32_t value, size_t bytes) noexcept = 0;

  virtual size_t total_memory() noexcept = 0;  // read once
  virtual MemoryInfo memory_info() noexcept = 0;
  virtual int64_t compute_units() noexcept = 0;
  virtual int64_t cache_bytes() noexcept = 0;

 protected:
  ~Backend() = default;
};

// Never destroyed.
Backend& backend() noexcept;

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_BACKEND_H_

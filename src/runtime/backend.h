// SPDX-License-Identifier: Apache-2.0
// What a kind of device must do for the runtime: memory, copies, and streams that run work in
// order. A process has devices of one kind: the CPU, or the GPUs of CUDA.
#ifndef ACLGRAD_RUNTIME_BACKEND_H_
#define ACLGRAD_RUNTIME_BACKEND_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/data_errors.h"
#include "runtime/services.h"
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
  // stream was closed, the process is ending, or the device refuses the work. `function`: the name
  // that the message of such a refusal begins with.
  virtual uint64_t enqueue(const char* function, Work* work) = 0;
  // The status for an enqueue() that just answered 0 on this thread, with its message left behind;
  // `closed` if the stream was closed or the process is ending.
  virtual Status refusal(const char* function, Status closed) = 0;
  // Refuses once the stream's device has failed for good, with its first cause.
  virtual Status check(const char* function) = 0;
  virtual uint64_t enqueued() const = 0;
  virtual uint64_t completed() = 0;
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

  // False where take_errors() would find none.
  virtual bool may_have_errors() const noexcept { return true; }
  // Data errors of work up to `sequence` that nobody was told of yet, moved out of the stream.
  virtual DataErrorList take_errors(uint64_t sequence) = 0;
  // The same without taking them, for a stream that waits for this one; and its counterpart, called
  // by the running work.
  virtual DataErrorList copy_errors(uint64_t sequence) = 0;
  virtual void adopt_errors(DataErrorList errors) noexcept = 0;
};

enum class MemorySpace : uint8_t { kDevice, kHost };

// What kept an allocation from its memory; in the device's own words, if it said something.
struct Shortage {
  Status status = ACL_ERROR_RT_MEMORY_ALLOCATION;
  const char* name = nullptr;
  const char* words = nullptr;
};

struct MemoryInfo {
  size_t free = 0;
  size_t total = 0;
};

inline constexpr int32_t kMostDevices = 64;

class Backend {
 public:
  // Streams run work on a device's own queue (Work::submit), not on threads of the host.
  virtual bool has_queues() const noexcept = 0;
  // Before ASCEND_RT_VISIBLE_DEVICES; the devices below are numbered after it.
  virtual int32_t devices() const noexcept = 0;

  // `function`: the name that the message of a refusal begins with.
  virtual Status make_stream(const char* function, int32_t device,
                             std::shared_ptr<Stream>& stream) = 0;
  // Work will come soon, on whatever stream.
  virtual void expect_work() noexcept {}

  // 64-byte aligned and uninitialised; null when there is none.
  virtual void* allocate(int32_t device, MemorySpace space, size_t bytes,
                         Shortage& shortage) noexcept = 0;
  virtual void release(MemorySpace space, void* memory, size_t bytes) noexcept = 0;
  // Gives memory back to the system that is kept for later allocations. False where some of it can
  // be given back only when a blocking callback, that may be the caller, has ended.
  virtual bool trim() noexcept = 0;
  // The space's live allocations may lie at this address.
  virtual bool may_hold(MemorySpace space, uintptr_t address) const noexcept = 0;
  // Of an address in no live allocation.
  virtual AddressKind foreign_kind(const void* address) noexcept = 0;

  // Complete on return.
  virtual Status copy(const char* function, void* to, const void* from, size_t bytes) noexcept = 0;
  virtual Status fill(const char* function, void* to, int32_t value, size_t bytes) noexcept = 0;

  // What the live allocations of a space may have together, read once; the two spaces share it if
  // `spaces_share_memory`.
  virtual size_t total_memory(MemorySpace space) noexcept = 0;
  virtual bool spaces_share_memory() const noexcept = 0;
  // What one allocation may have of it.
  virtual size_t most_memory(int32_t device, MemorySpace space) noexcept = 0;
  virtual Status memory_info(const char* function, int32_t device, MemoryInfo& info) noexcept = 0;
  virtual int64_t compute_units(int32_t device) noexcept = 0;
  virtual int64_t cache_bytes(int32_t device) noexcept = 0;

  // One device reaches the memory of another.
  virtual bool can_access(int32_t device, int32_t peer) noexcept = 0;
  virtual Status enable_access(const char* function, int32_t device, int32_t peer) noexcept = 0;
  // Kernels of the device may use what lies there: its own memory, or that of a peer whose access
  // was enabled. True of what is nobody's.
  virtual bool reaches(int32_t device, const void* address) noexcept = 0;

  // Refuses once the device has failed for good, with its first cause.
  virtual Status check(const char* function, int32_t device) noexcept = 0;
  // After the device's last stream is gone: brings a failed one back, as far as it can be.
  virtual void reset(int32_t device) noexcept = 0;

 protected:
  ~Backend() = default;
};

// The kind of this process, chosen at the first call. Never destroyed.
Backend& backend() noexcept;
// Null where there is no usable GPU.
Backend& cpu_backend() noexcept;
Backend* cuda_backend() noexcept;
// Why there is none, in CUDA's words where it has some.
const char* cuda_refusal() noexcept;

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_BACKEND_H_

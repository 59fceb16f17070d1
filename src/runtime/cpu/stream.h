// SPDX-License-Identifier: Apache-2.0
// A CPU stream: an in-order queue that exactly one thread runs at a time. That thread is the
// stream's worker, or a thread that synchronises and finds nobody running: small operators then
// cost no thread switch.
//
// Waking a sleeping thread costs its waker several microseconds. So for kPollWindow after the last
// activity the worker looks at the queue every kPollInterval and is not woken; then it parks for
// good and the next enqueue wakes it, or phase one before that (awake_workers.h). Idle costs
// nothing.
#ifndef ACLGRAD_RUNTIME_CPU_STREAM_H_
#define ACLGRAD_RUNTIME_CPU_STREAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/backend.h"

namespace aclgrad {

class CpuStream final : public Stream, public std::enable_shared_from_this<CpuStream> {
 public:
  CpuStream() = default;
  ~CpuStream() override;

  uint64_t enqueue(const char* function, Work* work) override;
  Status refusal(const char* function, Status closed) override;
  Status check(const char*) override { return kOk; }
  uint64_t enqueued() const override { return enqueued_.load(std::memory_order_acquire); }
  uint64_t completed() override { return completed_.load(std::memory_order_acquire); }
  Wait wait(uint64_t sequence, const Deadline& deadline, bool may_run) override;
  void hurry() override;
  void close() override;
  void abort() override;
  void interrupt() override;
  void await_running(const Deadline& deadline) override;
  uint64_t oldest_ticket() override { return oldest_ticket_.load(std::memory_order_acquire); }
  bool may_have_errors() const noexcept override { return errors_.any(); }
  DataErrorList take_errors(uint64_t sequence) override;
  DataErrorList copy_errors(uint64_t sequence) override;
  void adopt_errors(DataErrorList errors) noexcept override;

  // Work will come soon: the worker is woken if it is parked.
  void expect_work() noexcept;

 private:
  enum class Worker : uint8_t { kNone, kAwake, kParked };
  using Lock = std::unique_lock<std::mutex>;

  // All of these with mutex_ held; run_queue releases it around each piece of work.
  void run_queue(Lock& lock, uint64_t last);
  void complete(uint64_t sequence, TaskErrors& errors) noexcept;
  bool wait_once(Lock& lock, uint64_t sequence, const Deadline& deadline);
  void drop_queue();
  void hurry_locked();
  void drain_locked(Lock& lock);
  void end_worker_locked();
  bool start_worker_locked();
  void set_worker_locked(Worker state) noexcept;
  void note_ticket(uint64_t ticket, uint64_t sequence);
  void note_end_of_work() noexcept;

  void worker_loop();
  bool spin(uint64_t sequence) const;

  // A line of its own behind what others read to call oldest_ticket(), and before what they find.
  alignas(64) std::mutex mutex_;
  std::condition_variable done_;  // threads that wait for work
  std::condition_variable wake_;  // the worker
  Work* head_ = nullptr;
  Work* tail_ = nullptr;
  std::atomic<uint64_t> enqueued_{0};   // written under mutex_
  std::atomic<uint64_t> completed_{0};  // written under mutex_
  // Work may carry an older ticket than what stands before it: until it is done, this one counts.
  uint64_t latest_ticket_ = 0;
  uint64_t late_ticket_ = UINT64_MAX;
  uint64_t late_until_ = 0;  // sequence
  bool running_ = false;     // some thread runs the queue
  bool closed_ = false;
  bool kicked_ = false;
  Worker worker_ = Worker::kNone;
  uint32_t waiting_ = 0;
  uint64_t wake_at_ = UINT64_MAX;  // the smallest sequence that a waiting thread waits for
  StreamErrors errors_;
  // Read without the lock by every thread that frees memory: a thread that synchronises would
  // otherwise wait for those. Written under mutex_, after the work's last access to memory.
  alignas(64) std::atomic<uint64_t> oldest_ticket_{UINT64_MAX};
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_CPU_STREAM_H_

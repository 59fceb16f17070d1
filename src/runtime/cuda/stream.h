// SPDX-License-Identifier: Apache-2.0
// A stream of CUDA. Work is handed over by the thread that enqueues it; an event of CUDA behind
// each piece tells when it is done. Nobody watches for that: whoever asks next looks after what is
// done, which is where data errors come out of it and where it is destroyed.
#ifndef ACLGRAD_RUNTIME_CUDA_STREAM_H_
#define ACLGRAD_RUNTIME_CUDA_STREAM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "runtime/backend.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/gate.h"

namespace aclgrad::cuda {

// An event of CUDA that was recorded.
class Point final : public DevicePoint {
 public:
  enum class State : uint8_t { kAhead, kPassed, kFailed };

  // Makes one, or tells what CUDA answered.
  static cudaError_t record(Device& device, cudaStream_t stream, bool timed,
                            std::shared_ptr<Point>& point);
  Point(Device& device, cudaEvent_t event, bool timed)
      : device_(device), event_(event), timed_(timed), age_(device.age()) {}
  // Behind what a stream has at any time: passed when it is idle. For where CUDA records none.
  Point(Device& device, cudaStream_t stream)
      : device_(device), stream_(stream), timed_(false), age_(device.age()) {}
  ~Point() override {
    if (event_ != nullptr) device_.give_event(event_, timed_, age_);
  }

  State state();
  void wait();
  bool belongs_to_living_device() const { return age_ == device_.age(); }
  cudaEvent_t event() const { return event_; }

  int64_t nanoseconds() override { return device_.nanoseconds(event_); }
  int64_t nanoseconds_to(DevicePoint& later) override;

 private:
  Device& device_;
  cudaEvent_t event_ = nullptr;
  cudaStream_t stream_ = nullptr;  // in place of an event
  const bool timed_;
  const uint64_t age_;
  std::atomic<bool> passed_{false};
};

class CudaStream final : public Stream, private DeviceQueue {
  struct Entry;

 public:
  // Takes over the stream.
  CudaStream(Device& device, cudaStream_t stream)
      : device_(device), age_(device.age()), stream_(stream) {}
  ~CudaStream() override;

  // While this thread hands work over to a stream, lets others do so in between. For calls of CUDA
  // that wait for the device: a callback that the device waits for may be about to hand over.
  class Pause {
   public:
    Pause() noexcept;
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    CudaStream* const stream_;
    std::shared_ptr<Entry> entry_;
  };

  uint64_t enqueue(const char* function, Work* work) override;
  Status refusal(const char* function, Status closed) override;
  Status check(const char* function) override;
  uint64_t enqueued() const override { return enqueued_.load(std::memory_order_acquire); }
  uint64_t completed() override;
  Wait wait(uint64_t sequence, const Deadline& deadline, bool may_run) override;
  void hurry() override {}
  void close() override;
  // What CUDA was given it does, but it makes no more calls to the host; nothing is finished.
  void abort() override;
  void interrupt() override;
  void await_running(const Deadline& deadline) override;
  uint64_t oldest_ticket() override;
  DataErrorList take_errors(uint64_t sequence) override;
  DataErrorList copy_errors(uint64_t sequence) override;
  void adopt_errors(DataErrorList errors) noexcept override;

 private:
  struct Entry {
    std::unique_ptr<Work> work;
    uint64_t ticket = 0;  // the work's
    std::shared_ptr<Point> done;
    TaskErrors errors;
    DeviceRecord* record = nullptr;
    std::shared_ptr<Gate> gate;        // behind its call
    bool called = false;               // by a host function, which then holds the entry too
    std::atomic<bool> refused{false};  // after part of it was handed over

    DataErrors& sink() {
      DataErrors* const own = work->own_errors();
      return own != nullptr ? *own : errors;
    }
  };
  // When the device fails CUDA may be in such a call, or come to it later, while the stream is done
  // with the work.
  struct HostCall {
    std::shared_ptr<Entry> entry;
    Work* work;  // the entry's, or in it
    std::shared_ptr<const std::atomic<bool>> aborted;
  };
  using Lock = std::unique_lock<std::mutex>;

  void* native() override { return stream_; }
  int32_t native_device() override { return device_.number(); }
  Status copy(const char* function, void* to, const void* from, size_t bytes) override;
  Status fill(const char* function, void* to, int32_t value, size_t bytes) override;
  Status call(const char* function, Work& work) override;
  Status make_gate(const char* function, std::shared_ptr<DeviceGate>& gate) override;
  Status hold(const char* function) override;
  Status record(const char* function, std::shared_ptr<DevicePoint>& point) override;
  Status await(const char* function, DevicePoint& point) override;
  Status launched(const char* function, int error) override;
  Status take_scratch(const char* function, size_t bytes, void*& memory) override;
  void give_scratch(void* memory) override;
  Status take_record(const char* function, DeviceRecord*& record) override;

  // `begun`: part of it may be under way, even where it is refused.
  Status hand_over(const char* function, const std::shared_ptr<Entry>& entry, bool& begun);
  Status submit(const char* function, Entry& entry);
  // Part of it may be under way: it ends like other work, but nobody hears of it.
  void mark_refused(Entry& entry) noexcept;
  // Puts what was handed over behind the others and tells its number, and how many there are; 0
  // where there is no memory for that.
  uint64_t list(const std::shared_ptr<Entry>& entry, size_t& waiting) noexcept;
  void await_unlisted(const char* function, Entry& entry);
  // Up to work `last`.
  bool look_after(uint64_t last);
  void retire(Entry& entry, bool failed) noexcept;
  // With mutex_ held: the point behind work `sequence`, null when it is complete.
  std::shared_ptr<Point> point_of(uint64_t sequence) const;

  Device& device_;
  const uint64_t age_;
  const cudaStream_t stream_;

  // Held while work is handed over, which CUDA may delay until earlier work is done.
  std::mutex submit_mutex_;
  std::shared_ptr<Entry> current_;
  bool closed_ = false;
  const std::shared_ptr<std::atomic<bool>> aborted_ = std::make_shared<std::atomic<bool>>(false);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Entry>> entries_;  // handed over and not looked after
  std::atomic<uint64_t> enqueued_{0};           // written under both
  std::atomic<uint64_t> completed_{0};          // written under mutex_
  bool looking_ = false;                        // some thread looks after entries
  uint64_t looked_at_ = 0;                      // the sequence it is at
  StreamErrors errors_;
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_RUNTIME_CUDA_STREAM_H_

// SPDX-License-Identifier: Apache-2.0
#include "runtime/event.h"

#include <chrono>
#include <utility>

namespace aclgrad::events {
namespace {

constinit EventTable event_table{Kind::kEvent};

// How many streams deep a thread runs queues that wait for each other; the stack bounds it.
constexpr int kMostNestedWaits = 64;
constinit thread_local int nested_waits = 0;

class RecordWork final : public Work {
 public:
  explicit RecordWork(std::shared_ptr<RecordPoint> point) : point_(std::move(point)) {}
  void run(DataErrors&) noexcept override {
    const auto since_start = Deadline::Clock::now().time_since_epoch();
    const auto nanoseconds =
        std::chrono::duration_cast<std::chrono::nanoseconds>(since_start).count();
    point_->nanoseconds.store(nanoseconds, std::memory_order_release);
  }
  Status submit(const char* function, DeviceQueue& queue) override {
    return queue.record(function, point_->point);
  }
  void finish(DataErrors&) noexcept override {
    point_->nanoseconds.store(point_->point->nanoseconds(), std::memory_order_release);
  }

 private:
  std::shared_ptr<RecordPoint> point_;
};

class WaitWork final : public Work {
 public:
  // `stream` outlives its own queue.
  WaitWork(Stream* stream, std::shared_ptr<EventState> event, std::shared_ptr<RecordPoint> point)
      : stream_(stream), event_(std::move(event)), point_(std::move(point)) {
    event_->pending_waits.fetch_add(1, std::memory_order_relaxed);
  }
  ~WaitWork() override { event_->pending_waits.fetch_sub(1, std::memory_order_release); }
  WaitWork(const WaitWork&) = delete;
  WaitWork& operator=(const WaitWork&) = delete;

  void run(DataErrors&) noexcept override {
    Stream& other = *point_->stream;
    if (&other == stream_) return;  // its own earlier work
    if (wait_for(other) != Wait::kDone) return;
    adopt_errors(other);
  }
  Status submit(const char* function, DeviceQueue& queue) override {
    return queue.await(function, *point_->point);
  }
  void finish(DataErrors&) noexcept override {
    Stream& other = *point_->stream;
    if (&other == stream_) return;
    other.wait(point_->sequence, Deadline::never(), false);  // over, but perhaps not looked at
    adopt_errors(other);
  }

 private:
  void adopt_errors(Stream& other) const noexcept {
    // Whoever waits for this stream now waits for the other's work too, and is told of its errors.
    try {
      stream_->adopt_errors(other.copy_errors(point_->sequence));
    } catch (const std::bad_alloc&) {
      // The other stream still reports them.
    }
  }

  // This thread may run the other stream's queue up to the record. That cannot end in a circle: a
  // record that is waited for was queued before the wait, so waits point back in time only.
  Wait wait_for(Stream& other) const {
    ++nested_waits;
    const Wait result =
        other.wait(point_->sequence, Deadline::never(), nested_waits <= kMostNestedWaits);
    --nested_waits;
    return result;
  }

  Stream* stream_;
  std::shared_ptr<EventState> event_;
  std::shared_ptr<RecordPoint> point_;
};

class ResetWork final : public Work {
 public:
  ResetWork(std::shared_ptr<EventState> event, std::shared_ptr<RecordPoint> point)
      : event_(std::move(event)), point_(std::move(point)) {}
  void run(DataErrors&) noexcept override { event_->reset(point_); }

 private:
  std::shared_ptr<EventState> event_;
  std::shared_ptr<RecordPoint> point_;
};

}  // namespace

EventTable& table() noexcept { return event_table; }

EventTable::Pin resolve(const char* function, const char* name, aclrtEvent event, Status& refusal) {
  EventTable::Pin pin = event_table.pin(event);
  if (!pin) {
    refusal = fail(event == nullptr ? ACL_ERROR_INVALID_PARAM : ACL_ERROR_RT_PARAM_INVALID,
                   "%s: %s %p is %s, expected a live event", function, name, event,
                   handle::describe(event, Kind::kEvent));
  }
  return pin;
}

bool record(const char* function, const std::shared_ptr<EventState>& event,
            const std::shared_ptr<Stream>& stream) {
  auto point = std::make_shared<RecordPoint>();
  point->stream = stream;
  point->sequence = stream->enqueue(function, new RecordWork(point));
  if (point->sequence == 0) return false;
  event->set_latest(std::move(point));
  return true;
}

bool wait(const char* function, const std::shared_ptr<EventState>& event,
          const std::shared_ptr<Stream>& stream) {
  std::shared_ptr<RecordPoint> point = event->latest();
  if (point == nullptr) return true;
  return stream->enqueue(function, new WaitWork(stream.get(), event, std::move(point))) != 0;
}

bool reset(const char* function, const std::shared_ptr<EventState>& event,
           const std::shared_ptr<Stream>& stream) {
  std::shared_ptr<RecordPoint> point = event->latest();
  if (point == nullptr) return true;
  return stream->enqueue(function, new ResetWork(event, std::move(point))) != 0;
}

}  // namespace aclgrad::events

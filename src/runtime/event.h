// SPDX-License-Identifier: Apache-2.0
// Events. Each record makes a point in a stream's sequence of work; the event holds the latest one,
// and a wait takes the one that is the latest when it is called.
#ifndef ACLGRAD_RUNTIME_EVENT_H_
#define ACLGRAD_RUNTIME_EVENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "acl/acl_base.h"
#include "base/handle_table.h"
#include "base/status.h"
#include "runtime/backend.h"

namespace aclgrad {

struct RecordPoint {
  std::shared_ptr<Stream> stream;
  uint64_t sequence = 0;
  std::atomic<int64_t> nanoseconds{0};  // when the record ran; 0: it did not
  std::shared_ptr<DevicePoint> point;   // where the device has a queue of its own

  bool complete() const { return stream->completed() >= sequence; }
};

// Shared by the handle and by queued waits and resets, so destroying the handle is always safe.
class EventState {
 public:
  std::shared_ptr<RecordPoint> latest() const {
    const std::lock_guard lock(mutex_);
    return latest_;
  }
  void set_latest(std::shared_ptr<RecordPoint> point) {
    const std::lock_guard lock(mutex_);
    latest_ = std::move(point);
  }
  // Back to never recorded, unless recorded again since `point`.
  void reset(const std::shared_ptr<RecordPoint>& point) {
    const std::lock_guard lock(mutex_);
    if (latest_ == point) latest_ = nullptr;
  }
  std::atomic<int64_t> pending_waits{0};

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<RecordPoint> latest_;
};

struct EventObject {
  std::shared_ptr<EventState> state;
};
using EventTable = HandleTable<EventObject>;

namespace events {

EventTable& table() noexcept;
EventTable::Pin resolve(const char* function, const char* name, aclrtEvent event, Status& refusal);

// Each queues one piece of work; false when the stream refuses it.
bool record(const char* function, const std::shared_ptr<EventState>& event,
            const std::shared_ptr<Stream>& stream);
bool wait(const char* function, const std::shared_ptr<EventState>& event,
          const std::shared_ptr<Stream>& stream);
bool reset(const char* function, const std::shared_ptr<EventState>& event,
           const std::shared_ptr<Stream>& stream);

}  // namespace events
}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_EVENT_H_

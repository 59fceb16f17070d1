// SPDX-License-Identifier: Apache-2.0
// The C boundary: events.
#include <utility>

#include "acl/acl.h"
#include "base/status.h"
#include "runtime/api.h"
#include "runtime/callback.h"
#include "runtime/context.h"
#include "runtime/event.h"
#include "runtime/stream_registry.h"

namespace aclgrad {
namespace {

constexpr uint32_t kEventFlags = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS |
                                 ACL_EVENT_TIME_LINE | ACL_EVENT_DEVICE_USE_ONLY |
                                 ACL_EVENT_EXTERNAL | ACL_EVENT_IPC;

Status create_event(const char* function, aclrtEvent* event, uint32_t flags) {
  if (event == nullptr) return null_parameter(function, "event");
  if ((flags & ~kEventFlags) != 0) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: flag is 0x%x, expected ACL_EVENT_ flags", function,
                flags);
  }
  Status refusal = kOk;
  const ContextTable::Pin context = contexts::require_current(function, refusal);
  if (!context) return refusal;
  if (const Status status = backend().check(function, context->device)) return status;
  *event = events::table().create(EventObject{std::make_shared<EventState>()});
  return kOk;
}

// The stream of a record, once its device has failed or was reset.
Status check_record(const char* function, Stream& stream) {
  const Status status = stream.check(function);
  if (status != ACL_ERROR_RT_STREAM_CONTEXT) return status;
  return fail(ACL_ERROR_RT_PARAM_INVALID,
              "%s: the event was recorded before its device was reset after a failure; expected a "
              "record since",
              function);
}

using QueueOperation = bool (*)(const char*, const std::shared_ptr<EventState>&,
                                const std::shared_ptr<Stream>&);

Status queue(const char* function, QueueOperation operation, aclrtEvent event_handle,
             aclrtStream stream_handle) {
  Status refusal = kOk;
  const EventTable::Pin event = events::resolve(function, "event", event_handle, refusal);
  if (!event) return refusal;
  const StreamTable::Pin stream =
      streams::resolve(function, stream_handle, ACL_ERROR_RT_STREAM_CONTEXT, refusal);
  if (!stream) return refusal;
  if (operation(function, event->state, stream->stream)) return kOk;
  return stream->stream->refusal(function, ACL_ERROR_RT_STREAM_CONTEXT);
}

Status synchronize_event(aclrtEvent handle) {
  constexpr const char* kName = "aclrtSynchronizeEvent";
  std::shared_ptr<RecordPoint> point;
  {
    Status refusal = kOk;
    const EventTable::Pin event = events::resolve(kName, "event", handle, refusal);
    if (!event) return refusal;
    point = event->state->latest();
  }
  if (point == nullptr) return kOk;
  Stream& stream = *point->stream;
  if (!point->complete()) {
    const Status status = callbacks::check_not_held(kName, stream, ACL_ERROR_RT_PARAM_INVALID);
    if (status != kOk) return status;
  }
  stream.wait(point->sequence, Deadline::never(), true);
  if (const Status status = check_record(kName, stream)) return status;
  return report_errors(kName, stream.take_errors(point->sequence));
}

// Never recorded counts as complete.
template <class T>
Status query(const char* function, aclrtEvent handle, T* status, T complete, T not_ready) {
  if (status == nullptr) return null_parameter(function, "status");
  Status refusal = kOk;
  const EventTable::Pin event = events::resolve(function, "event", handle, refusal);
  if (!event) return refusal;
  const std::shared_ptr<RecordPoint> point = event->state->latest();
  const bool is_complete = point == nullptr || point->complete();
  if (point != nullptr) {
    if (const Status failed = check_record(function, *point->stream)) return failed;
  }
  *status = is_complete ? complete : not_ready;
  return kOk;
}

Status query_waits(aclrtEvent handle, aclrtEventWaitStatus* status) {
  constexpr const char* kName = "aclrtQueryEventWaitStatus";
  if (status == nullptr) return null_parameter(kName, "status");
  Status refusal = kOk;
  const EventTable::Pin event = events::resolve(kName, "event", handle, refusal);
  if (!event) return refusal;
  if (const std::shared_ptr<RecordPoint> point = event->state->latest(); point != nullptr) {
    if (const Status failed = check_record(kName, *point->stream)) return failed;
  }
  *status = event->state->pending_waits.load(std::memory_order_acquire) == 0
                ? ACL_EVENT_WAIT_STATUS_COMPLETE
                : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return kOk;
}

// When the event's record ran on its stream.
Status timestamp(const char* function, const char* name, const std::shared_ptr<RecordPoint>& point,
                 int64_t& nanoseconds) {
  const bool complete = point != nullptr && point->complete();
  if (point != nullptr) {
    if (const Status failed = check_record(function, *point->stream)) return failed;
  }
  nanoseconds = complete ? point->nanoseconds.load(std::memory_order_acquire) : 0;
  if (nanoseconds != 0) return kOk;
  const char* const state = point == nullptr ? "not recorded"
                            : complete       ? "dropped with its stream"
                                             : "not complete";
  return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "%s: %s is %s, expected a record that has run",
              function, name, state);
}

Status elapsed(float* ms, aclrtEvent start, aclrtEvent end) {
  constexpr const char* kName = "aclrtEventElapsedTime";
  constexpr double kNanosecondsPerMillisecond = 1e6;
  if (ms == nullptr) return null_parameter(kName, "ms");
  Status refusal = kOk;
  const EventTable::Pin first = events::resolve(kName, "startEvent", start, refusal);
  if (!first) return refusal;
  const EventTable::Pin second = events::resolve(kName, "endEvent", end, refusal);
  if (!second) return refusal;
  int64_t from = 0;
  int64_t to = 0;
  const std::shared_ptr<RecordPoint> begin_point = first->state->latest();
  const std::shared_ptr<RecordPoint> end_point = second->state->latest();
  if (const Status status = timestamp(kName, "startEvent", begin_point, from)) return status;
  if (const Status status = timestamp(kName, "endEvent", end_point, to)) return status;
  if (begin_point->point != nullptr && end_point->point != nullptr) {
    // The device measures more closely than the clock of the host.
    to = from + begin_point->point->nanoseconds_to(*end_point->point);
  }
  if (to < from) {
    return fail(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL,
                "%s: endEvent ran %lld ns before startEvent, expected it after", kName,
                static_cast<long long>(from - to));
  }
  *ms = static_cast<float>(static_cast<double>(to - from) / kNanosecondsPerMillisecond);
  return kOk;
}

Status destroy_event(aclrtEvent handle) {
  if (events::table().destroy(handle)) return kOk;
  Status refusal = kOk;
  events::resolve("aclrtDestroyEvent", "event", handle, refusal);
  return refusal;
}

}  // namespace
}  // namespace aclgrad

using namespace aclgrad;

extern "C" {

aclError aclrtCreateEvent(aclrtEvent* event) {
  return guarded("aclrtCreateEvent", ACL_ERROR_BAD_ALLOC,
                 [&] { return create_event("aclrtCreateEvent", event, 0); });
}

aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) {
  return guarded("aclrtCreateEventWithFlag", ACL_ERROR_BAD_ALLOC,
                 [&] { return create_event("aclrtCreateEventWithFlag", event, flag); });
}

aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) {
  return guarded("aclrtCreateEventExWithFlag", ACL_ERROR_BAD_ALLOC,
                 [&] { return create_event("aclrtCreateEventExWithFlag", event, flag); });
}

aclError aclrtDestroyEvent(aclrtEvent event) {
  return guarded("aclrtDestroyEvent", ACL_ERROR_BAD_ALLOC, [&] { return destroy_event(event); });
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
  return guarded("aclrtRecordEvent", ACL_ERROR_BAD_ALLOC,
                 [&] { return queue("aclrtRecordEvent", &events::record, event, stream); });
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
  return guarded("aclrtResetEvent", ACL_ERROR_BAD_ALLOC,
                 [&] { return queue("aclrtResetEvent", &events::reset, event, stream); });
}

aclError aclrtSynchronizeEvent(aclrtEvent event) {
  return guarded("aclrtSynchronizeEvent", ACL_ERROR_BAD_ALLOC,
                 [&] { return synchronize_event(event); });
}

aclError aclrtQueryEvent(aclrtEvent event, aclrtEventStatus* status) {
  return guarded("aclrtQueryEvent", ACL_ERROR_BAD_ALLOC, [&] {
    return query("aclrtQueryEvent", event, status, ACL_EVENT_STATUS_COMPLETE,
                 ACL_EVENT_STATUS_NOT_READY);
  });
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus* status) {
  return guarded("aclrtQueryEventStatus", ACL_ERROR_BAD_ALLOC, [&] {
    return query("aclrtQueryEventStatus", event, status, ACL_EVENT_RECORDED_STATUS_COMPLETE,
                 ACL_EVENT_RECORDED_STATUS_NOT_READY);
  });
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus* status) {
  return guarded("aclrtQueryEventWaitStatus", ACL_ERROR_BAD_ALLOC,
                 [&] { return query_waits(event, status); });
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent startEvent, aclrtEvent endEvent) {
  return guarded("aclrtEventElapsedTime", ACL_ERROR_BAD_ALLOC,
                 [&] { return elapsed(ms, startEvent, endEvent); });
}

aclError aclrtEventGetTimestamp(aclrtEvent event, uint64_t* timestamp_out) {
  constexpr const char* kName = "aclrtEventGetTimestamp";
  constexpr int64_t kNanosecondsPerMicrosecond = 1000;
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [&] {
    if (timestamp_out == nullptr) return null_parameter(kName, "timestamp");
    Status refusal = kOk;
    const EventTable::Pin pin = events::resolve(kName, "event", event, refusal);
    if (!pin) return refusal;
    int64_t nanoseconds = 0;
    if (const Status status = timestamp(kName, "event", pin->state->latest(), nanoseconds))
      return status;
    *timestamp_out = static_cast<uint64_t>(nanoseconds / kNanosecondsPerMicrosecond);
    return kOk;
  });
}

}  // extern "C"

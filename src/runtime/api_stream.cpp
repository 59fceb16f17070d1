// SPDX-License-Identifier: Apache-2.0
// The C boundary: streams and callbacks.
#include <pthread.h>

#include <new>
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

constexpr uint32_t kStreamFlags = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC |
                                  ACL_STREAM_PERSISTENT | ACL_STREAM_HUGE |
                                  ACL_STREAM_CPU_SCHEDULE | ACL_STREAM_DEVICE_USE_ONLY;

StreamTable::Pin resolve(const char* function, aclrtStream stream, Status& refusal) {
  return streams::resolve(function, stream, ACL_ERROR_RT_STREAM_CONTEXT, refusal);
}

Status check_timeout(const char* function, int32_t timeout) {
  if (timeout >= -1) return kOk;
  return fail(ACL_ERROR_RT_PARAM_INVALID,
              "%s: timeout is %d, expected milliseconds, or -1 to wait for ever", function,
              timeout);
}

Status create_stream(const char* function, aclrtStream* stream) {
  if (stream == nullptr) return null_parameter(function, "stream");
  Status refusal = kOk;
  const ContextTable::Pin context = contexts::require_current(function, refusal);
  if (!context) return refusal;
  if (const Status status = backend().check(function, context->device)) return status;
  return streams::create(function, contexts::current(), context->device, false, *stream);
}

Status check_not_held(const char* function, const Stream& stream) {
  return callbacks::check_not_held(function, stream, ACL_ERROR_RT_PARAM_INVALID);
}

Status destroy_stream(const char* function, aclrtStream handle, bool abandon) {
  if (handle == nullptr) return null_parameter(function, "stream");
  {
    // Also on a device that has failed, which resolve() would refuse.
    const StreamTable::Pin pin = streams::table().pin(handle);
    if (!pin) {
      Status refusal = kOk;
      resolve(function, handle, refusal);
      return refusal;
    }
    if (pin->is_default) {
      return fail(ACL_ERROR_RT_STREAM_CONTEXT,
                  "%s: stream %p is a context's default stream, which goes with the context; "
                  "expected one of aclrtCreateStream",
                  function, handle);
    }
    if (const Status status = check_not_held(function, *pin->stream)) return status;
  }
  DataErrorList errors;
  if (!streams::destroy(handle, abandon, errors)) {
    return fail(ACL_ERROR_RT_STREAM_CONTEXT, "%s: stream %p is destroyed by another thread",
                function, handle);
  }
  return abandon ? kOk : report_errors(function, std::move(errors));
}

Status synchronize_stream(const char* function, aclrtStream handle, int32_t timeout) {
  if (const Status status = check_timeout(function, timeout)) return status;
  Status refusal = kOk;
  const StreamTable::Pin pin = resolve(function, handle, refusal);
  if (!pin) return refusal;
  Stream& stream = *pin->stream;
  if (const Status status = check_not_held(function, stream)) return status;
  const uint64_t last = stream.enqueued();
  if (stream.wait(last, Deadline::in_milliseconds(timeout), true) == Wait::kTimedOut) {
    return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "%s: not complete within timeout, %d ms",
                function, timeout);
  }
  if (const Status status = backend().check(function, pin->device)) return status;
  return stream.may_have_errors() ? report_errors(function, stream.take_errors(last)) : kOk;
}

Status launch_callback(aclrtCallback callback, void* data, int block, aclrtStream handle) {
  constexpr const char* kName = "aclrtLaunchCallback";
  if (callback == nullptr) return null_parameter(kName, "fn");
  if (block != ACL_CALLBACK_NO_BLOCK && block != ACL_CALLBACK_BLOCK) {
    return fail(ACL_ERROR_INVALID_PARAM,
                "%s: blockType is %d, expected ACL_CALLBACK_NO_BLOCK or ACL_CALLBACK_BLOCK", kName,
                block);
  }
  Status refusal = kOk;
  const StreamTable::Pin pin = resolve(kName, handle, refusal);
  if (!pin) return refusal;
  return callbacks::launch(kName, callback, data, block == ACL_CALLBACK_BLOCK, *pin);
}

Status wait_event(aclrtStream handle, aclrtEvent event_handle) {
  constexpr const char* kName = "aclrtStreamWaitEvent";
  Status refusal = kOk;
  const EventTable::Pin event = events::resolve(kName, "event", event_handle, refusal);
  if (!event) return refusal;
  const StreamTable::Pin stream = resolve(kName, handle, refusal);
  if (!stream) return refusal;
  if (events::wait(kName, event->state, stream->stream)) return kOk;
  return stream->stream->refusal(kName, ACL_ERROR_RT_STREAM_CONTEXT);
}

}  // namespace
}  // namespace aclgrad

using namespace aclgrad;

extern "C" {

aclError aclrtCreateStream(aclrtStream* stream) {
  return guarded("aclrtCreateStream", ACL_ERROR_BAD_ALLOC,
                 [&] { return create_stream("aclrtCreateStream", stream); });
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t, uint32_t flag) {
  constexpr const char* kName = "aclrtCreateStreamWithConfig";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [&] {
    if ((flag & ~kStreamFlags) != 0) {
      return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: flag is 0x%x, expected ACL_STREAM_ flags", kName,
                  flag);
    }
    return create_stream(kName, stream);
  });
}

aclError aclrtDestroyStream(aclrtStream stream) {
  return guarded("aclrtDestroyStream", ACL_ERROR_BAD_ALLOC,
                 [&] { return destroy_stream("aclrtDestroyStream", stream, false); });
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  return guarded("aclrtDestroyStreamForce", ACL_ERROR_BAD_ALLOC,
                 [&] { return destroy_stream("aclrtDestroyStreamForce", stream, true); });
}

aclError aclrtSynchronizeStream(aclrtStream stream) {
  return guarded("aclrtSynchronizeStream", ACL_ERROR_BAD_ALLOC,
                 [&] { return synchronize_stream("aclrtSynchronizeStream", stream, -1); });
}

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  constexpr const char* kName = "aclrtSynchronizeStreamWithTimeout";
  return guarded(kName, ACL_ERROR_BAD_ALLOC,
                 [&] { return synchronize_stream(kName, stream, timeout); });
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  return guarded("aclrtStreamQuery", ACL_ERROR_BAD_ALLOC, [&] {
    if (status == nullptr) return null_parameter("aclrtStreamQuery", "status");
    Status refusal = kOk;
    const StreamTable::Pin pin = resolve("aclrtStreamQuery", stream, refusal);
    if (!pin) return refusal;
    const uint64_t last = pin->stream->enqueued();
    *status =
        pin->stream->completed() >= last ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    return kOk;
  });
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t* streamId) {
  return guarded("aclrtStreamGetId", ACL_ERROR_BAD_ALLOC, [&] {
    if (streamId == nullptr) return null_parameter("aclrtStreamGetId", "streamId");
    Status refusal = kOk;
    const StreamTable::Pin pin = resolve("aclrtStreamGetId", stream, refusal);
    if (pin) *streamId = pin->id;
    return refusal;
  });
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
  return guarded("aclrtStreamWaitEvent", ACL_ERROR_BAD_ALLOC,
                 [&] { return wait_event(stream, event); });
}

aclError aclrtSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return guarded("aclrtSubscribeReport", ACL_ERROR_BAD_ALLOC, [&] {
    Status refusal = kOk;
    const StreamTable::Pin pin = resolve("aclrtSubscribeReport", stream, refusal);
    return pin ? callbacks::subscribe("aclrtSubscribeReport", threadId, *pin) : refusal;
  });
}

aclError aclrtUnSubscribeReport(uint64_t threadId, aclrtStream stream) {
  return guarded("aclrtUnSubscribeReport", ACL_ERROR_BAD_ALLOC, [&] {
    Status refusal = kOk;
    const StreamTable::Pin pin = resolve("aclrtUnSubscribeReport", stream, refusal);
    return pin ? callbacks::unsubscribe("aclrtUnSubscribeReport", threadId, *pin) : refusal;
  });
}

aclError aclrtProcessReport(int32_t timeout) {
  return guarded("aclrtProcessReport", ACL_ERROR_BAD_ALLOC, [&] {
    if (const Status status = check_timeout("aclrtProcessReport", timeout)) return status;
    return callbacks::process("aclrtProcessReport", static_cast<uint64_t>(pthread_self()), timeout);
  });
}

aclError aclrtLaunchCallback(aclrtCallback fn, void* userData, aclrtCallbackBlockType blockType,
                             aclrtStream stream) {
  return guarded("aclrtLaunchCallback", ACL_ERROR_BAD_ALLOC,
                 [=, block = static_cast<int>(blockType)] {
                   return launch_callback(fn, userData, block, stream);
                 });
}

}  // extern "C"

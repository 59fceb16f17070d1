// SPDX-License-Identifier: Apache-2.0
// The C boundary: devices and contexts.
#include <new>
#include <span>
#include <utility>

#include "acl/acl.h"
#include "base/status.h"
#include "runtime/api.h"
#include "runtime/callback.h"
#include "runtime/context.h"
#include "runtime/settings.h"
#include "runtime/stream_registry.h"

namespace aclgrad {
namespace {

constinit SystemParameters process_parameters;

Status check_device(const char* function, const char* name, int32_t device) {
  if (device >= 0 && device < settings().devices) return kOk;
  return fail(ACL_ERROR_RT_INVALID_DEVICEID, "%s: %s is %d, expected 0 to %d", function, name,
              device, settings().devices - 1);
}

Status check_context(const char* function, aclrtContext context) {
  if (context == nullptr) return null_parameter(function, "context");
  if (contexts::table().alive(context)) return kOk;
  return fail(ACL_ERROR_RT_CONTEXT_NULL, "%s: context %p is %s, expected a live context", function,
              context, handle::describe(context, Kind::kContext));
}

// What waits for a stream in a blocking callback of that stream would wait for itself.
Status check_none_held(const char* function, std::span<const streams::Listed> listed) {
  for (const streams::Listed& each : listed) {
    const Status status =
        callbacks::check_not_held(function, *each.stream, ACL_ERROR_RT_PARAM_INVALID);
    if (status != kOk) return status;
  }
  return kOk;
}

Status synchronize_device(const char* function, int32_t timeout) {
  if (timeout < -1) {
    return fail(ACL_ERROR_RT_PARAM_INVALID,
                "%s: timeout is %d, expected milliseconds, or -1 to wait for ever", function,
                timeout);
  }
  Status refusal = kOk;
  const ContextTable::Pin context = contexts::require_current(function, refusal);
  if (!context) return refusal;
  const Deadline deadline = Deadline::in_milliseconds(timeout);
  std::vector<std::pair<streams::Listed, uint64_t>> targets;
  for (streams::Listed& listed : streams::of_device(context->device)) {
    const uint64_t last = listed.stream->enqueued();
    if (listed.stream->completed() < last) {
      if (const Status status = check_none_held(function, {&listed, 1})) return status;
      if (!targets.empty()) listed.stream->hurry();
    }
    targets.emplace_back(std::move(listed), last);
  }
  for (const auto& [listed, last] : targets) {
    if (listed.stream->wait(last, deadline, true) == Wait::kTimedOut) {
      return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "%s: not complete within timeout, %d ms",
                  function, timeout);
    }
  }
  if (const Status status = backend().check(function, context->device)) return status;
  DataErrorList errors;
  for (const auto& [listed, last] : targets) {
    errors.splice(errors.end(), listed.stream->take_errors(last));
  }
  return report_errors(function, std::move(errors));
}

Status reset_device(int32_t device) {
  constexpr const char* kName = "aclrtResetDevice";
  if (const Status status = check_device(kName, "deviceId", device)) return status;
  // Listed before anything is released, because there may be no memory for it.
  const std::vector<streams::Listed> listed_streams = streams::of_device(device);
  if (contexts::device_references(device) == 1) {
    if (const Status status = check_none_held(kName, listed_streams)) return status;
  }
  aclrtContext context = nullptr;
  switch (contexts::release_device(device, context)) {
    case contexts::Release::kNotSet:
      return fail(ACL_ERROR_RT_PARAM_INVALID,
                  "%s: deviceId %d is not set, expected as many resets as aclrtSetDevice calls",
                  kName, device);
    case contexts::Release::kStillSet:
      return backend().check(kName, device);  // only the last one mends a device that has failed
    case contexts::Release::kLast:
      break;
  }
  DataErrorList errors;
  for (const streams::Listed& listed : listed_streams) {
    const uint64_t last = listed.stream->enqueued();
    listed.stream->wait(last, Deadline::never(), true);
    errors.splice(errors.end(), listed.stream->take_errors(last));
  }
  contexts::destroy(context, errors);
  const Status failed = backend().check(kName, device);
  if (failed == kOk) return report_errors(kName, std::move(errors));
  backend().reset(device);
  return failed;
}

Status create_context(aclrtContext* context, int32_t device) {
  constexpr const char* kName = "aclrtCreateContext";
  if (context == nullptr) return null_parameter(kName, "context");
  if (const Status status = check_device(kName, "deviceId", device)) return status;
  if (const Status status = backend().check(kName, device)) return status;
  if (const Status status = contexts::create(kName, device, false, *context)) return status;
  contexts::set_current(*context);
  return kOk;
}

Status destroy_context(aclrtContext context) {
  constexpr const char* kName = "aclrtDestroyContext";
  if (const Status status = check_context(kName, context)) return status;
  {
    const ContextTable::Pin pin = contexts::table().pin(context);
    if (pin && pin->is_default) {
      return fail(ACL_ERROR_RT_PARAM_INVALID,
                  "%s: context %p is a device's default context, which aclrtResetDevice releases; "
                  "expected one of aclrtCreateContext",
                  kName, context);
    }
  }
  if (const Status status = check_none_held(kName, streams::of_context(context))) return status;
  DataErrorList errors;
  if (!contexts::destroy(context, errors)) return check_context(kName, context);
  return report_errors(kName, std::move(errors));
}

Status check_option(const char* function, int option) {
  if (SystemParameters::known(option)) return kOk;
  return fail(ACL_ERROR_INVALID_PARAM, "%s: opt is %d, expected an aclSysParamOpt", function,
              option);
}

Status read_option(const char* function, const SystemParameters& parameters, int option,
                   int64_t* value) {
  const std::optional<int64_t> set = parameters.get(option);
  if (!set) {
    return fail(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET, "%s: opt is %d, expected one that was set before",
                function, option);
  }
  *value = *set;
  return kOk;
}

Status enable_peer(int32_t peer, uint32_t flags) {
  constexpr const char* kName = "aclrtDeviceEnablePeerAccess";
  if (const Status status = check_device(kName, "peerDeviceId", peer)) return status;
  if (flags != 0) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: flags is %u, expected 0", kName, flags);
  }
  const int32_t device = contexts::current_device();
  if (peer == device) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: peerDeviceId is %d, expected another device",
                kName, peer);
  }
  return backend().enable_access(kName, device, peer);
}

Status set_saturation(int mode) {
  constexpr const char* kName = "aclrtSetDeviceSatMode";
  switch (mode) {
    case ACL_RT_OVERFLOW_MODE_INFNAN:
      return kOk;
    case ACL_RT_OVERFLOW_MODE_SATURATION:
      return fail(ACL_ERROR_FEATURE_UNSUPPORTED,
                  "%s: mode is SATURATION, expected INFNAN: operators overflow to Inf", kName);
    default:
      return fail(ACL_ERROR_INVALID_PARAM, "%s: mode is %d, expected ACL_RT_OVERFLOW_MODE_INFNAN",
                  kName, mode);
  }
}

}  // namespace
}  // namespace aclgrad

using namespace aclgrad;

extern "C" {

aclError aclrtGetDeviceCount(uint32_t* count) {
  return guarded("aclrtGetDeviceCount", ACL_ERROR_BAD_ALLOC, [&] {
    if (count == nullptr) return null_parameter("aclrtGetDeviceCount", "count");
    *count = static_cast<uint32_t>(settings().devices);
    return kOk;
  });
}

aclError aclrtSetDevice(int32_t deviceId) {
  return guarded("aclrtSetDevice", ACL_ERROR_BAD_ALLOC, [&] {
    if (const Status status = check_device("aclrtSetDevice", "deviceId", deviceId)) return status;
    if (const Status status = backend().check("aclrtSetDevice", deviceId)) return status;
    return contexts::retain_device("aclrtSetDevice", deviceId);
  });
}

aclError aclrtGetDevice(int32_t* deviceId) {
  return guarded("aclrtGetDevice", ACL_ERROR_BAD_ALLOC, [&] {
    if (deviceId == nullptr) return null_parameter("aclrtGetDevice", "deviceId");
    Status refusal = kOk;
    const ContextTable::Pin context = contexts::require_current("aclrtGetDevice", refusal);
    if (context) *deviceId = context->device;
    return refusal;
  });
}

aclError aclrtResetDevice(int32_t deviceId) {
  return guarded("aclrtResetDevice", ACL_ERROR_BAD_ALLOC, [&] { return reset_device(deviceId); });
}

aclError aclrtSynchronizeDevice(void) {
  return guarded("aclrtSynchronizeDevice", ACL_ERROR_BAD_ALLOC,
                 [] { return synchronize_device("aclrtSynchronizeDevice", -1); });
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  return guarded("aclrtSynchronizeDeviceWithTimeout", ACL_ERROR_BAD_ALLOC,
                 [&] { return synchronize_device("aclrtSynchronizeDeviceWithTimeout", timeout); });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  return guarded("aclrtGetRunMode", ACL_ERROR_BAD_ALLOC, [&] {
    if (runMode == nullptr) return null_parameter("aclrtGetRunMode", "runMode");
    *runMode = ACL_HOST;
    return kOk;
  });
}

aclError aclrtCreateContext(aclrtContext* context, int32_t deviceId) {
  return guarded("aclrtCreateContext", ACL_ERROR_BAD_ALLOC,
                 [&] { return create_context(context, deviceId); });
}

aclError aclrtDestroyContext(aclrtContext context) {
  return guarded("aclrtDestroyContext", ACL_ERROR_BAD_ALLOC,
                 [&] { return destroy_context(context); });
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  return guarded("aclrtSetCurrentContext", ACL_ERROR_BAD_ALLOC, [&] {
    if (const Status status = check_context("aclrtSetCurrentContext", context)) return status;
    contexts::set_current(context);
    return kOk;
  });
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  return guarded("aclrtGetCurrentContext", ACL_ERROR_BAD_ALLOC, [&] {
    if (context == nullptr) return null_parameter("aclrtGetCurrentContext", "context");
    Status refusal = kOk;
    if (contexts::require_current("aclrtGetCurrentContext", refusal)) {
      *context = contexts::current();
    }
    return refusal;
  });
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream* stream) {
  constexpr const char* kName = "aclrtCtxGetCurrentDefaultStream";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [&] {
    if (stream == nullptr) return null_parameter(kName, "stream");
    Status refusal = kOk;
    const ContextTable::Pin context = contexts::require_current(kName, refusal);
    if (context) *stream = context->default_stream.load(std::memory_order_acquire);
    return refusal;
  });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  constexpr const char* kName = "aclrtCtxSetSysParamOpt";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [option = static_cast<int>(opt), value] {
    if (const Status status = check_option(kName, option)) return status;
    Status refusal = kOk;
    const ContextTable::Pin context = contexts::require_current(kName, refusal);
    if (context) context->parameters.set(option, value);
    return refusal;
  });
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  constexpr const char* kName = "aclrtCtxGetSysParamOpt";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [option = static_cast<int>(opt), value] {
    if (value == nullptr) return null_parameter(kName, "value");
    if (const Status status = check_option(kName, option)) return status;
    Status refusal = kOk;
    const ContextTable::Pin context = contexts::require_current(kName, refusal);
    return context ? read_option(kName, context->parameters, option, value) : refusal;
  });
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  constexpr const char* kName = "aclrtSetSysParamOpt";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [option = static_cast<int>(opt), value] {
    if (const Status status = check_option(kName, option)) return status;
    process_parameters.set(option, value);
    return kOk;
  });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  constexpr const char* kName = "aclrtGetSysParamOpt";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [option = static_cast<int>(opt), value] {
    if (value == nullptr) return null_parameter(kName, "value");
    if (const Status status = check_option(kName, option)) return status;
    return read_option(kName, process_parameters, option, value);
  });
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  return guarded("aclrtSetDeviceSatMode", ACL_ERROR_BAD_ALLOC,
                 [number = static_cast<int>(mode)] { return set_saturation(number); });
}

aclError aclrtDeviceCanAccessPeer(int32_t* canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
  constexpr const char* kName = "aclrtDeviceCanAccessPeer";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [&] {
    if (canAccessPeer == nullptr) return null_parameter(kName, "canAccessPeer");
    if (const Status status = check_device(kName, "deviceId", deviceId)) return status;
    if (const Status status = check_device(kName, "peerDeviceId", peerDeviceId)) return status;
    *canAccessPeer =
        deviceId != peerDeviceId && backend().can_access(deviceId, peerDeviceId) ? 1 : 0;
    return kOk;
  });
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t flags) {
  return guarded("aclrtDeviceEnablePeerAccess", ACL_ERROR_BAD_ALLOC,
                 [&] { return enable_peer(peerDeviceId, flags); });
}

}  // extern "C"

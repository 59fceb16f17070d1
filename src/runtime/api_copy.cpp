// SPDX-License-Identifier: Apache-2.0
// The C boundary: copies and fills, at once or on a stream.
#include <memory>

#include "acl/acl.h"
#include "base/status.h"
#include "runtime/api.h"
#include "runtime/backend.h"
#include "runtime/callback.h"
#include "runtime/memory.h"
#include "runtime/stream_registry.h"

namespace aclgrad {
namespace {

class CopyWork final : public Work {
 public:
  CopyWork(void* to, const void* from, size_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  void run(DataErrors&) noexcept override {
    static_cast<void>(backend().copy("", to_, from_, bytes_));
  }
  Status submit(const char* function, DeviceQueue& queue) override {
    return queue.copy(function, to_, from_, bytes_);
  }

 private:
  void* to_;
  const void* from_;
  size_t bytes_;
};

class FillWork final : public Work {
 public:
  FillWork(void* to, int32_t value, size_t bytes) : to_(to), value_(value), bytes_(bytes) {}
  void run(DataErrors&) noexcept override {
    static_cast<void>(backend().fill("", to_, value_, bytes_));
  }
  Status submit(const char* function, DeviceQueue& queue) override {
    return queue.fill(function, to_, value_, bytes_);
  }

 private:
  void* to_;
  int32_t value_;
  size_t bytes_;
};

// A range must not begin in dead memory, nor leave the allocation it begins in.
Status check_range(const char* function, const char* name, const void* address, size_t count,
                   AddressKind& kind) {
  const Allocation found = memory::find(address);
  kind = found.kind;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  switch (found.kind) {
    case AddressKind::kDeadDevice:
    case AddressKind::kDeadHost:
      return fail(ACL_ERROR_RT_PARAM_INVALID,
                  "%s: %s %p is in no live allocation, expected memory that is not freed", function,
                  name, address);
    case AddressKind::kDevice:
    case AddressKind::kHost: {
      const size_t rest = found.size - (begin - found.begin);
      if (count <= rest) return kOk;
      return fail(ACL_ERROR_RT_PARAM_INVALID,
                  "%s: count is %zu, expected at most %zu, what %s's allocation has left from %p",
                  function, count, rest, name, address);
    }
    case AddressKind::kUnknown:
    case AddressKind::kForeignDevice:
    case AddressKind::kPageable:
    case AddressKind::kForeignHost:
      break;
  }
  if (begin + count >= begin) return kOk;
  return fail(ACL_ERROR_RT_PARAM_INVALID,
              "%s: count is %zu, expected an end of %s that is an address", function, count, name);
}

bool valid_kind(int kind) {
  return kind >= ACL_MEMCPY_HOST_TO_HOST && kind <= ACL_MEMCPY_INTER_DEVICE_TO_DEVICE;
}

struct Copy {
  void* to;
  size_t most;
  const void* from;
  size_t count;
  int kind;  // an aclrtMemcpyKind, if it is one
};

enum class Side : uint8_t { kAny, kHost, kDevice };
struct Sides {
  Side to, from;
};
Sides sides_of(int kind) {
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_HOST:
      return {Side::kHost, Side::kHost};
    case ACL_MEMCPY_HOST_TO_DEVICE:
    case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE:
      return {Side::kDevice, Side::kHost};
    case ACL_MEMCPY_DEVICE_TO_HOST:
      return {Side::kHost, Side::kDevice};
    case ACL_MEMCPY_DEFAULT:
      return {Side::kAny, Side::kAny};
    default:
      return {Side::kDevice, Side::kDevice};
  }
}

// Memory that another allocator gave both the host and the device (kUnknown) is of either side.
Status check_side(const char* function, const char* name, const void* address, AddressKind found,
                  Side side) {
  const bool of_device = found == AddressKind::kDevice || found == AddressKind::kForeignDevice;
  if (side == Side::kAny || found == AddressKind::kUnknown ||
      of_device == (side == Side::kDevice)) {
    return kOk;
  }
  return fail(ACL_ERROR_RT_PARAM_INVALID,
              "%s: %s %p is %s; expected memory of the %s, as kind says", function, name, address,
              of_device                         ? "memory of a device"
              : found == AddressKind::kPageable ? "memory of the host, or freed"
                                                : "pinned memory of the host",
              of_device ? "host" : "device");
}

// `nothing`: the call is done. `pageable`: a side is host memory that the library did not allocate.
Status check_copy(const char* function, const Copy& copy, bool& nothing, bool& pageable) {
  nothing = copy.count == 0;
  if (nothing) return kOk;
  if (copy.to == nullptr) return null_parameter(function, "dst");
  if (copy.from == nullptr) return null_parameter(function, "src");
  if (copy.count > copy.most) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: count is %zu, expected at most destMax, %zu",
                function, copy.count, copy.most);
  }
  nothing = copy.to == copy.from;
  if (nothing) return kOk;
  if (!valid_kind(copy.kind)) {
    return fail(ACL_ERROR_INVALID_PARAM, "%s: kind is %d, expected an aclrtMemcpyKind", function,
                copy.kind);
  }
  AddressKind to{}, from{};
  if (const Status status = check_range(function, "dst", copy.to, copy.count, to)) return status;
  if (const Status status = check_range(function, "src", copy.from, copy.count, from)) {
    return status;
  }
  if (!backend().has_queues()) {
    pageable = to == AddressKind::kUnknown || from == AddressKind::kUnknown;
    return kOk;  // there the kind is only advice
  }
  pageable = to == AddressKind::kPageable || from == AddressKind::kPageable;
  const Sides sides = sides_of(copy.kind);
  if (const Status status = check_side(function, "dst", copy.to, to, sides.to)) return status;
  return check_side(function, "src", copy.from, from, sides.from);
}

Status check_fill(const char* function, void* to, size_t most, size_t count, bool& nothing) {
  nothing = count == 0;
  if (nothing) return kOk;
  if (to == nullptr) return null_parameter(function, "devPtr");
  if (count > most) {
    return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: count is %zu, expected at most maxCount, %zu",
                function, count, most);
  }
  AddressKind kind{};
  if (const Status status = check_range(function, "devPtr", to, count, kind)) return status;
  const bool pinned =
      backend().has_queues() && (kind == AddressKind::kHost || kind == AddressKind::kForeignHost);
  if (kind != AddressKind::kPageable && !pinned) return kOk;
  return fail(ACL_ERROR_RT_PARAM_INVALID, "%s: devPtr %p is %s; expected memory of a device",
              function, to, pinned ? "pinned memory of the host" : "memory of the host, or freed");
}

Status copy_now(const Copy& copy) {
  bool nothing = false;
  bool pageable = false;
  const AddressUse use;
  if (const Status status = check_copy("aclrtMemcpy", copy, nothing, pageable)) return status;
  return nothing ? kOk : backend().copy("aclrtMemcpy", copy.to, copy.from, copy.count);
}

Status refuse_ended(const char* function) {
  return fail(ACL_ERROR_RT_STREAM_CONTEXT,
              "%s: the stream takes no more work, it is being destroyed or the process is ending",
              function);
}

// Ends `use` when the work is queued, before it waits.
Status queue(const char* function, aclrtStream handle, Work* work, bool await, AddressUse& use) {
  std::unique_ptr<Work> owned(work);
  Status refusal = kOk;
  const StreamTable::Pin pin =
      streams::resolve(function, handle, ACL_ERROR_RT_STREAM_CONTEXT, refusal);
  if (!pin) return refusal;
  if (await) {
    refusal = callbacks::check_not_held(function, *pin->stream, ACL_ERROR_RT_PARAM_INVALID);
    if (refusal != kOk) return refusal;
  }
  const uint64_t sequence = pin->stream->enqueue(function, owned.release());
  use.end();
  if (sequence == 0) return pin->stream->refusal(function, ACL_ERROR_RT_STREAM_CONTEXT);
  if (!await) return kOk;
  if (pin->stream->wait(sequence, Deadline::never(), true) == Wait::kAbandoned) {
    return refuse_ended(function);
  }
  return backend().check(function, pin->device);
}

// Behind everything queued so far, from or to memory that CUDA does not know: it would wait for the
// stream while the copy is handed over, and nobody could queue anything meanwhile.
Status copy_behind(const char* function, const Copy& copy, aclrtStream handle) {
  Status refusal = kOk;
  {
    const StreamTable::Pin pin =
        streams::resolve(function, handle, ACL_ERROR_RT_STREAM_CONTEXT, refusal);
    if (!pin) return refusal;
    Stream& stream = *pin->stream;
    refusal = callbacks::check_not_held(function, stream, ACL_ERROR_RT_PARAM_INVALID);
    if (refusal != kOk) return refusal;
    if (stream.wait(stream.enqueued(), Deadline::never(), true) == Wait::kAbandoned) {
      return refuse_ended(function);
    }
    if (const Status status = stream.check(function)) return status;
  }
  bool nothing = false;
  bool pageable = false;
  const AddressUse use;
  if (const Status status = check_copy(function, copy, nothing, pageable)) return status;
  return backend().copy(function, copy.to, copy.from, copy.count);
}

Status copy_later(const Copy& copy, aclrtStream stream) {
  constexpr const char* kName = "aclrtMemcpyAsync";
  bool nothing = false;
  bool pageable = false;
  AddressUse use;
  if (const Status status = check_copy(kName, copy, nothing, pageable)) return status;
  if (nothing) return kOk;
  if (pageable && backend().has_queues()) {
    use.end();
    return copy_behind(kName, copy, stream);
  }
  return queue(kName, stream, new CopyWork(copy.to, copy.from, copy.count), pageable, use);
}

}  // namespace
}  // namespace aclgrad

using namespace aclgrad;

extern "C" {

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count,
                     aclrtMemcpyKind kind) {
  const Copy copy{dst, destMax, src, count, static_cast<int>(kind)};
  return guarded("aclrtMemcpy", ACL_ERROR_BAD_ALLOC, [&] { return copy_now(copy); });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count,
                          aclrtMemcpyKind kind, aclrtStream stream) {
  const Copy copy{dst, destMax, src, count, static_cast<int>(kind)};
  return guarded("aclrtMemcpyAsync", ACL_ERROR_BAD_ALLOC, [&] { return copy_later(copy, stream); });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return guarded("aclrtMemset", ACL_ERROR_BAD_ALLOC, [&] {
    bool nothing = false;
    const AddressUse use;
    if (const Status status = check_fill("aclrtMemset", devPtr, maxCount, count, nothing)) {
      return status;
    }
    return nothing ? kOk : backend().fill("aclrtMemset", devPtr, value, count);
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count,
                          aclrtStream stream) {
  constexpr const char* kName = "aclrtMemsetAsync";
  return guarded(kName, ACL_ERROR_BAD_ALLOC, [&] {
    bool nothing = false;
    AddressUse use;
    if (const Status status = check_fill(kName, devPtr, maxCount, count, nothing)) return status;
    return nothing ? kOk : queue(kName, stream, new FillWork(devPtr, value, count), false, use);
  });
}

}  // extern "C"

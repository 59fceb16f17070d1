// SPDX-License-Identifier: Apache-2.0
// What all C functions of this floor begin with: refusing null and dead handles, and the guard of
// the functions that return a handle.
#ifndef ACLGRAD_TENSOR_BOUNDARY_H_
#define ACLGRAD_TENSOR_BOUNDARY_H_

#include <utility>

#include "base/handle_table.h"
#include "base/status.h"

namespace aclgrad {

// guarded() for a creating function: `body` returns the handle, or null after leaving a message.
template <class T, class Body>
T* guarded_creation(const char* function, Body&& body) noexcept {
  void* handle = nullptr;
  const Status status = guarded(function, ACL_ERROR_BAD_ALLOC, [&] {
    handle = body();
    return kOk;
  });
  return status == kOk ? static_cast<T*>(handle) : nullptr;
}

inline Status refuse_null(const char* function, const char* parameter, Status code) {
  return fail(code, "%s: %s is null; expected a valid pointer", function, parameter);
}

inline Status refuse_handle(const char* function, const char* parameter, const void* handle,
                            Kind kind, Status code) {
  return fail(code, "%s: %s is %s; expected a live handle of %s", function, parameter,
              handle::describe(handle, kind), handle::kind_name(handle::tag(kind)));
}

// Calls body(object) with the object behind `handle` kept alive, or refuses.
template <class T, class Body>
Status with_object(const char* function, const char* parameter, HandleTable<T>& table, Kind kind,
                   const void* handle, Body&& body) noexcept {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [&]() -> Status {
    if (handle == nullptr) return refuse_null(function, parameter, kParamNullptr);
    const auto pin = table.pin(handle);
    if (!pin) return refuse_handle(function, parameter, handle, kind, kParamInvalid);
    return body(*pin);
  });
}

// aclDestroy...: null is fine, anything else has to be a live handle.
template <class T>
Status destroy_object(const char* function, const char* parameter, HandleTable<T>& table, Kind kind,
                      const void* handle) noexcept {
  return guarded(function, ACL_ERROR_BAD_ALLOC, [&]() -> Status {
    if (handle == nullptr || table.destroy(handle)) return kOk;
    return refuse_handle(function, parameter, handle, kind, kParamInvalid);
  });
}

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_BOUNDARY_H_

// SPDX-License-Identifier: Apache-2.0
// Status codes and the per-thread messages that explain them.
//
// Every refusal goes through fail(): it stores one message in the slot that aclGetRecentErrMsg
// reads and hands the code back, so a check is written `return fail(code, "...", ...)`.
#ifndef ACLGRAD_BASE_STATUS_H_
#define ACLGRAD_BASE_STATUS_H_

#include <cstdint>
#include <new>

#include "acl/acl_base.h"

namespace aclgrad {

// aclError and aclnnStatus are the same 32-bit integer under two names.
using Status = int32_t;

inline constexpr Status kOk = 0;
// Status values of aclnn functions; no public header declares them (programs define their own).
inline constexpr Status kParamNullptr = 161001;
inline constexpr Status kParamInvalid = 161002;
inline constexpr Status kRuntimeError = 361001;
inline constexpr Status kInner = 561000;
inline constexpr Status kInnerFindKernel = 561003;
inline constexpr Status kInnerCreateExecutor = 561101;
inline constexpr Status kInnerNullptr = 561103;

extern "C" {
// Formats a message (printf rules), stores it as this thread's newest and returns `code`.
// Never throws: without memory a shorter fixed text is stored instead.
[[gnu::visibility("default"), gnu::format(printf, 2, 3)]] Status aclgrad_fail(Status code,
                                                                              const char* format,
                                                                              ...) noexcept;
// 0, or ACL_ERROR_INTERNAL_ERROR with a message in a process that was forked from one that had
// loaded the library: its worker threads do not exist there and a lock may be held for ever.
[[gnu::visibility("default")]] Status aclgrad_check_process(const char* function) noexcept;
}

// The name the code uses; a reference to the function keeps the compiler's check of the format.
inline constexpr auto& fail = aclgrad_fail;

// The boundary of every C function: refuses in a forked child and turns exceptions into codes.
// `out_of_memory` is what the contract gives for that function (200000, 207001 or 561101).
template <class Body>
Status guarded(const char* function, Status out_of_memory, Body&& body) noexcept {
  if (const Status status = aclgrad_check_process(function)) return status;
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return aclgrad_fail(out_of_memory, "%s: out of memory (%d)", function, int{out_of_memory});
  } catch (...) {
    return aclgrad_fail(ACL_ERROR_INTERNAL_ERROR, "%s: unexpected internal error", function);
  }
}

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_STATUS_H_

// SPDX-License-Identifier: Apache-2.0
// What the files of the C boundary share.
#ifndef ACLGRAD_RUNTIME_API_H_
#define ACLGRAD_RUNTIME_API_H_

#include "acl/acl.h"
#include "base/status.h"

namespace aclgrad {

inline Status null_parameter(const char* function, const char* name) {
  return fail(ACL_ERROR_INVALID_PARAM, "%s: %s is null, expected a pointer", function, name);
}

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_API_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef ACLGRAD_ACL_ACL_H_
#define ACLGRAD_ACL_ACL_H_

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#endif  // ACLGRAD_ACL_ACL_H_

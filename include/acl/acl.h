// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The whole runtime interface: types, values, devices, memory, streams and events.
 *
 * Source: CANN runtime reference.
 */
#ifndef ACLGRAD_ACL_ACL_H_
#define ACLGRAD_ACL_ACL_H_

#include "acl/acl_base.h"
#include "acl/acl_rt.h"

#endif  // ACLGRAD_ACL_ACL_H_

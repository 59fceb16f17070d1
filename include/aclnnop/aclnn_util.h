// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The export macro of the operator headers.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_UTIL_H_
#define ACLGRAD_ACLNNOP_ACLNN_UTIL_H_

/** Marks the functions that libopapi.so exports. */
#ifndef ACLNN_API
#define ACLNN_API __attribute__((visibility("default")))
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_UTIL_H_

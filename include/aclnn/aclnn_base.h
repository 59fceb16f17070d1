// SPDX-License-Identifier: Apache-2.0
#ifndef ACLGRAD_ACLNN_ACLNN_BASE_H_
#define ACLGRAD_ACLNN_ACLNN_BASE_H_

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char* configPath);
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNN_ACLNN_BASE_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H_
#define ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

ACLNN_API aclnnStatus aclnnNsaCompressGradGetWorkspaceSize(const aclTensor* outputGrad, const aclTensor* input, const aclTensor* weight, const aclIntArray* actSeqLenOptionalOptional, int64_t compressBlockSize, int64_t compressStride, int64_t actSeqLenType, char* layoutOptionalOptional, const aclTensor* inputGradOut, const aclTensor* weightGradOut, uint64_t* workspaceSize, aclOpExecutor** executor);

ACLNN_API aclnnStatus aclnnNsaCompressGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H_

// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_nsa_compress_grad.h"

#include "ops/nsa_compress_grad/problem.h"
#include "tensor/launch.h"

using aclgrad::nsa_compress_grad::Arguments;
using aclgrad::nsa_compress_grad::parse;

aclnnStatus aclnnNsaCompressGradGetWorkspaceSize(
    const aclTensor* outputGrad, const aclTensor* input, const aclTensor* weight,
    const aclIntArray* actSeqLenOptionalOptional, int64_t compressBlockSize, int64_t compressStride,
    int64_t actSeqLenType, char* layoutOptionalOptional, const aclTensor* inputGradOut,
    const aclTensor* weightGradOut, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments arguments{
      outputGrad,        input,          weight,        actSeqLenOptionalOptional,
      compressBlockSize, compressStride, actSeqLenType, layoutOptionalOptional,
      inputGradOut,      weightGradOut,  workspaceSize, executor};
  return aclgrad::plan_phase("aclnnNsaCompressGrad",
                             aclgrad::CallKey(outputGrad, input, weight, actSeqLenOptionalOptional,
                                              compressBlockSize, compressStride, actSeqLenType,
                                              layoutOptionalOptional, inputGradOut, weightGradOut),
                             workspaceSize, executor,
                             [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnNsaCompressGrad(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                 aclrtStream stream) {
  return aclgrad::run_phase("aclnnNsaCompressGrad", workspace, workspaceSize, executor, stream);
}

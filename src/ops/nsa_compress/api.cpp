// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_nsa_compress.h"

#include "ops/nsa_compress/problem.h"
#include "tensor/launch.h"

using aclgrad::nsa_compress::Arguments;
using aclgrad::nsa_compress::parse;

aclnnStatus aclnnNsaCompressGetWorkspaceSize(const aclTensor* input, const aclTensor* weight,
                                             const aclIntArray* actSeqLenOptional,
                                             char* layoutOptional, int64_t compressBlockSize,
                                             int64_t compressStride, int64_t actSeqLenType,
                                             aclTensor* output, uint64_t* workspaceSize,
                                             aclOpExecutor** executor) {
  const Arguments arguments{
      input,         weight, actSeqLenOptional, layoutOptional, compressBlockSize, compressStride,
      actSeqLenType, output, workspaceSize,     executor};
  return aclgrad::plan_phase(
      "aclnnNsaCompress",
      aclgrad::CallKey(input, weight, actSeqLenOptional, layoutOptional, compressBlockSize,
                       compressStride, actSeqLenType, output),
      workspaceSize, executor, [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnNsaCompress(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                             aclrtStream stream) {
  return aclgrad::run_phase("aclnnNsaCompress", workspace, workspaceSize, executor, stream);
}

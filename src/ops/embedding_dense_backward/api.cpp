// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_embedding_dense_backward.h"

#include "ops/embedding_dense_backward/problem.h"
#include "tensor/launch.h"

using aclgrad::embedding_dense_backward::Arguments;
using aclgrad::embedding_dense_backward::parse;

aclnnStatus aclnnEmbeddingDenseBackwardGetWorkspaceSize(
    const aclTensor* grad, const aclTensor* indices, uint64_t numWeights, uint64_t paddingIdx,
    bool scaleGradByFreq, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments arguments{grad, indices,       numWeights, paddingIdx, scaleGradByFreq,
                            out,  workspaceSize, executor};
  return aclgrad::plan_phase(
      "aclnnEmbeddingDenseBackward",
      aclgrad::CallKey(grad, indices, numWeights, paddingIdx, scaleGradByFreq, out), workspaceSize,
      executor, [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnEmbeddingDenseBackward(void* workspace, uint64_t workspaceSize,
                                        aclOpExecutor* executor, const aclrtStream stream) {
  return aclgrad::run_phase("aclnnEmbeddingDenseBackward", workspace, workspaceSize, executor,
                            stream);
}

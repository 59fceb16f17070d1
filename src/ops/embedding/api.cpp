// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_embedding.h"

#include "ops/embedding/problem.h"
#include "tensor/launch.h"

using aclgrad::embedding::Arguments;
using aclgrad::embedding::parse;

aclnnStatus aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight, const aclTensor* indices,
                                           const aclTensor* out, uint64_t* workspaceSize,
                                           aclOpExecutor** executor) {
  const Arguments arguments{weight, indices, out, workspaceSize, executor};
  return aclgrad::plan_phase("aclnnEmbedding", aclgrad::CallKey(weight, indices, out),
                             workspaceSize, executor,
                             [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnEmbedding(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                           aclrtStream stream) {
  return aclgrad::run_phase("aclnnEmbedding", workspace, workspaceSize, executor, stream);
}

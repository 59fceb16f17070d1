// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_layer_norm_backward.h"

#include "ops/layer_norm_backward/problem.h"
#include "tensor/launch.h"

using aclgrad::layer_norm_backward::Arguments;
using aclgrad::layer_norm_backward::parse;

aclnnStatus aclnnLayerNormBackwardGetWorkspaceSize(
    const aclTensor* gradOut, const aclTensor* input, const aclIntArray* normalizedShape,
    const aclTensor* mean, const aclTensor* rstd, const aclTensor* weightOptional,
    const aclTensor* biasOptional, const aclBoolArray* outputMask, aclTensor* gradInputOut,
    aclTensor* gradWeightOut, aclTensor* gradBiasOut, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  const Arguments arguments{gradOut,      input,          normalizedShape, mean,
                            rstd,         weightOptional, biasOptional,    outputMask,
                            gradInputOut, gradWeightOut,  gradBiasOut,     workspaceSize,
                            executor};
  return aclgrad::plan_phase(
      "aclnnLayerNormBackward",
      aclgrad::CallKey(gradOut, input, normalizedShape, mean, rstd, weightOptional, biasOptional,
                       outputMask, gradInputOut, gradWeightOut, gradBiasOut),
      workspaceSize, executor, [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnLayerNormBackward(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return aclgrad::run_phase("aclnnLayerNormBackward", workspace, workspaceSize, executor, stream);
}

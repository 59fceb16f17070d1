// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"

#include "ops/scaled_masked_softmax_backward/problem.h"
#include "tensor/launch.h"

using aclgrad::scaled_masked_softmax_backward::Arguments;
using aclgrad::scaled_masked_softmax_backward::parse;

aclnnStatus aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* y, const aclTensor* mask, double scale,
    bool fixTriuMask, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments arguments{gradOutput, y, mask, scale, fixTriuMask, out, workspaceSize, executor};
  return aclgrad::plan_phase("aclnnScaledMaskedSoftmaxBackward",
                             aclgrad::CallKey(gradOutput, y, mask, scale, fixTriuMask, out),
                             workspaceSize, executor,
                             [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnScaledMaskedSoftmaxBackward(void* workspace, uint64_t workspaceSize,
                                             aclOpExecutor* executor, aclrtStream stream) {
  return aclgrad::run_phase("aclnnScaledMaskedSoftmaxBackward", workspace, workspaceSize, executor,
                            stream);
}

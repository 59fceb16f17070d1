// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_scaled_masked_softmax.h"

#include "ops/scaled_masked_softmax/problem.h"
#include "tensor/launch.h"

using aclgrad::scaled_masked_softmax::Arguments;
using aclgrad::scaled_masked_softmax::parse;

aclnnStatus aclnnScaledMaskedSoftmaxGetWorkspaceSize(const aclTensor* x, const aclTensor* mask,
                                                     double scale, bool fixedTriuMask, aclTensor* y,
                                                     uint64_t* workspaceSize,
                                                     aclOpExecutor** executor) {
  const Arguments arguments{x, mask, scale, fixedTriuMask, y, workspaceSize, executor};
  return aclgrad::plan_phase(
      "aclnnScaledMaskedSoftmax", aclgrad::CallKey(x, mask, scale, fixedTriuMask, y), workspaceSize,
      executor, [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnScaledMaskedSoftmax(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream) {
  return aclgrad::run_phase("aclnnScaledMaskedSoftmax", workspace, workspaceSize, executor, stream);
}

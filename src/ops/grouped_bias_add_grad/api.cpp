// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_grouped_bias_add_grad.h"

#include "ops/grouped_bias_add_grad/problem.h"
#include "tensor/launch.h"

using aclgrad::grouped_bias_add_grad::Arguments;
using aclgrad::grouped_bias_add_grad::parse;

namespace {
constexpr const char* kFirst = "aclnnGroupedBiasAddGrad";
constexpr const char* kSecond = "aclnnGroupedBiasAddGradV2";
}  // namespace

aclnnStatus aclnnGroupedBiasAddGradGetWorkspaceSize(const aclTensor* gradY,
                                                    const aclTensor* groupIdxOptional,
                                                    aclTensor* out, uint64_t* workspaceSize,
                                                    aclOpExecutor** executor) {
  const Arguments arguments{kFirst, gradY, groupIdxOptional, 0, out, workspaceSize, executor};
  return aclgrad::plan_phase(kFirst, aclgrad::CallKey(gradY, groupIdxOptional, out), workspaceSize,
                             executor,
                             [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnGroupedBiasAddGrad(void* workspace, uint64_t workspaceSize,
                                    aclOpExecutor* executor, aclrtStream stream) {
  return aclgrad::run_phase(kFirst, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnGroupedBiasAddGradV2GetWorkspaceSize(const aclTensor* gradY,
                                                      const aclTensor* groupIdxOptional,
                                                      int64_t groupIdxType, aclTensor* out,
                                                      uint64_t* workspaceSize,
                                                      aclOpExecutor** executor) {
  const Arguments arguments{kSecond, gradY,         groupIdxOptional, groupIdxType,
                            out,     workspaceSize, executor};
  return aclgrad::plan_phase(kSecond, aclgrad::CallKey(gradY, groupIdxOptional, groupIdxType, out),
                             workspaceSize, executor,
                             [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnGroupedBiasAddGradV2(void* workspace, uint64_t workspaceSize,
                                      aclOpExecutor* executor, aclrtStream stream) {
  return aclgrad::run_phase(kSecond, workspace, workspaceSize, executor, stream);
}

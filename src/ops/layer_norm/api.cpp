// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_layer_norm.h"

#include "ops/layer_norm/problem.h"
#include "tensor/launch.h"

using aclgrad::layer_norm::Arguments;
using aclgrad::layer_norm::parse;

namespace {
constexpr const char* kPlain = "aclnnLayerNorm";
constexpr const char* kWithImplMode = "aclnnLayerNormWithImplMode";
}  // namespace

aclnnStatus aclnnLayerNormGetWorkspaceSize(
    const aclTensor* input, const aclIntArray* normalizedShape, const aclTensor* weightOptional,
    const aclTensor* biasOptional, double eps, aclTensor* out, aclTensor* meanOutOptional,
    aclTensor* rstdOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor) {
  const Arguments arguments{kPlain,        input,   normalizedShape, weightOptional,  biasOptional,
                            eps,           out,     meanOutOptional, rstdOutOptional, 0,
                            workspaceSize, executor};
  return aclgrad::plan_phase(kPlain,
                             aclgrad::CallKey(input, normalizedShape, weightOptional, biasOptional,
                                              eps, out, meanOutOptional, rstdOutOptional),
                             workspaceSize, executor,
                             [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnLayerNorm(void* workspace, uint64_t workspaceSize, aclOpExecutor* executor,
                           aclrtStream stream) {
  return aclgrad::run_phase(kPlain, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnLayerNormWithImplModeGetWorkspaceSize(
    const aclTensor* input, const aclIntArray* normalizedShape, const aclTensor* weightOptional,
    const aclTensor* biasOptional, double eps, aclTensor* out, aclTensor* meanOutOptional,
    aclTensor* rstdOutOptional, int32_t implMode, uint64_t* workspaceSize,
    aclOpExecutor** executor) {
  const Arguments arguments{kWithImplMode, input,   normalizedShape, weightOptional,  biasOptional,
                            eps,           out,     meanOutOptional, rstdOutOptional, implMode,
                            workspaceSize, executor};
  return aclgrad::plan_phase(kWithImplMode,
                             aclgrad::CallKey(input, normalizedShape, weightOptional, biasOptional,
                                              eps, out, meanOutOptional, rstdOutOptional, implMode),
                             workspaceSize, executor,
                             [&](aclgrad::Launch& launch) { return parse(arguments, launch); });
}

aclnnStatus aclnnLayerNormWithImplMode(void* workspace, uint64_t workspaceSize,
                                       aclOpExecutor* executor, aclrtStream stream) {
  return aclgrad::run_phase(kWithImplMode, workspace, workspaceSize, executor, stream);
}

// SPDX-License-Identifier: Apache-2.0
// How ScaledMaskedSoftmax is launched on a GPU (kernels/cuda/attention_plan.h).
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_PLAN_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_PLAN_H_

#include "kernels/cuda/attention_plan.h"

namespace aclgrad::scaled_masked_softmax {

inline constexpr auto kPairCols = static_cast<int>(kPair);

// Chosen by counting registers and loads under way; not measured.
inline constexpr cuda::AttentionTuning kTuning = {4, kPairCols - 1, {2, 8, 16}};

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_PLAN_H_

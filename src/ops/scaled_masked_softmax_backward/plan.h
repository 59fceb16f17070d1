// SPDX-License-Identifier: Apache-2.0
// How ScaledMaskedSoftmaxBackward is launched on a GPU (kernels/cuda/attention_plan.h).
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PLAN_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PLAN_H_

#include "kernels/cuda/attention_plan.h"

namespace aclgrad::scaled_masked_softmax_backward {

// Chosen by counting registers (two for an element and a tensor) and loads under way; not measured.
inline constexpr cuda::AttentionTuning kTuning = {4, 15, {2, 8, 16}};

}  // namespace aclgrad::scaled_masked_softmax_backward

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PLAN_H_

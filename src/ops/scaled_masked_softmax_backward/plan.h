// SPDX-License-Identifier: Apache-2.0
// How ScaledMaskedSoftmaxBackward is launched on a GPU (kernels/cuda/attention_plan.h).
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PLAN_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PLAN_H_

#include "kernels/cuda/attention_plan.h"

namespace aclgrad::scaled_masked_softmax_backward {

// Chosen by counting registers (two for an element and a tensor) and loads under way; not measured.
inline constexpr cuda::AttentionTuning kTuning = {4, 15, {2, 8, 16}};
// Of 128 threads, that an SM is to have where a thread takes sixteen pairs of 16-bit elements: 128
// registers, and 80 KB under way of the 33 that an H200 waits for. A few bytes spill.
inline constexpr int kLongBlocks = 4;

}  // namespace aclgrad::scaled_masked_softmax_backward

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PLAN_H_

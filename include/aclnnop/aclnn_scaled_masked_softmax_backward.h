// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnScaledMaskedSoftmaxBackward: the gradient of softmax over the last dimension, scaled and
 * masked.
 *
 *     out = 0                                                      where mask is true
 *     out = scale * (gradOutput*y - y * sum_S2(gradOutput*y))      elsewhere
 *
 * The sum runs over all S2 entries of a row, masked ones included.
 *
 * Source: aclnnScaledMaskedSoftmaxBackward page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_SCALED_MASKED_SOFTMAX_BACKWARD_H_
#define ACLGRAD_ACLNNOP_ACLNN_SCALED_MASKED_SOFTMAX_BACKWARD_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Phase one: checks the arguments and plans.
 *
 * All tensors: 4 dimensions, any strides and offset, base formats. Tensors without elements are no
 * error.
 *
 * @param gradOutput     [B, N, S1, S2], S2 at most 4096; FLOAT, FLOAT16 or BFLOAT16.
 * @param y              the forward softmax; shape and dtype of gradOutput.
 * @param mask           BOOL, [B or 1, N or 1, S1, S2]; any non-zero byte is true.
 * @param scale          factor of the result.
 * @param fixTriuMask    has to be false.
 * @param out            shape and dtype of gradOutput; masked elements become exactly +0. May be
 *                       gradOutput or y itself (same address and strides).
 * @param workspaceSize  receives the bytes of device workspace for phase two.
 * @param executor       receives the executor for phase two.
 * @return 0; 161001 a pointer is null; 161002 dead handle, dtype, format, rank or shape outside the
 *         above, a view outside its allocation, overlap of out with itself or an input, fixTriuMask
 * true; 561101 no memory.
 */
ACLNN_API aclnnStatus aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
    const aclTensor* gradOutput, const aclTensor* y, const aclTensor* mask, double scale,
    bool fixTriuMask, aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

/**
 * Phase two: enqueues the planned work on a stream and returns.
 *
 * @param workspace      device memory of at least the planned size; null where that is 0.
 * @param workspaceSize  bytes at workspace.
 * @param executor       from phase one; consumed, also by a refusal, unless it is repeatable.
 * @param stream         a stream, or null for the current context's default stream.
 * @return 0; 161001 executor null, workspace null with a size above 0, or a tensor with elements
 *         and a null address; 161002 workspace too small, executor spent, destroyed or foreign, a
 *         tensor of it destroyed, dead stream, an address range outside its allocation; 107002
 *         stream null and no current context; 200000 no memory for a run of a repeatable executor;
 *         207001 none for the private copy of an output whose overlap cannot be told; 361001 the
 *         device runtime failed.
 */
ACLNN_API aclnnStatus aclnnScaledMaskedSoftmaxBackward(void* workspace, uint64_t workspaceSize,
                                                       aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_SCALED_MASKED_SOFTMAX_BACKWARD_H_

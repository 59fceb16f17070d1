// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnScaledMaskedSoftmax: softmax over the last dimension, scaled and masked.
 *
 *     z = -10000                              where mask is true
 *     z = scale * x                           elsewhere
 *     y = exp(z - max_S2(z)) / sum_S2(exp(z - max_S2(z)))
 *
 * A fully masked row comes out uniform.
 *
 * Source: aclnnScaledMaskedSoftmax page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_SCALED_MASKED_SOFTMAX_H_
#define ACLGRAD_ACLNNOP_ACLNN_SCALED_MASKED_SOFTMAX_H_

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
 * @param x              [B, N, S1, S2], S2 at most 4096; FLOAT, FLOAT16 or BFLOAT16.
 * @param mask           BOOL, [B or 1, N or 1, S1, S2]; any non-zero byte is true.
 * @param scale          factor of x.
 * @param fixedTriuMask  has to be false.
 * @param y              shape and dtype of x; may not overlap an input.
 * @param workspaceSize  receives the bytes of device workspace for phase two.
 * @param executor       receives the executor for phase two.
 * @return 0; 161001 a pointer is null; 161002 dead handle, dtype, format, rank or shape outside the
 *         above, a view outside its allocation, overlap of y with itself or an input, fixedTriuMask
 * true; 561101 no memory.
 */
ACLNN_API aclnnStatus aclnnScaledMaskedSoftmaxGetWorkspaceSize(const aclTensor* x,
                                                               const aclTensor* mask, double scale,
                                                               bool fixedTriuMask, aclTensor* y,
                                                               uint64_t* workspaceSize,
                                                               aclOpExecutor** executor);

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
ACLNN_API aclnnStatus aclnnScaledMaskedSoftmax(void* workspace, uint64_t workspaceSize,
                                               aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_SCALED_MASKED_SOFTMAX_H_

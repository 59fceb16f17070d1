// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnLayerNormBackward: the gradient of layer normalisation.
 *
 * `input` is split at rank(input) - length(normalizedShape) into M rows of N elements. With
 * xhat = (input - mean) * rstd and g = gradOut * weight, per row:
 *
 *     gradInputOut  = rstd * (g - mean_N(g) - xhat * mean_N(g * xhat))
 *     gradWeightOut = sum over the M rows of gradOut * xhat
 *     gradBiasOut   = sum over the M rows of gradOut
 *
 * mean and rstd are used as given; they need not be the true statistics of input.
 *
 * Source: aclnnLayerNormBackward page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_LAYER_NORM_BACKWARD_H_
#define ACLGRAD_ACLNNOP_ACLNN_LAYER_NORM_BACKWARD_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Phase one: checks the arguments and plans.
 *
 * All tensors: up to 8 dimensions, any strides and offset, base formats; FLOAT, FLOAT16 or
 * BFLOAT16. Tensors without elements are no error: with M = 0 the weight and bias gradients are
 * zero-filled, with N = 0 nothing is written.
 *
 * @param gradOut          gradient of the normalised output; shape and dtype of input.
 * @param input            the forward input; rank at least the length of normalizedShape.
 * @param normalizedShape  host array of 1 to rank(input) entries, equal to the tail of input's
 *                         shape.
 * @param mean             means of the rows: M elements in any factorisation; dtype of its own.
 * @param rstd             reciprocal standard deviations; shape of mean; dtype of its own.
 * @param weightOptional   null (all ones), or shape normalizedShape, dtype FLOAT or input's.
 * @param biasOptional     null, or shape normalizedShape; its values are never used.
 * @param outputMask       host array of length 3: which of the three outputs to compute. A
 *                         masked-off output is not written, may be null, and has only its dtype
 *                         checked.
 * @param gradInputOut     shape of input, dtype of its own. May be gradOut or input itself (same
 *                         address, strides, shape and dtype).
 * @param gradWeightOut    N elements in any factorisation, dtype of its own.
 * @param gradBiasOut      N elements in any factorisation, dtype of its own.
 * @param workspaceSize    receives the bytes of device workspace for phase two.
 * @param executor         receives the executor for phase two.
 * @return 0; 161001 a required pointer is null, outputs asked for by outputMask included; 161002
 *         dead handle, outputMask not of length 3, dtype, format, rank or shape outside the above,
 *         a view outside its allocation, overlap of an output with itself or another tensor; 561101
 * no memory.
 */
ACLNN_API aclnnStatus aclnnLayerNormBackwardGetWorkspaceSize(
    const aclTensor* gradOut, const aclTensor* input, const aclIntArray* normalizedShape,
    const aclTensor* mean, const aclTensor* rstd, const aclTensor* weightOptional,
    const aclTensor* biasOptional, const aclBoolArray* outputMask, aclTensor* gradInputOut,
    aclTensor* gradWeightOut, aclTensor* gradBiasOut, uint64_t* workspaceSize,
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
ACLNN_API aclnnStatus aclnnLayerNormBackward(void* workspace, uint64_t workspaceSize,
                                             aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_LAYER_NORM_BACKWARD_H_

// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnLayerNorm, aclnnLayerNormWithImplMode: layer normalisation.
 *
 * `input` is split at rank(input) - length(normalizedShape) into M rows of N elements. Per row:
 *
 *     mean = sum_N(input) / N
 *     rstd = 1 / sqrt(sum_N((input - mean)^2) / N + eps)
 *     out  = (input - mean) * rstd * weight + bias
 *
 * Source: aclnnLayerNorm & aclnnLayerNormWithImplMode page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_LAYER_NORM_H_
#define ACLGRAD_ACLNNOP_ACLNN_LAYER_NORM_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Phase one: checks the arguments and plans.
 *
 * All tensors: up to 8 dimensions, any strides and offset, base formats; FLOAT, FLOAT16 or
 * BFLOAT16. Tensors without elements are no error: with M = 0 nothing is written; with N = 0 every
 * mean is 0 and every reciprocal standard deviation NaN.
 *
 * @param input            rank at least the length of normalizedShape.
 * @param normalizedShape  host array of 1 to rank(input) entries, equal to the tail of input's
 *                         shape.
 * @param weightOptional   null (all ones), or shape normalizedShape, dtype FLOAT or input's.
 * @param biasOptional     null (all zeros), or shape normalizedShape, dtype FLOAT or input's; that
 *                         of weightOptional where both are given.
 * @param eps              added to the variance of every row; any value.
 * @param out              shape of input, dtype of its own.
 * @param meanOutOptional  null, or M elements in any factorisation, dtype of its own.
 * @param rstdOutOptional  null, or M elements in any factorisation, dtype of its own.
 * @param workspaceSize    receives the bytes of device workspace for phase two.
 * @param executor         receives the executor for phase two.
 * @return 0; 161001 input, normalizedShape, out, workspaceSize or executor is null; 161002 dead
 *         handle, dtype, format, rank or shape outside the above, a view outside its allocation,
 *         overlap of an output with itself or another tensor; 561101 no memory.
 */
ACLNN_API aclnnStatus aclnnLayerNormGetWorkspaceSize(
    const aclTensor* input, const aclIntArray* normalizedShape, const aclTensor* weightOptional,
    const aclTensor* biasOptional, double eps, aclTensor* out, aclTensor* meanOutOptional,
    aclTensor* rstdOutOptional, uint64_t* workspaceSize, aclOpExecutor** executor);

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
ACLNN_API aclnnStatus aclnnLayerNorm(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream);

/**
 * Phase one of the same with a choice of precision: 0 high precision, 1 high performance, 2
 * everything in FLOAT16. All three give the same, exact numbers here. Parameters and results are
 * those of aclnnLayerNormGetWorkspaceSize, and
 *
 * @param implMode  0, 1 or 2; with 2 every tensor given must be FLOAT16. Anything else: 161002.
 */
ACLNN_API aclnnStatus aclnnLayerNormWithImplModeGetWorkspaceSize(
    const aclTensor* input, const aclIntArray* normalizedShape, const aclTensor* weightOptional,
    const aclTensor* biasOptional, double eps, aclTensor* out, aclTensor* meanOutOptional,
    aclTensor* rstdOutOptional, int32_t implMode, uint64_t* workspaceSize,
    aclOpExecutor** executor);

/** Phase two: as aclnnLayerNorm. */
ACLNN_API aclnnStatus aclnnLayerNormWithImplMode(void* workspace, uint64_t workspaceSize,
                                                 aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_LAYER_NORM_H_

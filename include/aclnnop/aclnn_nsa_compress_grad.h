// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnNsaCompressGrad: the gradient of the token compression of native sparse attention.
 *
 * Windows of l = compressBlockSize tokens start every d = compressStride tokens inside each
 * sequence and never cross its end; windows of all sequences are numbered in order, and start_i is
 * the first token of window i. The forward operator is
 *
 *     output[i, n, :] = sum_j weight[j, n] * input[start_i + j, n, :]
 *
 * and this one gives
 *
 *     inputGrad[t, n, :] = sum over windows i that cover t of weight[t - start_i, n] *
 *                          outputGrad[i, n, :]                         0 where no window covers t
 *     weightGrad[j, n]   = sum over i and all D of outputGrad[i, n, :] * input[start_i + j, n, :]
 *
 * Source: aclnnNsaCompressGrad page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H_
#define ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Phase one: checks the arguments and plans.
 *
 * All tensors: any strides and offset, base formats; all FLOAT16 or all BFLOAT16. Tensors without
 * elements are no error.
 *
 * @param outputGrad                 [W, N, D], W the number of windows: the sum over sequences of
 *                                   length L of 0 if L < l, else (L - l) / d + 1 rounded down.
 * @param input                      [T, N, D], D a multiple of 16.
 * @param weight                     [l, N].
 * @param actSeqLenOptionalOptional  host array of the sequences' cumulative ends: not negative, not
 *                                   decreasing, the last at most T. A leading 0 and repeated ends
 *                                   are empty sequences; rows past the last end belong to none.
 *                                   Null or empty: one sequence of length T.
 * @param compressBlockSize          l, in tokens: a positive multiple of 16, greater than d.
 * @param compressStride             d, in tokens: a positive multiple of 16.
 * @param actSeqLenType              has to be 0 (cumulative ends).
 * @param layoutOptionalOptional     null or "TND"; read in this call only.
 * @param inputGradOut               [T, N, D], written whole. May be input itself (same address and
 *                                   strides).
 * @param weightGradOut              [l, N].
 * @param workspaceSize              receives the bytes of device workspace for phase two.
 * @param executor                   receives the executor for phase two.
 * @return 0; 161001 a required pointer is null; 161002 dead handle, dtype, format, rank, shape,
 *         attribute or list outside the above, a view outside its allocation, overlap of an output
 *         with itself or another tensor; 561101 no memory.
 */
ACLNN_API aclnnStatus aclnnNsaCompressGradGetWorkspaceSize(
    const aclTensor* outputGrad, const aclTensor* input, const aclTensor* weight,
    const aclIntArray* actSeqLenOptionalOptional, int64_t compressBlockSize, int64_t compressStride,
    int64_t actSeqLenType, char* layoutOptionalOptional, const aclTensor* inputGradOut,
    const aclTensor* weightGradOut, uint64_t* workspaceSize, aclOpExecutor** executor);

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
ACLNN_API aclnnStatus aclnnNsaCompressGrad(void* workspace, uint64_t workspaceSize,
                                           aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_GRAD_H_

// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnNsaCompress: the token compression of native sparse attention.
 *
 * Windows of l = compressBlockSize tokens start every d = compressStride tokens inside each
 * sequence and never cross its end; windows of all sequences are numbered in order, and start_i is
 * the first token of window i:
 *
 *     output[i, n, :] = sum_j weight[j, n] * input[start_i + j, n, :]
 *
 * Source: aclnnNsaCompress page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_H_
#define ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_H_

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
 * @param input              [T, N, D]; N at most 128, D a multiple of 16 and at most 256.
 * @param weight             [l, N].
 * @param actSeqLenOptional  host array of the sequences' cumulative ends: not empty, not negative,
 *                           not decreasing, the last at most T. A leading 0 and repeated ends are
 *                           empty sequences; rows past the last end belong to none.
 * @param layoutOptional     null or "TND"; read in this call only.
 * @param compressBlockSize  l, in tokens: a positive multiple of 16, at least d, at most 128.
 * @param compressStride     d, in tokens: a positive multiple of 16.
 * @param actSeqLenType      has to be 0 (cumulative ends).
 * @param output             [W, N, D], W the number of windows: the sum over sequences of length L
 *                           of 0 if L < l, else (L - l) / d + 1 rounded down. May not overlap an
 *                           input.
 * @param workspaceSize      receives the bytes of device workspace for phase two.
 * @param executor           receives the executor for phase two.
 * @return 0; 161001 a required pointer is null; 161002 actSeqLenOptional null or empty, dead
 *         handle, dtype, format, rank, shape, attribute or list outside the above, a view outside
 *         its allocation, overlap of output with itself or an input; 561101 no memory.
 */
ACLNN_API aclnnStatus aclnnNsaCompressGetWorkspaceSize(
    const aclTensor* input, const aclTensor* weight, const aclIntArray* actSeqLenOptional,
    char* layoutOptional, int64_t compressBlockSize, int64_t compressStride, int64_t actSeqLenType,
    aclTensor* output, uint64_t* workspaceSize, aclOpExecutor** executor);

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
ACLNN_API aclnnStatus aclnnNsaCompress(void* workspace, uint64_t workspaceSize,
                                       aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_NSA_COMPRESS_H_

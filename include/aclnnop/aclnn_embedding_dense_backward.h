// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnEmbeddingDenseBackward: the gradient of an embedding table.
 *
 *     out[v, :] = sum over r with indices[r] == v of grad[r, :]     v != paddingIdx
 *     out[paddingIdx, :] = 0
 *
 * With scaleGradByFreq out[v, :] is divided by the number of occurrences of v.
 *
 * Source: aclnnEmbeddingDenseBackward page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_EMBEDDING_DENSE_BACKWARD_H_
#define ACLGRAD_ACLNNOP_ACLNN_EMBEDDING_DENSE_BACKWARD_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Phase one: checks the arguments and plans.
 *
 * All tensors: up to 8 dimensions, any strides and offset, base formats. With grad or indices
 * empty, out is zero-filled; without elements in out nothing runs.
 *
 * @param grad             gradient of the looked-up rows, last dimension D; FLOAT, FLOAT16 or
 *                         BFLOAT16.
 * @param indices          row numbers, as many as the product of all but the last dimension of
 *                         grad, any factorisation (not compared when D is 0); FLOAT, FLOAT16,
 *                         DOUBLE (truncated toward zero), INT64, INT32, INT16, INT8, UINT8 or
 *                         BOOL.
 * @param numWeights       rows of the table.
 * @param paddingIdx       the row that gets no gradient; any value >= numWeights names none.
 * @param scaleGradByFreq  whether to divide each row by the occurrences of its index.
 * @param out              exactly [numWeights, D]; FLOAT, FLOAT16 or BFLOAT16, grad's or another.
 * @param workspaceSize    receives the bytes of device workspace for phase two.
 * @param executor         receives the executor for phase two.
 * @return 0; 161001 a pointer is null; 161002 dead handle, dtype, format, rank or shape outside the
 *         above, a view outside its allocation, overlap of out with itself or an input; 561101 no
 * memory.
 */
ACLNN_API aclnnStatus aclnnEmbeddingDenseBackwardGetWorkspaceSize(
    const aclTensor* grad, const aclTensor* indices, uint64_t numWeights, uint64_t paddingIdx,
    bool scaleGradByFreq, const aclTensor* out, uint64_t* workspaceSize, aclOpExecutor** executor);

/**
 * Phase two: enqueues the planned work on a stream and returns.
 *
 * An index outside [0, numWeights) is found while running: its row contributes nothing, all others
 * are right, and the next synchronise of the stream, device or an event behind the work returns
 * 507015 (ACL_ERROR_RT_AICORE_EXCEPTION) once, with position, value and range in the message.
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
 *         device runtime failed, or a data error where launches block (ASCEND_LAUNCH_BLOCKING=1).
 */
ACLNN_API aclnnStatus aclnnEmbeddingDenseBackward(void* workspace, uint64_t workspaceSize,
                                                  aclOpExecutor* executor,
                                                  const aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_EMBEDDING_DENSE_BACKWARD_H_

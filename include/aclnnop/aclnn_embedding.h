// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnEmbedding: rows of a table, looked up.
 *
 *     out[i..., :] = weight[indices[i...], :]
 *
 * Source: aclnnEmbedding page of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_EMBEDDING_H_
#define ACLGRAD_ACLNNOP_ACLNN_EMBEDDING_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Phase one: checks the arguments and plans.
 *
 * All tensors: up to 8 dimensions, any strides and offset, base formats. Elements are copied bit by
 * bit, but for NaNs, which become the canonical quiet one. Without elements in out nothing runs.
 *
 * @param weight         the table, [V, D]; BFLOAT16, FLOAT, FLOAT16, INT64, INT32, INT16, INT8,
 *                       UINT8, BOOL, DOUBLE, COMPLEX64 or COMPLEX128.
 * @param indices        row numbers of weight, rank 0 to 7; INT32 or INT64.
 * @param out            shape of indices followed by D; dtype of weight.
 * @param workspaceSize  receives the bytes of device workspace for phase two.
 * @param executor       receives the executor for phase two.
 * @return 0; 161001 a pointer is null; 161002 dead handle, dtype, format, rank or shape outside the
 *         above, a view outside its allocation, overlap of out with itself or an input; 561101 no
 * memory.
 */
ACLNN_API aclnnStatus aclnnEmbeddingGetWorkspaceSize(const aclTensor* weight,
                                                     const aclTensor* indices, const aclTensor* out,
                                                     uint64_t* workspaceSize,
                                                     aclOpExecutor** executor);

/**
 * Phase two: enqueues the planned work on a stream and returns.
 *
 * An index outside [0, V) is found while running: its row of out is all zero bits, all others are
 * right, and the next synchronise of the stream, device or an event behind the work returns 507015
 * (ACL_ERROR_RT_AICORE_EXCEPTION) once, with position, value and range in the message.
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
ACLNN_API aclnnStatus aclnnEmbedding(void* workspace, uint64_t workspaceSize,
                                     aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_EMBEDDING_H_

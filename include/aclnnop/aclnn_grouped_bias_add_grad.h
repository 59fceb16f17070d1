// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * aclnnGroupedBiasAddGrad and aclnnGroupedBiasAddGradV2: the gradient of a bias added to groups of
 * rows.
 *
 *     with groupIdx:      out[j, :] = sum over rows i of gradY, end[j-1] <= i < end[j], end[-1] = 0
 *     without groupIdx:   out[g, :] = sum over c of gradY[g, c, :]
 *
 * end[j] is groupIdx[j], or for V2 with groupIdxType 1 the running sum of groupIdx (group sizes).
 *
 * Source: aclnnGroupedBiasAddGrad and aclnnGroupedBiasAddGradV2 pages of the CANN operator
 * reference.
 */
#ifndef ACLGRAD_ACLNNOP_ACLNN_GROUPED_BIAS_ADD_GRAD_H_
#define ACLGRAD_ACLNNOP_ACLNN_GROUPED_BIAS_ADD_GRAD_H_

#include "aclnn/aclnn_base.h"
#include "aclnnop/aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Phase one: checks the arguments and plans. groupIdxOptional holds the groups' ends.
 *
 * All tensors: any strides and offset, base formats. Empty groups and gradY without rows give 0.
 *
 * @param gradY             [T, H] with groupIdxOptional, [G, C, H] without; FLOAT, FLOAT16 or
 *                          BFLOAT16.
 * @param groupIdxOptional  null, or [G] on the device with G at most 2048; INT32 or INT64. The
 *                          values must not decrease, lie in [0, 2^31-1], and end with T.
 * @param out               exactly [G, H]; dtype of gradY.
 * @param workspaceSize     receives the bytes of device workspace for phase two.
 * @param executor          receives the executor for phase two.
 * @return 0; 161001 a required pointer is null; 161002 dead handle, dtype, format, rank or shape
 *         outside the above, a view outside its allocation, overlap of out with itself or an input;
 * 561101 no memory.
 */
ACLNN_API aclnnStatus aclnnGroupedBiasAddGradGetWorkspaceSize(const aclTensor* gradY,
                                                              const aclTensor* groupIdxOptional,
                                                              aclTensor* out,
                                                              uint64_t* workspaceSize,
                                                              aclOpExecutor** executor);

/**
 * Phase two: enqueues the planned work on a stream and returns.
 *
 * Values of groupIdxOptional outside their rule are found while running: each group sums the rows
 * between its ends clamped to [0, T], nothing else is read, and the next synchronise of the stream,
 * device or an event behind the work returns 507015 (ACL_ERROR_RT_AICORE_EXCEPTION) once, with the
 * first violating position and its value in the message.
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
ACLNN_API aclnnStatus aclnnGroupedBiasAddGrad(void* workspace, uint64_t workspaceSize,
                                              aclOpExecutor* executor, aclrtStream stream);

/**
 * Phase one of V2: as aclnnGroupedBiasAddGradGetWorkspaceSize, with a choice of what
 * groupIdxOptional holds.
 *
 * @param gradY             as above.
 * @param groupIdxOptional  as above; with groupIdxType 1 sizes, not negative, that add up to T.
 * @param groupIdxType      0: groupIdxOptional holds ends; 1: sizes. Checked also where
 *                          groupIdxOptional is null.
 * @param out               as above.
 * @param workspaceSize     receives the bytes of device workspace for phase two.
 * @param executor          receives the executor for phase two.
 * @return as above; 161002 also for any other groupIdxType.
 */
ACLNN_API aclnnStatus aclnnGroupedBiasAddGradV2GetWorkspaceSize(
    const aclTensor* gradY, const aclTensor* groupIdxOptional, int64_t groupIdxType, aclTensor* out,
    uint64_t* workspaceSize, aclOpExecutor** executor);

/** Phase two of V2: parameters, data errors and status as for aclnnGroupedBiasAddGrad. */
ACLNN_API aclnnStatus aclnnGroupedBiasAddGradV2(void* workspace, uint64_t workspaceSize,
                                                aclOpExecutor* executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNNOP_ACLNN_GROUPED_BIAS_ADD_GRAD_H_

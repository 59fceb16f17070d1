// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * What every operator header needs: tensors, executors, and the start and stop of the operator
 * library. Exported by libnnopbase.so.
 *
 * The two phases. aclnnXxxGetWorkspaceSize checks all arguments, plans the work and returns the
 * bytes of workspace it needs together with an executor; it computes nothing. aclnnXxx enqueues
 * the planned work on a stream and returns. The tensors named in phase one have to be alive when
 * phase two is called and may be destroyed as soon as it has returned.
 *
 * Status of both phases: 0 success; 161001 a required pointer is null; 161002 an argument outside
 * the contract, or a handle that is dead, foreign or of another kind; 361001 the device runtime
 * failed; 561101 the executor could not be created for want of memory; 561000 and 561103 misuse of
 * an executor. aclGetRecentErrMsg explains each failing call. A phase one that fails leaves
 * *workspaceSize and *executor as they were.
 *
 * Source: "two-phase interface" and "common return codes" pages of the CANN operator reference.
 */
#ifndef ACLGRAD_ACLNN_ACLNN_BASE_H_
#define ACLGRAD_ACLNN_ACLNN_BASE_H_

#include "aclnn/acl_meta.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Prepares the operator library. Optional: every function works without it.
 *
 * @param configPath  path of a configuration file or null; it is not read.
 * @return always 0, however often it is called. In a forked child: 500000.
 *
 * Source: aclnnInit page of the CANN operator reference.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclnnInit(const char* configPath);

/**
 * Ends the use of the operator library. Releases nothing that the program still holds: tensors,
 * executors and queued work live on.
 *
 * @return always 0, however often it is called. In a forked child: 500000.
 *
 * Source: aclnnFinalize page of the CANN operator reference.
 */
ACL_FUNC_VISIBILITY aclnnStatus aclnnFinalize(void);

#ifdef __cplusplus
}
#endif

#endif  // ACLGRAD_ACLNN_ACLNN_BASE_H_

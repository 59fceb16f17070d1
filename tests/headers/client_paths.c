// SPDX-License-Identifier: Apache-2.0
// A program whose include paths are include, include/aclnn and include/aclnnop, and that names the
// headers by their bare names. Compiled as C11 and C++11.
#include "acl/acl.h"
#include "acl_meta.h"
#include "aclnn/aclnn_base.h"
#include "aclnn_base.h"
#include "aclnn_embedding_dense_backward.h"
#include "aclnn_grouped_bias_add_grad.h"
#include "aclnn_layer_norm_backward.h"
#include "aclnn_nsa_compress_grad.h"
#include "aclnn_scaled_masked_softmax_backward.h"
#include "aclnn_util.h"
#include "aclnnop/aclnn_layer_norm_backward.h"

int bare_name_client(aclOpExecutor* executor, aclrtStream stream);

int bare_name_client(aclOpExecutor* executor, aclrtStream stream) {
  ACL_APP_LOG(ACL_INFO, "a line without values");
  ACL_APP_LOG(ACL_ERROR, "a line with %d values: %s", 2, "this one too");
  int status = aclnnEmbeddingDenseBackward(0, 0, executor, stream);
  if (status == 0) status = aclnnScaledMaskedSoftmaxBackward(0, 0, executor, stream);
  if (status == 0) status = aclnnGroupedBiasAddGradV2(0, 0, executor, stream);
  if (status == 0) status = aclnnNsaCompressGrad(0, 0, executor, stream);
  if (status == 0) status = aclDestroyAclOpExecutor(executor);
  return status;
}

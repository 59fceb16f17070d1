// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "acl/acl.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"

int main(void) {
  const int64_t rows_shape[] = {4, 3}, ends_shape[] = {2}, out_shape[] = {2, 3};
  const float rows[4][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {10, 11, 12}};
  const int64_t ends[2] = {1, 4};  // group 0: row 0; group 1: rows 1 to 3
  float sums[2][3];
  void *rows_memory, *ends_memory, *out_memory, *workspace = NULL;
  aclrtStream stream;
  uint64_t workspace_size;
  aclOpExecutor* executor;

  aclInit(NULL);
  aclrtSetDevice(0);
  aclrtCreateStream(&stream);
  aclrtMalloc(&rows_memory, sizeof rows, ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtMalloc(&ends_memory, sizeof ends, ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtMalloc(&out_memory, sizeof sums, ACL_MEM_MALLOC_HUGE_FIRST);
  aclrtMemcpy(rows_memory, sizeof rows, rows, sizeof rows, ACL_MEMCPY_HOST_TO_DEVICE);
  aclrtMemcpy(ends_memory, sizeof ends, ends, sizeof ends, ACL_MEMCPY_HOST_TO_DEVICE);
  aclTensor* grad_y =
      aclCreateTensor(rows_shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, rows_shape, 2, rows_memory);
  aclTensor* group_idx =
      aclCreateTensor(ends_shape, 1, ACL_INT64, NULL, 0, ACL_FORMAT_ND, ends_shape, 1, ends_memory);
  aclTensor* out =
      aclCreateTensor(out_shape, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, out_shape, 2, out_memory);

  if (aclnnGroupedBiasAddGradGetWorkspaceSize(grad_y, group_idx, out, &workspace_size, &executor)) {
    printf("%s\n", aclGetRecentErrMsg());
    return 1;
  }
  if (workspace_size > 0) aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST);
  aclnnGroupedBiasAddGrad(workspace, workspace_size, executor, stream);
  aclrtSynchronizeStream(stream);

  aclrtMemcpy(sums, sizeof sums, out_memory, sizeof sums, ACL_MEMCPY_DEVICE_TO_HOST);
  for (int group = 0; group < 2; ++group) {
    printf("group %d: %g %g %g\n", group, sums[group][0], sums[group][1], sums[group][2]);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// aclnnEmbeddingDenseBackward: the gradient of a table of four rows from which rows 1, 2 and 1 were
// looked up. Row 0 is the padding row and stays zero.
#include "aclnnop/aclnn_embedding_dense_backward.h"

#include "device_tensor.h"

int main() {
  Device device;
  DeviceTensor<float> grad({3, 3}, ACL_FLOAT, {1, 2, 3, 4, 5, 6, 10, 20, 30});
  DeviceTensor<int64_t> indices({3}, ACL_INT64, {1, 2, 1});
  DeviceTensor<float> out({4, 3}, ACL_FLOAT);

  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  const uint64_t rows_of_table = 4, padding_row = 0;
  check(aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad.get(), indices.get(), rows_of_table,
                                                    padding_row, false, out.get(), &workspace_size,
                                                    &executor),
        "aclnnEmbeddingDenseBackwardGetWorkspaceSize");
  run("aclnnEmbeddingDenseBackward", aclnnEmbeddingDenseBackward, workspace_size, executor);

  const std::vector<float> table = out.read();
  for (size_t row = 0; row < 4; ++row) {
    print(("row " + std::to_string(row) + ":").c_str(), table, row * 3, row * 3 + 3);
  }
  return 0;
}

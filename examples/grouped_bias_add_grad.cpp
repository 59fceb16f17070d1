// SPDX-License-Identifier: Apache-2.0
// aclnnGroupedBiasAddGradV2: the bias gradients of four experts that saw 5, 10, 15 and 10 of forty
// tokens. With groupIdxType 1 groupIdx holds the sizes; with 0, as in the first version, the ends.
#include "aclnnop/aclnn_grouped_bias_add_grad.h"

#include "device_tensor.h"

int main() {
  Device device;
  DeviceTensor<float> grad_y({40, 3}, ACL_FLOAT, std::vector<float>(120, 1.0f));
  DeviceTensor<int32_t> ends({4}, ACL_INT32, {5, 15, 30, 40});
  DeviceTensor<int64_t> sizes({4}, ACL_INT64, {5, 10, 15, 10});
  DeviceTensor<float> out({4, 3}, ACL_FLOAT), out_from_sizes({4, 3}, ACL_FLOAT);

  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnGroupedBiasAddGradGetWorkspaceSize(grad_y.get(), ends.get(), out.get(),
                                                &workspace_size, &executor),
        "aclnnGroupedBiasAddGradGetWorkspaceSize");
  run("aclnnGroupedBiasAddGrad", aclnnGroupedBiasAddGrad, workspace_size, executor);
  check(aclnnGroupedBiasAddGradV2GetWorkspaceSize(grad_y.get(), sizes.get(), 1,
                                                  out_from_sizes.get(), &workspace_size, &executor),
        "aclnnGroupedBiasAddGradV2GetWorkspaceSize");
  run("aclnnGroupedBiasAddGradV2", aclnnGroupedBiasAddGradV2, workspace_size, executor);

  const std::vector<float> from_ends = out.read(), from_sizes = out_from_sizes.read();
  for (size_t expert = 0; expert < 4; ++expert) {
    print(("expert " + std::to_string(expert) + ":").c_str(), from_ends, expert * 3,
          expert * 3 + 3);
  }
  std::printf("from sizes: %s\n", from_ends == from_sizes ? "the same" : "different");
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// aclnnScaledMaskedSoftmaxBackward: the gradient before a masked, scaled softmax. The mask is
// shared by both heads and hides the first of each pair of rows.
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"

#include "device_tensor.h"

int main() {
  Device device;
  std::vector<float> values(16);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i + 1);
  const std::vector<int64_t> shape = {2, 2, 2, 2};  // batch, heads, queries, keys
  DeviceTensor<float> grad_output(shape, ACL_FLOAT, values);
  DeviceTensor<float> y(shape, ACL_FLOAT, values);
  DeviceTensor<uint8_t> mask({2, 1, 2, 2}, ACL_BOOL, {1, 1, 0, 0, 1, 1, 0, 0});
  DeviceTensor<float> out(shape, ACL_FLOAT);

  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  const double scale = 1.0;
  check(aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(grad_output.get(), y.get(), mask.get(),
                                                         scale, false, out.get(), &workspace_size,
                                                         &executor),
        "aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize");
  run("aclnnScaledMaskedSoftmaxBackward", aclnnScaledMaskedSoftmaxBackward, workspace_size,
      executor);

  const std::vector<float> result = out.read();
  for (size_t head = 0; head < 4; ++head) {
    print(("batch " + std::to_string(head / 2) + " head " + std::to_string(head % 2) + ":").c_str(),
          result, head * 4, head * 4 + 4);
  }
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// aclnnLayerNormBackward: gradients of layer normalisation for two rows of two elements. mean and
// rstd are what the forward pass gave; here they are made up, to get round numbers.
#include "aclnnop/aclnn_layer_norm_backward.h"

#include "device_tensor.h"

int main() {
  Device device;
  DeviceTensor<float> grad_out({2, 2}, ACL_FLOAT, {2, 3, 4, 5});
  DeviceTensor<float> input({2, 2}, ACL_FLOAT, {2, 3, 4, 5});
  DeviceTensor<float> mean({2, 1}, ACL_FLOAT, {2, 3});
  DeviceTensor<float> rstd({2, 1}, ACL_FLOAT, {4, 5});
  DeviceTensor<float> weight({2}, ACL_FLOAT, {1, 1});
  DeviceTensor<float> grad_input({2, 2}, ACL_FLOAT), grad_weight({2}, ACL_FLOAT),
      grad_bias({2}, ACL_FLOAT);
  const int64_t normalized[] = {2};  // the last dimension, of 2 elements, was normalised
  aclIntArray* normalized_shape = aclCreateIntArray(normalized, 1);
  const bool wanted[] = {true, true, true};  // all three gradients
  aclBoolArray* output_mask = aclCreateBoolArray(wanted, 3);

  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnLayerNormBackwardGetWorkspaceSize(grad_out.get(), input.get(), normalized_shape,
                                               mean.get(), rstd.get(), weight.get(), nullptr,
                                               output_mask, grad_input.get(), grad_weight.get(),
                                               grad_bias.get(), &workspace_size, &executor),
        "aclnnLayerNormBackwardGetWorkspaceSize");
  run("aclnnLayerNormBackward", aclnnLayerNormBackward, workspace_size, executor);

  print("gradInput", grad_input.read());
  print("gradWeight", grad_weight.read());
  print("gradBias", grad_bias.read());
  aclDestroyIntArray(normalized_shape);
  aclDestroyBoolArray(output_mask);
  return 0;
}

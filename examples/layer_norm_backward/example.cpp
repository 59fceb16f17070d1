// SPDX-License-Identifier: Apache-2.0
// Layer normalisation and its gradients: aclnnLayerNorm, then aclnnLayerNormBackward with the mean
// and rstd that it left, then a look at whether the gradient tells the truth.
//
// Every operator is called in two phases. The first, ...GetWorkspaceSize, gets all tensors, checks
// them and says how many bytes of scratch memory the work needs; it computes nothing. The second
// gets that memory and puts the work on a stream. run() of device_tensor.h does the second phase.
#include "aclnnop/aclnn_layer_norm.h"
#include "aclnnop/aclnn_layer_norm_backward.h"

#include "../device_tensor.h"

namespace {

// Two rows of four numbers, each row normalised by itself.
struct Example {
  DeviceTensor<float> x{{2, 4}, ACL_FLOAT, {1, 2, 4, 9, -1, 0, 0, 3}};
  DeviceTensor<float> weight{{4}, ACL_FLOAT, {1, 2, 1, 1}};
  DeviceTensor<float> bias{{4}, ACL_FLOAT, {0, 0, 0, 10}};
  DeviceTensor<float> y{{2, 4}, ACL_FLOAT};
  // What the backward pass will want to know of the forward pass, a number for each row.
  DeviceTensor<float> mean{{2, 1}, ACL_FLOAT};
  DeviceTensor<float> rstd{{2, 1}, ACL_FLOAT};  // 1 / standard deviation
};

// Which dimensions are normalised: the last one, of four elements. Such a list of numbers is an
// object of its own; it may go as soon as phase one has seen it.
aclIntArray* last_dimension() {
  const int64_t size = 4;
  return aclCreateIntArray(&size, 1);
}

void forward(Example& e) {
  aclIntArray* normalized = last_dimension();
  const double epsilon = 1e-5;  // keeps rows of equal numbers from a division by zero
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnLayerNormGetWorkspaceSize(e.x.get(), normalized, e.weight.get(), e.bias.get(), epsilon,
                                       e.y.get(), e.mean.get(), e.rstd.get(), &workspace_size,
                                       &executor),
        "aclnnLayerNormGetWorkspaceSize");
  run("aclnnLayerNorm", aclnnLayerNorm, workspace_size, executor);
  aclDestroyIntArray(normalized);
}

}  // namespace

int main() {
  Device device;
  Example e;
  forward(e);
  print("y", e.y.read());
  print("mean", e.mean.read());

  // The loss is any number made of y. Here it is the sum of y[i] * dy[i], so that dy is its
  // gradient.
  const std::vector<float> dy = {1, 0, 0, -1, 0.5f, 2, 0, 1};
  DeviceTensor<float> grad_out({2, 4}, ACL_FLOAT, dy);
  DeviceTensor<float> grad_input({2, 4}, ACL_FLOAT);
  DeviceTensor<float> grad_weight({4}, ACL_FLOAT), grad_bias({4}, ACL_FLOAT);
  aclIntArray* normalized = last_dimension();
  const bool wanted[] = {true, true, true};  // all three gradients
  aclBoolArray* output_mask = aclCreateBoolArray(wanted, 3);
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnLayerNormBackwardGetWorkspaceSize(grad_out.get(), e.x.get(), normalized, e.mean.get(),
                                               e.rstd.get(), e.weight.get(), e.bias.get(),
                                               output_mask, grad_input.get(), grad_weight.get(),
                                               grad_bias.get(), &workspace_size, &executor),
        "aclnnLayerNormBackwardGetWorkspaceSize");
  run("aclnnLayerNormBackward", aclnnLayerNormBackward, workspace_size, executor);
  print("gradWeight", grad_weight.read());
  print("gradBias", grad_bias.read());

  // The round trip: nudge one number of x up and down and see how the loss answers.
  const size_t nudged = 5;
  const float nudge = 0.01f;
  std::vector<float> x = e.x.read();
  x[nudged] += nudge;
  e.x.write(x);
  forward(e);
  const double above = weighted_sum(e.y.read(), dy);
  x[nudged] -= 2 * nudge;
  e.x.write(x);
  forward(e);
  const double below = weighted_sum(e.y.read(), dy);
  std::printf("gradInput[%zu] %.3f, by difference %.3f\n", nudged,
              static_cast<double>(grad_input.read()[nudged]), (above - below) / 0.02);

  aclDestroyIntArray(normalized);
  aclDestroyBoolArray(output_mask);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A bias for each group of rows and its gradient, as a mixture of experts has it: the rows that
// went to an expert lie next to each other, and the expert's bias is added to each of them. There
// is no forward operator for that; it is a loop. aclnnGroupedBiasAddGrad sums each group's rows.
//
// Every operator is called in two phases. The first, ...GetWorkspaceSize, gets all tensors, checks
// them and says how many bytes of scratch memory the work needs; it computes nothing. The second
// gets that memory and puts the work on a stream. run() of device_tensor.h does the second phase.
#include "aclnnop/aclnn_grouped_bias_add_grad.h"

#include "../device_tensor.h"

namespace {

const size_t kRows = 6, kWidth = 2, kGroups = 4;
// Rows 0 and 1 are expert 0's, none are expert 1's, 2 to 4 are expert 2's, 5 is expert 3's.
const int64_t kEnds[kGroups] = {2, 2, 5, 6};

// y = x + bias of the row's group.
std::vector<float> forward(const std::vector<float>& x, const std::vector<float>& bias) {
  std::vector<float> y = x;
  size_t group = 0;
  for (size_t row = 0; row < kRows; ++row) {
    while (static_cast<int64_t>(row) >= kEnds[group]) ++group;
    for (size_t i = 0; i < kWidth; ++i) y[row * kWidth + i] += bias[group * kWidth + i];
  }
  return y;
}

}  // namespace

int main() {
  Device device;
  const std::vector<float> x(kRows * kWidth, 1.0f);
  std::vector<float> bias = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> y = forward(x, bias);
  for (size_t row = 0; row < kRows; ++row) print("row", y, row * kWidth, row * kWidth + kWidth);

  // The loss is any number made of y. Here it is the sum of y[i] * dy[i], so that dy is its
  // gradient.
  const std::vector<float> dy = {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60};
  DeviceTensor<float> grad_y({6, 2}, ACL_FLOAT, dy);
  DeviceTensor<int64_t> ends({4}, ACL_INT64, std::vector<int64_t>(kEnds, kEnds + kGroups));
  DeviceTensor<float> grad_bias({4, 2}, ACL_FLOAT);
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnGroupedBiasAddGradGetWorkspaceSize(grad_y.get(), ends.get(), grad_bias.get(),
                                                &workspace_size, &executor),
        "aclnnGroupedBiasAddGradGetWorkspaceSize");
  run("aclnnGroupedBiasAddGrad", aclnnGroupedBiasAddGrad, workspace_size, executor);
  const std::vector<float> gradients = grad_bias.read();
  for (size_t group = 0; group < kGroups; ++group) {
    print("gradient of expert", gradients, group * kWidth, group * kWidth + kWidth);
  }

  // The second version of the call also takes the groups' sizes.
  DeviceTensor<int64_t> sizes({4}, ACL_INT64, {2, 0, 3, 1});
  DeviceTensor<float> from_sizes({4, 2}, ACL_FLOAT);
  const int64_t these_are_sizes = 1;
  check(aclnnGroupedBiasAddGradV2GetWorkspaceSize(grad_y.get(), sizes.get(), these_are_sizes,
                                                  from_sizes.get(), &workspace_size, &executor),
        "aclnnGroupedBiasAddGradV2GetWorkspaceSize");
  run("aclnnGroupedBiasAddGradV2", aclnnGroupedBiasAddGradV2, workspace_size, executor);
  std::printf("from sizes: %s\n", from_sizes.read() == gradients ? "the same" : "something else");

  // The round trip: nudge one number of the bias and see how the loss answers.
  const size_t nudged = 5;  // of expert 2, which has three rows
  const double before = weighted_sum(y, dy);
  bias[nudged] += 0.5f;
  const double after = weighted_sum(forward(x, bias), dy);
  std::printf("gradient[%zu] %g, by difference %g\n", nudged,
              static_cast<double>(gradients[nudged]), (after - before) / 0.5);
  return 0;
}

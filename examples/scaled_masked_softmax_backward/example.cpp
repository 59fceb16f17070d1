// SPDX-License-Identifier: Apache-2.0
// The softmax of attention and its gradient: aclnnScaledMaskedSoftmax turns scores into shares that
// add up to one, leaving out what is masked; aclnnScaledMaskedSoftmaxBackward goes back from the
// shares' gradient to the scores'.
//
// Every operator is called in two phases. The first, ...GetWorkspaceSize, gets all tensors, checks
// them and says how many bytes of scratch memory the work needs; it computes nothing. The second
// gets that memory and puts the work on a stream. run() of device_tensor.h does the second phase.
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"

#include "../device_tensor.h"

namespace {

// One batch, one head, three words that look at each other; none may see the words behind it. The
// last row is masked throughout.
struct Example {
  std::vector<int64_t> shape = {1, 1, 4, 3};
  DeviceTensor<float> scores{shape, ACL_FLOAT, {2, 9, 9, 0, 4, 9, 2, 4, 6, 1, 2, 3}};
  DeviceTensor<uint8_t> mask{shape, ACL_BOOL, {0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1}};
  DeviceTensor<float> shares{shape, ACL_FLOAT};
  double scale = 0.5;  // usually 1 / sqrt(width of a head)
};

void forward(Example& e) {
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnScaledMaskedSoftmaxGetWorkspaceSize(e.scores.get(), e.mask.get(), e.scale, false,
                                                 e.shares.get(), &workspace_size, &executor),
        "aclnnScaledMaskedSoftmaxGetWorkspaceSize");
  run("aclnnScaledMaskedSoftmax", aclnnScaledMaskedSoftmax, workspace_size, executor);
}

}  // namespace

int main() {
  Device device;
  Example e;
  forward(e);
  const std::vector<float> shares = e.shares.read();
  for (size_t row = 0; row < 4; ++row) print("shares", shares, row * 3, row * 3 + 3);

  // The loss is any number made of the shares. Here it is the sum of shares[i] * dy[i], so that dy
  // is its gradient.
  const std::vector<float> dy = {1, 1, 1, 1, 0, 0, 1, 2, 4, 1, 0, 0};
  DeviceTensor<float> grad_output(e.shape, ACL_FLOAT, dy);
  DeviceTensor<float> grad_scores(e.shape, ACL_FLOAT);
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
            grad_output.get(), e.shares.get(), e.mask.get(), e.scale, false, grad_scores.get(),
            &workspace_size, &executor),
        "aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize");
  run("aclnnScaledMaskedSoftmaxBackward", aclnnScaledMaskedSoftmaxBackward, workspace_size,
      executor);
  const std::vector<float> gradients = grad_scores.read();
  for (size_t row = 0; row < 4; ++row) print("gradient", gradients, row * 3, row * 3 + 3);

  // The round trip: nudge one score up and down and see how the loss answers.
  const size_t nudged = 7;
  const float nudge = 0.01f;
  std::vector<float> scores = e.scores.read();
  scores[nudged] += nudge;
  e.scores.write(scores);
  forward(e);
  const double above = weighted_sum(e.shares.read(), dy);
  scores[nudged] -= 2 * nudge;
  e.scores.write(scores);
  forward(e);
  const double below = weighted_sum(e.shares.read(), dy);
  std::printf("gradient[%zu] %.3f, by difference %.3f\n", nudged,
              static_cast<double>(gradients[nudged]), (above - below) / 0.02);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem small_problem(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnScaledMaskedSoftmaxBackward";
  p.folder = "scaled_masked_softmax_backward";
  p.parameters = {in("gradOutput"), in("y"), in("mask"), out("out")};
  p.tensors = {tensor({2, 3, 5, 24}, ACL_BF16, a), tensor({2, 3, 5, 24}, ACL_BF16, a),
               tensor({2, 1, 5, 24}, ACL_BOOL), tensor({2, 3, 5, 24}, ACL_BF16, a)};
  p.tensors[2]->fill_integers(9, 0, 1);
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(t[0], t[1], t[2], 0.25, false,
                                                            writable(t[3]), size, executor);
  };
  p.execute = aclnnScaledMaskedSoftmaxBackward;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_scaled_masked_softmax_backward() {
  return {small_problem};
}

}  // namespace aclgrad::test

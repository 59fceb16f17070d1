// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem small_problem(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnScaledMaskedSoftmax";
  p.folder = "scaled_masked_softmax";
  p.parameters = {in("x"), in("mask"), out("y")};
  p.tensors = {tensor({2, 3, 5, 24}, ACL_FLOAT, a), tensor({2, 1, 5, 24}, ACL_BOOL),
               tensor({2, 3, 5, 24}, ACL_FLOAT, a)};
  p.tensors[1]->fill_integers(9, 0, 1);
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(t[0], t[1], 0.25, false, writable(t[2]), size,
                                                    executor);
  };
  p.execute = aclnnScaledMaskedSoftmax;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_scaled_masked_softmax() { return {small_problem}; }

}  // namespace aclgrad::test

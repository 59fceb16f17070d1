// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem by_ends(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnGroupedBiasAddGrad";
  p.folder = "grouped_bias_add_grad";
  p.parameters = {in("gradY"), optional("groupIdxOptional"), out("out")};
  p.tensors = {tensor({12, 24}, ACL_FLOAT, a), tensor({4}, ACL_INT64),
               tensor({4, 24}, ACL_FLOAT, a)};
  p.tensors[1]->fill({3, 3, 10, 12});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnGroupedBiasAddGradGetWorkspaceSize(t[0], t[1], writable(t[2]), size, executor);
  };
  p.execute = aclnnGroupedBiasAddGrad;
  return p;
}

SmallProblem by_sizes(Arrangement a) {
  SmallProblem p = by_ends(a);
  p.function = "aclnnGroupedBiasAddGradV2";
  p.tensors[1] = tensor({4}, ACL_INT32);
  p.tensors[1]->fill({3, 0, 7, 2});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnGroupedBiasAddGradV2GetWorkspaceSize(t[0], t[1], 1, writable(t[2]), size, executor);
  };
  p.execute = aclnnGroupedBiasAddGradV2;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_grouped_bias_add_grad() {
  return {by_ends, by_sizes};
}

}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_embedding.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem small_problem(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnEmbedding";
  p.folder = "embedding";
  p.parameters = {in("weight"), in("indices"), out("out")};
  p.tensors = {tensor({7, 24}, ACL_BF16, a), tensor({2, 5}, ACL_INT32),
               tensor({2, 5, 24}, ACL_BF16, a)};
  p.tensors[1]->fill({6, 1, 1, 0, 3, 6, 6, 2, 5, 1});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnEmbeddingGetWorkspaceSize(t[0], t[1], t[2], size, executor);
  };
  p.execute = aclnnEmbedding;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_embedding() { return {small_problem}; }

}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem small_problem(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnEmbeddingDenseBackward";
  p.folder = "embedding_dense_backward";
  p.parameters = {in("grad"), in("indices"), out("out")};
  p.tensors = {tensor({10, 24}, ACL_FLOAT16, a), tensor({10}, ACL_INT64),
               tensor({7, 24}, ACL_FLOAT, a)};
  p.tensors[1]->fill({6, 1, 1, 0, 3, 6, 6, 2, 5, 1});
  p.plan_with = [](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnEmbeddingDenseBackwardGetWorkspaceSize(t[0], t[1], 7, 5, false, t[2], size,
                                                       executor);
  };
  p.execute = aclnnEmbeddingDenseBackward;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_embedding_dense_backward() {
  return {small_problem};
}

}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem small_problem(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnNsaCompressGrad";
  p.folder = "nsa_compress_grad";
  p.parameters = {in("outputGrad"), in("input"), in("weight"), out("inputGradOut"),
                  out("weightGradOut")};
  p.tensors = {tensor({4, 2, 16}, ACL_FLOAT16, a), tensor({100, 2, 16}, ACL_FLOAT16, a),
               tensor({32, 2}, ACL_FLOAT16, a), tensor({100, 2, 16}, ACL_FLOAT16, a),
               tensor({32, 2}, ACL_FLOAT16, a)};
  const auto ends = std::make_shared<IntArray>(Dims{48, 50, 100});  // 2, 0 and 2 windows
  p.arrays = {ends};
  p.plan_with = [ends](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    char layout[] = "TND";
    return aclnnNsaCompressGradGetWorkspaceSize(t[0], t[1], t[2], ends->handle(), 32, 16, 0, layout,
                                                t[3], t[4], size, executor);
  };
  p.execute = aclnnNsaCompressGrad;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_nsa_compress_grad() { return {small_problem}; }

}  // namespace aclgrad::test

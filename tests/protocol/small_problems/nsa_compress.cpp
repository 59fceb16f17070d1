// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_nsa_compress.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem small_problem(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnNsaCompress";
  p.folder = "nsa_compress";
  p.parameters = {in("input"), in("weight"), out("output")};
  p.tensors = {tensor({100, 2, 16}, ACL_BF16, a), tensor({32, 2}, ACL_BF16, a),
               tensor({4, 2, 16}, ACL_BF16, a)};
  const auto ends = std::make_shared<IntArray>(Dims{48, 50, 100});  // 2, 0 and 2 windows
  p.arrays = {ends};
  p.plan_with = [ends](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    char layout[] = "TND";
    return aclnnNsaCompressGetWorkspaceSize(t[0], t[1], ends->handle(), layout, 32, 16, 0,
                                            writable(t[2]), size, executor);
  };
  p.execute = aclnnNsaCompress;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_nsa_compress() { return {small_problem}; }

}  // namespace aclgrad::test

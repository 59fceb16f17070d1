// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem small_problem(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnLayerNormBackward";
  p.folder = "layer_norm_backward";
  p.parameters = {in("gradOut"),
                  in("input"),
                  in("mean"),
                  in("rstd"),
                  optional("weightOptional"),
                  {"biasOptional", false, true, true},
                  out("gradInputOut"),
                  out("gradWeightOut"),
                  out("gradBiasOut")};
  p.tensors = {
      tensor({6, 20}, ACL_FLOAT, a), tensor({6, 20}, ACL_FLOAT, a), tensor({6, 1}, ACL_FLOAT, a),
      tensor({6, 1}, ACL_FLOAT, a),  tensor({20}, ACL_FLOAT, a),    tensor({20}, ACL_FLOAT, a),
      tensor({6, 20}, ACL_FLOAT, a), tensor({20}, ACL_FLOAT, a),    tensor({20}, ACL_FLOAT, a)};
  const auto shape = std::make_shared<IntArray>(Dims{20});
  const auto mask = std::make_shared<BoolArray>(std::vector<bool>{true, true, true});
  p.arrays = {shape, mask};
  p.plan_with = [shape, mask](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnLayerNormBackwardGetWorkspaceSize(t[0], t[1], shape->handle(), t[2], t[3], t[4],
                                                  t[5], mask->handle(), writable(t[6]),
                                                  writable(t[7]), writable(t[8]), size, executor);
  };
  p.execute = aclnnLayerNormBackward;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_layer_norm_backward() { return {small_problem}; }

}  // namespace aclgrad::test

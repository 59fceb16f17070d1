// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_layer_norm.h"
#include "protocol/operators.h"

namespace aclgrad::test {
namespace {

SmallProblem plain(Arrangement a) {
  SmallProblem p;
  p.function = "aclnnLayerNorm";
  p.folder = "layer_norm";
  p.parameters = {in("input"),
                  optional("weightOptional"),
                  optional("biasOptional"),
                  out("out"),
                  {"meanOutOptional", true, true, false},
                  {"rstdOutOptional", true, true, false}};
  p.tensors = {tensor({6, 20}, ACL_BF16, a),   tensor({20}, ACL_FLOAT, a),
               tensor({20}, ACL_FLOAT, a),     tensor({6, 20}, ACL_FLOAT, a),
               tensor({6, 1}, ACL_FLOAT16, a), tensor({6, 1}, ACL_FLOAT, a)};
  const auto shape = std::make_shared<IntArray>(Dims{20});
  p.arrays = {shape};
  p.plan_with = [shape](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnLayerNormGetWorkspaceSize(t[0], shape->handle(), t[1], t[2], 1e-5, writable(t[3]),
                                          writable(t[4]), writable(t[5]), size, executor);
  };
  p.execute = aclnnLayerNorm;
  return p;
}

SmallProblem with_impl_mode(Arrangement a) {
  SmallProblem p = plain(a);
  p.function = "aclnnLayerNormWithImplMode";
  const auto shape = std::make_shared<IntArray>(Dims{20});
  p.arrays = {shape};
  p.plan_with = [shape](const Handles& t, uint64_t* size, aclOpExecutor** executor) {
    return aclnnLayerNormWithImplModeGetWorkspaceSize(t[0], shape->handle(), t[1], t[2], 1e-5,
                                                      writable(t[3]), writable(t[4]),
                                                      writable(t[5]), 1, size, executor);
  };
  p.execute = aclnnLayerNormWithImplMode;
  return p;
}

}  // namespace

std::vector<MakeSmallProblem> small_problems_of_layer_norm() { return {plain, with_impl_mode}; }

}  // namespace aclgrad::test

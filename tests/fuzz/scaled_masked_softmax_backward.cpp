// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "fuzz/attention.h"
#include "fuzz/operators.h"
#include "ops/scaled_masked_softmax_backward/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

constexpr const char* kNames[] = {"gradOutput", "y", "mask", "out"};
using Call = AttentionCall<4>;

}  // namespace

Attempt draw_scaled_masked_softmax_backward(Random& random) {
  Attempt a;
  a.function = "aclnnScaledMaskedSoftmaxBackward";
  auto c = std::make_shared<Call>();
  const Dims dims = draw_inputs(random, *c);
  const TensorPointer& place = c->tensors[random.integer(0, 1)];
  const bool in_place = random.chance(0.15) && !repeats(*place);
  c->use(c->kOut, in_place ? place : draw_output(random, dims, place->dtype()));
  c->scale =
      random.pick(std::vector<double>{1.0, 0.125, -2.5, 0.0, 1e-3, 1e9, 1e-40, random.normal()});
  c->describe(kNames, c->kOut, a);
  a.text += " scale=" + std::to_string(c->scale);
  if (random.chance(0.2)) break_call(random, *c, kNames, "fixTriuMask", a);
  const auto size = [](const Tensor& tensor, size_t i) {
    return static_cast<size_t>(tensor.dims()[i]);
  };
  const Tensor& y = *c->tensors[1];
  const Tensor& mask = *c->tensors[2];
  const auto exact = std::make_shared<scaled_masked_softmax_backward::Reference>(
      scaled_masked_softmax_backward::reference(
          {size(y, 0), size(y, 1), size(y, 2), size(y, 3), size(mask, 0), size(mask, 1)},
          c->tensors[0]->values(), y.values(), mask.values(), c->scale));
  const auto terms = static_cast<double>(y.dims()[3] + 2);
  a.plan = [c](uint64_t* workspace, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(c->handles[0], c->handles[1],
                                                            c->handles[2], c->scale, c->triangular,
                                                            c->writable(3), workspace, executor);
  };
  a.execute = aclnnScaledMaskedSoftmaxBackward;
  a.check = [c, exact, terms] {
    test::expect_close("aclnnScaledMaskedSoftmaxBackward", *c->tensors[3], exact->dx,
                       exact->dx_magnitude, terms);
  };
  return a;
}

}  // namespace aclgrad::fuzz

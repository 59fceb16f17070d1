// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "fuzz/attention.h"
#include "fuzz/operators.h"
#include "ops/scaled_masked_softmax/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

constexpr const char* kNames[] = {"x", "mask", "y"};
using Call = AttentionCall<3>;

}  // namespace

Attempt draw_scaled_masked_softmax(Random& random) {
  Attempt a;
  a.function = "aclnnScaledMaskedSoftmax";
  auto c = std::make_shared<Call>();
  const Dims dims = draw_inputs(random, *c);
  c->use(c->kOut, draw_output(random, dims, c->tensors[0]->dtype()));
  c->scale = random.pick(std::vector<double>{1.0, 0.125, -2.5, 0.0, 1e-3, 1e4, random.normal()});
  c->describe(kNames, c->kOut, a);
  a.text += " scale=" + std::to_string(c->scale);
  if (random.chance(0.2)) break_call(random, *c, kNames, "fixedTriuMask", a);
  const auto size = [](const Tensor& tensor, size_t i) {
    return static_cast<size_t>(tensor.dims()[i]);
  };
  const Tensor& x = *c->tensors[0];
  const Tensor& mask = *c->tensors[1];
  const auto exact = std::make_shared<std::vector<double>>(scaled_masked_softmax::reference(
      {size(x, 0), size(x, 1), size(x, 2), size(x, 3), size(mask, 0), size(mask, 1)}, x.values(),
      mask.values(), c->scale));
  a.plan = [c](uint64_t* workspace, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(
        c->handles[0], c->handles[1], c->scale, c->triangular, c->writable(2), workspace, executor);
  };
  a.execute = aclnnScaledMaskedSoftmax;
  a.check = [c, exact] {
    test::expect_close("aclnnScaledMaskedSoftmax", *c->tensors[2], *exact, *exact, 2);
  };
  return a;
}

}  // namespace aclgrad::fuzz

// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "bench/attention.h"
#include "bench/bench.h"
#include "ops/scaled_masked_softmax_backward/cases.h"

namespace aclgrad::bench {
namespace {

// Every third element is masked.
struct Tensors {
  Tensors(const Dims& dims, const Dims& mask_dims, aclDataType dtype)
      : dy(dims, dtype), y(dims, dtype), mask(mask_dims, ACL_BOOL), dx(dims, dtype) {
    mask.fill({0, 0, 1});
  }
  int64_t bytes() const { return dy.bytes() + y.bytes() + mask.bytes() + dx.bytes(); }

  Tensor dy, y, mask, dx;
};

void check(aclDataType, const std::string& shape) { parse_attention(shape); }

Problem make(aclDataType dtype, const std::string& name) {
  const AttentionShape shape = parse_attention(name);
  auto t = std::make_shared<Tensors>(shape.scores, shape.mask, dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(t->dy.handle(), t->y.handle(),
                                                                    t->mask.handle(), 0.125, false,
                                                                    t->dx.handle(), size, executor);
          },
          aclnnScaledMaskedSoftmaxBackward, t->bytes(), 6.0 * static_cast<double>(t->y.numel())};
}

[[maybe_unused]] const bool added =
    add({"scaled_masked_softmax_backward", check, make,
         in_dtypes(kAllFloats, scaled_masked_softmax_backward::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

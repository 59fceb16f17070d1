// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "bench/attention.h"
#include "bench/bench.h"
#include "ops/scaled_masked_softmax/cases.h"

namespace aclgrad::bench {
namespace {

// Every third element is masked.
struct Tensors {
  Tensors(const Dims& dims, const Dims& mask_dims, aclDataType dtype)
      : x(dims, dtype), mask(mask_dims, ACL_BOOL), y(dims, dtype) {
    mask.fill({0, 0, 1});
  }
  int64_t bytes() const { return x.bytes() + mask.bytes() + y.bytes(); }

  Tensor x, mask, y;
};

void check(aclDataType, const std::string& shape) { parse_attention(shape); }

Problem make(aclDataType dtype, const std::string& name) {
  const AttentionShape shape = parse_attention(name);
  auto t = std::make_shared<Tensors>(shape.scores, shape.mask, dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxGetWorkspaceSize(t->x.handle(), t->mask.handle(), 0.125,
                                                            false, t->y.handle(), size, executor);
          },
          aclnnScaledMaskedSoftmax, t->bytes(), 5.0 * static_cast<double>(t->y.numel())};
}

[[maybe_unused]] const bool added =
    add({"scaled_masked_softmax", check, make,
         in_dtypes(kAllFloats, scaled_masked_softmax::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "bench/bench.h"
#include "ops/scaled_masked_softmax/cases.h"

namespace aclgrad::bench {
namespace {

// The heads share the mask, as in attention; every third element is masked.
struct Tensors {
  Tensors(const Dims& dims, aclDataType dtype)
      : x(dims, dtype), mask({dims[0], 1, dims[2], dims[3]}, ACL_BOOL), y(dims, dtype) {
    mask.fill({0, 0, 1});
  }
  int64_t bytes() const { return x.bytes() + mask.bytes() + y.bytes(); }

  Tensor x, mask, y;
};

Problem make(aclDataType dtype, const std::string& shape) {
  auto t = std::make_shared<Tensors>(parse_dims(shape, 4), dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxGetWorkspaceSize(t->x.handle(), t->mask.handle(), 0.125,
                                                            false, t->y.handle(), size, executor);
          },
          aclnnScaledMaskedSoftmax, t->bytes(), 5.0 * static_cast<double>(t->y.numel())};
}

[[maybe_unused]] const bool added = add(
    {"scaled_masked_softmax", make, in_dtypes(kAllFloats, scaled_masked_softmax::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

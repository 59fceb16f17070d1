// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "bench/bench.h"
#include "ops/scaled_masked_softmax_backward/cases.h"

namespace aclgrad::bench {
namespace {

// The heads share the mask, as in attention; every third element is masked.
struct Tensors {
  Tensors(const Dims& dims, aclDataType dtype)
      : dy(dims, dtype),
        y(dims, dtype),
        mask({dims[0], 1, dims[2], dims[3]}, ACL_BOOL),
        dx(dims, dtype) {
    mask.fill({0, 0, 1});
  }
  int64_t bytes() const { return dy.bytes() + y.bytes() + mask.bytes() + dx.bytes(); }

  Tensor dy, y, mask, dx;
};

Problem make(aclDataType dtype, const std::string& shape) {
  auto t = std::make_shared<Tensors>(parse_dims(shape, 4), dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(t->dy.handle(), t->y.handle(),
                                                                    t->mask.handle(), 0.125, false,
                                                                    t->dx.handle(), size, executor);
          },
          aclnnScaledMaskedSoftmaxBackward, t->bytes(), 6.0 * static_cast<double>(t->y.numel())};
}

[[maybe_unused]] const bool added =
    add({"scaled_masked_softmax_backward", make,
         in_dtypes(kAllFloats, scaled_masked_softmax_backward::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

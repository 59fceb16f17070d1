// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "aclnnop/aclnn_layer_norm_backward.h"
#include "bench/bench.h"
#include "ops/layer_norm_backward/cases.h"

namespace aclgrad::bench {
namespace {

// All three gradients; mean, rstd, dgamma and dbeta in FP32, gamma in the input's dtype.
struct Tensors {
  Tensors(int64_t rows, int64_t cols, aclDataType dtype)
      : dy({rows, cols}, dtype),
        x({rows, cols}, dtype),
        dx({rows, cols}, dtype),
        mean({rows, 1}, ACL_FLOAT),
        rstd({rows, 1}, ACL_FLOAT),
        gamma({cols}, dtype),
        dgamma({cols}, ACL_FLOAT),
        dbeta({cols}, ACL_FLOAT) {
    mean.fill({0.1, -0.2, 0.0});
    rstd.fill({1.0, 0.9, 1.1});
    const bool all[3] = {true, true, true};
    mask = aclCreateBoolArray(all, 3);
    normalized = aclCreateIntArray(&cols, 1);
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
  ~Tensors() {
    static_cast<void>(aclDestroyBoolArray(mask));
    static_cast<void>(aclDestroyIntArray(normalized));
  }
  int64_t bytes() const {
    return dy.bytes() + x.bytes() + dx.bytes() + mean.bytes() + rstd.bytes() + gamma.bytes() +
           dgamma.bytes() + dbeta.bytes();
  }

  Tensor dy, x, dx, mean, rstd, gamma, dgamma, dbeta;
  aclBoolArray* mask;
  aclIntArray* normalized;
};

Problem make(aclDataType dtype, const std::string& shape) {
  const Dims dims = parse_dims(shape, 2);
  auto t = std::make_shared<Tensors>(dims[0], dims[1], dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnLayerNormBackwardGetWorkspaceSize(
                t->dy.handle(), t->x.handle(), t->normalized, t->mean.handle(), t->rstd.handle(),
                t->gamma.handle(), nullptr, t->mask, t->dx.handle(), t->dgamma.handle(),
                t->dbeta.handle(), size, executor);
          },
          aclnnLayerNormBackward, t->bytes(), 14.0 * static_cast<double>(t->x.numel())};
}

[[maybe_unused]] const bool added =
    add({"layer_norm_backward", make, in_dtypes(kAllFloats, layer_norm_backward::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

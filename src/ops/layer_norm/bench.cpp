// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "aclnnop/aclnn_layer_norm.h"
#include "bench/bench.h"
#include "ops/layer_norm/cases.h"

namespace aclgrad::bench {
namespace {

// All three outputs; mean and rstd in FP32, gamma and beta in the input's dtype.
struct Tensors {
  Tensors(int64_t rows, int64_t cols, aclDataType dtype)
      : x({rows, cols}, dtype),
        gamma({cols}, dtype),
        beta({cols}, dtype),
        y({rows, cols}, dtype),
        mean({rows, 1}, ACL_FLOAT),
        rstd({rows, 1}, ACL_FLOAT) {
    normalized = aclCreateIntArray(&cols, 1);
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
  ~Tensors() { static_cast<void>(aclDestroyIntArray(normalized)); }
  int64_t bytes() const {
    return x.bytes() + gamma.bytes() + beta.bytes() + y.bytes() + mean.bytes() + rstd.bytes();
  }

  Tensor x, gamma, beta, y, mean, rstd;
  aclIntArray* normalized;
};

void check(aclDataType, const std::string& shape) { parse_dims(shape, 2); }

Problem make(aclDataType dtype, const std::string& shape) {
  const Dims dims = parse_dims(shape, 2);
  auto t = std::make_shared<Tensors>(dims[0], dims[1], dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnLayerNormGetWorkspaceSize(
                t->x.handle(), t->normalized, t->gamma.handle(), t->beta.handle(), 1e-5,
                t->y.handle(), t->mean.handle(), t->rstd.handle(), size, executor);
          },
          aclnnLayerNorm, t->bytes(), 8.0 * static_cast<double>(t->x.numel())};
}

[[maybe_unused]] const bool added =
    add({"layer_norm", check, make, in_dtypes(kAllFloats, layer_norm::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

// SPDX-License-Identifier: Apache-2.0
// Shapes: "8192x4096", rows x cols; "out110/8192x4096", of dx, dgamma and dbeta only those with
// a 1.
#include <array>
#include <memory>
#include <stdexcept>
#include <string>

#include "aclnnop/aclnn_layer_norm_backward.h"
#include "bench/bench.h"
#include "ops/layer_norm_backward/cases.h"

namespace aclgrad::bench {
namespace {

using Wanted = std::array<bool, 3>;  // dx, dgamma, dbeta

Dims parse(const std::string& name, Wanted& wanted) {
  std::string shape = name;
  const std::string variant = take_variant(shape, "out");
  wanted.fill(true);
  if (shape == name) return parse_dims(shape, 2);
  if (variant.size() != wanted.size() || variant.find_first_not_of("01") != std::string::npos ||
      variant.find('1') == std::string::npos) {
    throw std::invalid_argument("shape '" + name +
                                "': expected out<dx><dgamma><dbeta>/, a 0 or 1 "
                                "for each and one 1 at least");
  }
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = variant[i] == '1';
  return parse_dims(shape, 2);
}

// mean, rstd, dgamma and dbeta in FP32, gamma in the input's dtype.
struct Tensors {
  Tensors(int64_t rows, int64_t cols, const Wanted& outputs, aclDataType dtype)
      : dy({rows, cols}, dtype),
        x({rows, cols}, dtype),
        dx({rows, cols}, dtype),
        mean({rows, 1}, ACL_FLOAT),
        rstd({rows, 1}, ACL_FLOAT),
        gamma({cols}, dtype),
        dgamma({cols}, ACL_FLOAT),
        dbeta({cols}, ACL_FLOAT),
        wanted(outputs) {
    mean.fill({0.1, -0.2, 0.05});  // none is 0: such rows are looked at once more
    rstd.fill({1.0, 0.9, 1.1});
    mask = aclCreateBoolArray(wanted.data(), wanted.size());
    normalized = aclCreateIntArray(&cols, 1);
  }
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;
  ~Tensors() {
    static_cast<void>(aclDestroyBoolArray(mask));
    static_cast<void>(aclDestroyIntArray(normalized));
  }
  int64_t bytes() const {
    int64_t sum = dy.bytes();
    if (wanted[0] || wanted[1]) sum += x.bytes() + mean.bytes() + rstd.bytes();
    if (wanted[0]) sum += gamma.bytes() + dx.bytes();
    if (wanted[1]) sum += dgamma.bytes();
    if (wanted[2]) sum += dbeta.bytes();
    return sum;
  }

  double flops() const {
    const int each = (wanted[0] ? 9 : 0) + (wanted[1] ? 4 : 0) + (wanted[2] ? 1 : 0);
    return each * static_cast<double>(x.numel());
  }

  Tensor dy, x, dx, mean, rstd, gamma, dgamma, dbeta;
  Wanted wanted;
  aclBoolArray* mask;
  aclIntArray* normalized;
};

void check(aclDataType, const std::string& shape) {
  Wanted wanted{};
  parse(shape, wanted);
}

Problem make(aclDataType dtype, const std::string& shape) {
  Wanted wanted{};
  const Dims dims = parse(shape, wanted);
  auto t = std::make_shared<Tensors>(dims[0], dims[1], wanted, dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnLayerNormBackwardGetWorkspaceSize(
                t->dy.handle(), t->x.handle(), t->normalized, t->mean.handle(), t->rstd.handle(),
                t->gamma.handle(), nullptr, t->mask, t->dx.handle(), t->dgamma.handle(),
                t->dbeta.handle(), size, executor);
          },
          aclnnLayerNormBackward, t->bytes(), t->flops()};
}

[[maybe_unused]] const bool added =
    add({"layer_norm_backward", check, make,
         in_dtypes(kAllFloats, layer_norm_backward::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

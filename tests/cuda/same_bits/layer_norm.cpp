// SPDX-License-Identifier: Apache-2.0
// The bits of LayerNorm's three outputs: all shapes and dtypes, accesses that fit and others,
// ordinary numbers and those that take FP64 or a second look.
#include "aclnnop/aclnn_layer_norm.h"
#include "operators.h"
#include "ops/layer_norm/cases.h"

namespace aclgrad::test {
namespace {

struct Case {
  int64_t rows, cols;
  aclDataType dtype;
  Arrangement arrangement;
  double mean, deviation, eps;
};

void print_case(const std::string& name, const Case& each) {
  const Dims dims = {each.rows, each.cols};
  Tensor x(dims, each.dtype, each.arrangement), y(dims, each.dtype, each.arrangement);
  Tensor gamma({each.cols}, each.dtype), beta({each.cols}, each.dtype);
  Tensor mean({each.rows}, ACL_FLOAT), rstd({each.rows}, ACL_FLOAT);
  x.fill_normal(1, each.mean, each.deviation);
  gamma.fill_normal(2, 1.0, 0.5);
  beta.fill_normal(3, 0.0, 0.5);
  const IntArray normalized({each.cols});
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnLayerNormGetWorkspaceSize(x.handle(), normalized.handle(), gamma.handle(),
                                              beta.handle(), each.eps, y.handle(), mean.handle(),
                                              rstd.handle(), size, executor);
      },
      aclnnLayerNorm);
  print_digest(name + " y", outcome, y);
  print_digest(name + " mean", outcome, mean);
  print_digest(name + " rstd", outcome, rstd);
}

}  // namespace

void print_layer_norm() {
  for (const auto& shape : layer_norm::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      const std::string name = std::string("layer_norm/") + dtype_short_name(dtype) + "/" +
                               std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
      const Case plain = {shape.rows, shape.cols, dtype, Arrangement::kContiguous, 0.5, 2.0, 1e-5};
      print_case(name, plain);
      if (shape.rows * shape.cols > 100000) continue;
      Case other = plain;
      other.arrangement = Arrangement::kOffset;
      print_case(name + " offset", other);
      other = plain;
      other.mean = 0.0;
      other.deviation = 1e-39;
      print_case(name + " tiny", other);
      other.deviation = 0.0;
      print_case(name + " zero", other);
      other.mean = 100.0;
      other.deviation = 1e-3;
      other.eps = 0.0;
      print_case(name + " far", other);
    }
  }
}

}  // namespace aclgrad::test

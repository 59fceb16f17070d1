// SPDX-License-Identifier: Apache-2.0
// The bits of LayerNormBackward's three outputs: all shapes and dtypes, rows that can be staged and
// others, ordinary numbers and those that take FP64.
#include <cmath>

#include "aclnnop/aclnn_layer_norm_backward.h"
#include "operators.h"
#include "ops/layer_norm_backward/cases.h"

namespace aclgrad::test {
namespace {

struct Case {
  int64_t rows, cols;
  aclDataType dtype;
  Arrangement arrangement;
  double size;  // of dy; -0: it is nothing but negative zeros
  double rstd;
};

void print_case(const std::string& name, const Case& each) {
  const Dims dims = {each.rows, each.cols};
  Tensor dy(dims, each.dtype, each.arrangement), x(dims, each.dtype, each.arrangement);
  Tensor mean({each.rows}, ACL_FLOAT), rstd({each.rows}, each.dtype);
  Tensor gamma({each.cols}, each.dtype), dx(dims, each.dtype, each.arrangement);
  Tensor dgamma({each.cols}, ACL_FLOAT), dbeta({each.cols}, ACL_FLOAT);
  dy.fill_normal(1, 0.0, each.size);
  x.fill_normal(2, 0.5, 2.0);
  mean.fill_normal(3, 0.5, 0.1);
  rstd.fill_uniform(4, -0.5 * each.rstd, 1.5 * each.rstd);
  gamma.fill_normal(5, 1.0, 0.5);
  if (each.size == 0.0 && std::signbit(each.size)) {
    dy.fill(std::vector<double>(static_cast<size_t>(dy.numel()), -0.0));
    gamma.fill(std::vector<double>(static_cast<size_t>(gamma.numel()), 1.0));
  }
  const IntArray normalized({each.cols});
  const BoolArray mask({true, true, true});
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnLayerNormBackwardGetWorkspaceSize(
            dy.handle(), x.handle(), normalized.handle(), mean.handle(), rstd.handle(),
            gamma.handle(), nullptr, mask.handle(), dx.handle(), dgamma.handle(), dbeta.handle(),
            size, executor);
      },
      aclnnLayerNormBackward);
  print_digest(name + " dx", outcome, dx);
  print_digest(name + " dgamma", outcome, dgamma);
  print_digest(name + " dbeta", outcome, dbeta);
}

}  // namespace

void print_layer_norm_backward() {
  using layer_norm_backward::Shape;
  std::vector<Shape> shapes = layer_norm_backward::test_shapes();
  // Slabs that leave FP64 totals, several row blocks at a time, in blocks that share an SM and
  // others; one access a thread and up to eight.
  for (const Shape& more : {Shape{8200, 16}, Shape{8208, 136}, Shape{9000, 8}, Shape{16384, 8},
                            Shape{40, 2048}, Shape{33, 4096}, Shape{35, 8192}, Shape{33, 12288},
                            Shape{64, 64}, Shape{64, 32}, Shape{50, 40}, Shape{300, 768}}) {
    shapes.push_back(more);
  }
  // One row block at a time.
  print_case("layer_norm_backward/f32/7700x1032",
             {7700, 1032, ACL_FLOAT, Arrangement::kContiguous, 1.0, 1.0});
  // Short rows have no +0 to begin with: their sums are -0.
  for (const int64_t cols : {1, 5, 16, 17, 31, 32, 33, 40, 48, 49, 64, 65}) {
    for (const aclDataType dtype : kFloats) {
      print_case(std::string("layer_norm_backward/") + dtype_short_name(dtype) + "/4x" +
                     std::to_string(cols) + " negative zeros",
                 {4, cols, dtype, Arrangement::kContiguous, -0.0, 1.0});
    }
  }
  for (const auto& shape : shapes) {
    for (const aclDataType dtype : kFloats) {
      const std::string name = std::string("layer_norm_backward/") + dtype_short_name(dtype) + "/" +
                               std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
      print_case(name, {shape.rows, shape.cols, dtype, Arrangement::kContiguous, 1.0, 1.0});
      if (shape.rows * shape.cols > 100000) continue;
      print_case(name + " offset", {shape.rows, shape.cols, dtype, Arrangement::kOffset, 1.0, 1.0});
      print_case(name + " tiny",
                 {shape.rows, shape.cols, dtype, Arrangement::kContiguous, 1e-39, 1e4});
      print_case(name + " zero",
                 {shape.rows, shape.cols, dtype, Arrangement::kContiguous, 0.0, 1.0});
    }
  }
}

}  // namespace aclgrad::test

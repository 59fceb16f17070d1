// SPDX-License-Identifier: Apache-2.0
// The bits of ScaledMaskedSoftmax: all shapes and dtypes, usual rows and others, aligned and
// others; short rows whose quotients are nearly ties.
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "operators.h"
#include "ops/scaled_masked_softmax/cases.h"

namespace aclgrad::test {
namespace {

Outcome run_softmax(const Tensor& x, const Tensor& mask, double scale, const Tensor& y) {
  return run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask.handle(), scale, false,
                                                        y.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmax);
}

// x as it is filled, nothing masked.
void print_rows(const std::string& name, double scale, const Tensor& x) {
  Tensor y(x.dims(), x.dtype()), mask(x.dims(), ACL_BOOL);
  mask.fill_integers(1, 0, 1);
  print_digest("scaled_masked_softmax/" + name, run_softmax(x, mask, scale, y), y);
}

// Nearly equal elements: each is about 1 / columns, a tie as soon as columns are a power of two.
void print_nearly_equal() {
  for (int64_t cols = 2; cols < 32; ++cols) {
    Tensor x({1, 1, 256, cols}, ACL_FLOAT);
    x.fill_normal(static_cast<uint64_t>(cols), 1.0, 3e-7);
    print_rows("nearly equal x" + std::to_string(cols), 1.0, x);
  }
}

// Rows that were off by a unit in the last place while 1 / sum was taken in FP64.
void print_once_different() {
  Tensor four({1, 1, 2, 4}, ACL_FLOAT);
  four.fill({-0x1.8f7598p-36, -0x1.d7c308p-37, -0x1.8fdb82p-36, -0x1.2e154cp-36, 0x1.bcbb3ep-38,
             -0x1.683874p-37, 0x1.2ea742p-37, -0x1.fce678p-40});
  print_rows("once different x4", 1e4, four);
  Tensor nineteen({1, 1, 1, 19}, ACL_FLOAT16);
  nineteen.fill({1.0283203125, 1.0029296875, 1.333984375, -0.01157379150390625, 0.05908203125,
                 2.255859375, -0.95703125, -0.08148193359375, 0.85498046875, -0.44775390625,
                 0.814453125, -1.04296875, 0.7744140625, 0.87890625, 0.00426483154296875,
                 -0.8232421875, 0.88818359375, -0.029541015625, 0.42919921875});
  print_rows("once different x19", 0.125, nineteen);
}

}  // namespace

void print_scaled_masked_softmax() {
  print_nearly_equal();
  print_once_different();
  for (const auto& shape : scaled_masked_softmax::test_shapes()) {
    const Dims dims = {shape.batches, shape.heads, shape.rows, shape.cols};
    for (const aclDataType dtype : kFloats) {
      for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kOffset}) {
        for (const double scale : {-3.0, 1e5}) {
          Tensor x(dims, dtype, arrangement), y(dims, dtype, arrangement);
          Tensor mask({dims[0], 1, dims[2], dims[3]}, ACL_BOOL);
          x.fill_normal(1);
          mask.fill_integers(3, 0, 2);
          print_digest(std::string("scaled_masked_softmax/") + dtype_short_name(dtype) + "/" +
                           std::to_string(shape.rows) + "x" + std::to_string(shape.cols) + " " +
                           arrangement_name(arrangement) + " scale " + std::to_string(scale),
                       run_softmax(x, mask, scale, y), y);
        }
      }
    }
  }
}

}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// The bits of ScaledMaskedSoftmaxBackward: all shapes and dtypes, scales that FP32 holds and
// others, sums that are ordinary and others, rows that are aligned and others.
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "operators.h"
#include "ops/scaled_masked_softmax_backward/cases.h"

namespace aclgrad::test {
namespace {

void print_case(const std::string& name, const Dims& dims, aclDataType dtype,
                Arrangement arrangement, double scale, double size) {
  Tensor dy(dims, dtype, arrangement), y(dims, dtype, arrangement);
  Tensor mask({dims[0], 1, dims[2], dims[3]}, ACL_BOOL), dx(dims, dtype, arrangement);
  dy.fill_normal(1, 0.0, size);
  y.fill_uniform(2, -0.5, 2.5);
  mask.fill_integers(3, 0, 3);
  const Outcome outcome = run(
      [&](uint64_t* workspace_size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
            dy.handle(), y.handle(), mask.handle(), scale, false, dx.handle(), workspace_size,
            executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  print_digest(name, outcome, dx);
}

}  // namespace

void print_scaled_masked_softmax_backward() {
  for (const auto& shape : scaled_masked_softmax_backward::test_shapes()) {
    const Dims dims = {shape.batches, shape.heads, shape.rows, shape.cols};
    for (const aclDataType dtype : kFloats) {
      for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kOffset}) {
        for (const double scale : {-3.0, 1e39}) {
          for (const double size : {1.0, 1e-38}) {
            const std::string name = std::string("scaled_masked_softmax_backward/") +
                                     dtype_short_name(dtype) + "/" + std::to_string(shape.rows) +
                                     "x" + std::to_string(shape.cols) + " " +
                                     arrangement_name(arrangement) + " scale " +
                                     std::to_string(scale) + " size " + std::to_string(size * 1e38);
            print_case(name, dims, dtype, arrangement, scale, size);
          }
        }
      }
    }
  }
}

}  // namespace aclgrad::test

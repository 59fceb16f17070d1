// SPDX-License-Identifier: Apache-2.0
// The bits of ScaledMaskedSoftmax: all shapes and dtypes, usual rows and others, aligned and
// others.
#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "operators.h"
#include "ops/scaled_masked_softmax/cases.h"

namespace aclgrad::test {

void print_scaled_masked_softmax() {
  for (const auto& shape : scaled_masked_softmax::test_shapes()) {
    const Dims dims = {shape.batches, shape.heads, shape.rows, shape.cols};
    for (const aclDataType dtype : kFloats) {
      for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kOffset}) {
        for (const double scale : {-3.0, 1e5}) {
          Tensor x(dims, dtype, arrangement), y(dims, dtype, arrangement);
          Tensor mask({dims[0], 1, dims[2], dims[3]}, ACL_BOOL);
          x.fill_normal(1);
          mask.fill_integers(3, 0, 2);
          const Outcome outcome = run(
              [&](uint64_t* size, aclOpExecutor** executor) {
                return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask.handle(), scale,
                                                                false, y.handle(), size, executor);
              },
              aclnnScaledMaskedSoftmax);
          print_digest(std::string("scaled_masked_softmax/") + dtype_short_name(dtype) + "/" +
                           std::to_string(shape.rows) + "x" + std::to_string(shape.cols) + " " +
                           arrangement_name(arrangement) + " scale " + std::to_string(scale),
                       outcome, y);
        }
      }
    }
  }
}

}  // namespace aclgrad::test

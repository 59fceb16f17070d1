// SPDX-License-Identifier: Apache-2.0
// Where the columns of LayerNormBackward's rows lie.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_FORMS_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_FORMS_H_

#include "kernels/cpu/segments.h"

namespace aclgrad::layer_norm_backward {

// The rows of the three large operands.
struct RowForms {
  Segments dy, x, dx;

  bool dense() const { return dy.dense() && x.dense() && dx.dense(); }
};

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_FORMS_H_

// SPDX-License-Identifier: Apache-2.0
// One run of LayerNormBackward as the kernels for GPUs see it.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_TASK_CUH_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_TASK_CUH_

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/offsets.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/layer_norm_backward/plan.h"
#include "ops/layer_norm_backward/problem.h"

namespace aclgrad::layer_norm_backward {

struct Task {
  int64_t rows, cols;
  const void *dy, *x;
  void* dx;  // null: not wanted
  aclDataType dx_dtype;
  cuda::Offsets dy_rows, x_rows, dx_rows;
  cuda::NumbersIn mean, rstd, gamma;  // gamma.base may be null: ones
  bool want_dgamma, want_columns;
  double reciprocal_cols;
  // Scratch.
  float* lane_sums;
  RowNumbers* row_numbers;
  void* parts;

  __device__ float gamma_at(int64_t col) const {
    return gamma.base == nullptr ? 1.0f : gamma.at(col);
  }
};

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_TASK_CUH_

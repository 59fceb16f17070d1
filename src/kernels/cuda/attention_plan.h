// SPDX-License-Identifier: Apache-2.0
// How the rows of tensors [B, N, S1, S2] are shared among blocks of threads: a warp takes a row, or
// several short ones, and several warps take a long one. For the kernels and for tests on the host.
#ifndef ACLGRAD_KERNELS_CUDA_ATTENTION_PLAN_H_
#define ACLGRAD_KERNELS_CUDA_ATTENTION_PLAN_H_

#include <cstdint>

#include "base/checked.h"
#include "kernels/cuda/strips.h"

namespace aclgrad::cuda {

struct AttentionTuning {
  int warps;           // of a block whose rows are a warp's or less
  int64_t short_cols;  // up to here a row is less than a warp's
  int steps[3];        // strips that a warp keeps in registers: the fewest that do
};

struct AttentionPlan {
  int width = 0;         // threads of a short row; 0: a row is a warp's or more
  int steps = 0;         // of a warp
  int warps_of_row = 1;  // several: they are the block
  Geometry launch;
};

constexpr AttentionPlan plan_attention(const AttentionTuning& tuning, int64_t rows, int64_t cols) {
  AttentionPlan plan;
  const auto block = static_cast<unsigned>(kWarpLanes * tuning.warps);
  if (cols <= tuning.short_cols) {
    plan.width = 4;
    while (plan.width < cols) plan.width *= 2;
    plan.launch = {blocks_for(ceil_div(rows, int64_t{block} / plan.width)), block};
    return plan;
  }
  for (const int steps : tuning.steps) {
    plan.steps = steps;
    if (cols <= int64_t{steps} * kStrip) {
      plan.launch = {blocks_for(ceil_div(rows, int64_t{tuning.warps})), block};
      return plan;
    }
  }
  plan.warps_of_row = static_cast<int>(ceil_div(cols, int64_t{plan.steps} * kStrip));
  plan.launch = {blocks_for(rows), static_cast<unsigned>(kWarpLanes * plan.warps_of_row)};
  return plan;
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_ATTENTION_PLAN_H_

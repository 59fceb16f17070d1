// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward: with `input` seen as `rows` rows of `cols` elements,
//
//   xhat = (x - mean) * rstd        g = dy * gamma
//   dx     = rstd * (g - mean_cols(g) - xhat * mean_cols(g * xhat))
//   dgamma = sum_rows(dy * xhat)    dbeta = sum_rows(dy)
//
// Contract name -> name here: gradOut dy, input x, weightOptional gamma, gradInputOut dx,
// gradWeightOut dgamma, gradBiasOut dbeta.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_PROBLEM_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_PROBLEM_H_

#include <cstdint>

#include "aclnn/acl_meta.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cpu/rows.h"
#include "kernels/cuda/queue.h"
#include "ops/layer_norm_backward/row_forms.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::layer_norm_backward {

// Plain data: what to compute, no addresses.
struct Problem {
  int64_t rows = 0;
  int64_t cols = 0;
  int row_dim = 0;     // the first normalized dimension of dy, x and dx
  View dy, x;          // last dimension dense, any strides before it
  View mean, rstd;     // one element a row, any strides
  View gamma;          // one element a column, any strides; dtype undefined when absent
  View dx;             // as dy
  View dgamma, dbeta;  // one element a column, any strides
  bool want_dx = false, want_dgamma = false, want_dbeta = false;

  bool has_gamma() const { return gamma.dtype != ACL_DT_UNDEFINED; }
};

// Wide: means of g and g * xhat over a row, and whether its dx takes FP64.
struct RowMeans {
  double g, gx;
  bool exact;
};

// How it is cut, from the shape alone.
struct Plan {
  bool wide = false;      // column panels instead of slabs of rows
  int64_t slab_rows = 0;  // rows a slab (not wide)
  int64_t slabs = 0;
  int64_t slab_regions = 0;     // slabs whose totals there is room for at a time
  int64_t panels = 0;           // wide
  int64_t batch_rows = 0;       // wide: rows that pass both visits before others do
  bool gamma_by_panel = false;  // wide: by the tasks themselves, not before them

  // Bytes of workspace regions; 0: not needed.
  int64_t gamma_bytes = 0;  // gamma as FP32
  // double [slab_regions][2][padded cols]: dgamma and dbeta totals of slabs. One block of rows has
  // none. Wide, where there are batches: double [2][padded cols], and float [2 * padded cols] for
  // the chains of a row block that is more than a batch.
  int64_t partial_bytes = 0;
  // wide: double [rows][panels][2]: sums of g and g * xhat; RowMeans [rows]
  int64_t row_bytes = 0;
};
Plan make_plan(const Problem& problem);

// Where its rows lie: found once, because a small run hardly takes longer.
struct Places {
  RowOffsets dy, x, dx, mean, rstd;
  RowForms forms;
};
Places make_places(const Problem& problem);

// Addresses of one run. Absent ones are null.
struct Addresses {
  const void *dy = nullptr, *x = nullptr, *mean = nullptr, *rstd = nullptr, *gamma = nullptr;
  void *dx = nullptr, *dgamma = nullptr, *dbeta = nullptr;
  void *gamma_region = nullptr, *partial_region = nullptr, *row_region = nullptr;
};
void run_cpu(const Problem& problem, const Plan& plan, const Places& places, const Addresses& at);
// Its regions are those of GpuScratch (plan.h): gamma_region has the lane sums, row_region the
// numbers of the rows.
CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const aclTensor *grad_out, *input;
  const aclIntArray* normalized_shape;
  const aclTensor *mean, *rstd, *weight, *bias;
  const aclBoolArray* output_mask;
  const aclTensor *grad_input, *grad_weight, *grad_bias;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_PROBLEM_H_

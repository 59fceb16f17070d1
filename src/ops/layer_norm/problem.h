// SPDX-License-Identifier: Apache-2.0
// LayerNorm: with `input` seen as `rows` rows of `cols` elements, per row
//
//   mean = sum(x) / cols
//   rstd = 1 / sqrt(sum((x - mean)^2) / cols + eps)
//   y    = (x - mean) * rstd * gamma + beta
//
// Contract name -> name here: input x, weightOptional gamma, biasOptional beta, out y,
// meanOutOptional mean, rstdOutOptional rstd.
#ifndef ACLGRAD_OPS_LAYER_NORM_PROBLEM_H_
#define ACLGRAD_OPS_LAYER_NORM_PROBLEM_H_

#include <cstdint>

#include "aclnn/acl_meta.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::layer_norm {

// Plain data: what to compute, no addresses.
struct Problem {
  int64_t rows = 0;
  int64_t cols = 0;
  int row_dim = 0;   // the first normalized dimension of x and y
  View x, y;         // last dimension dense, any strides before it
  View gamma, beta;  // any strides; rank 0 and dtype undefined when absent
  View mean, rstd;   // one element a row, any strides; dtype undefined when not wanted
  double eps = 0.0;
};
// An optional tensor is there.
inline bool given(const View& view) { return view.dtype != ACL_DT_UNDEFINED; }

// How it is cut, from the shape alone.
struct Plan {
  bool wide = false;      // few wide rows: the panels of a row are shared among threads
  int64_t slab_rows = 0;  // rows a task (not wide)
  int64_t slabs = 0;
  int64_t panels = 0;  // parts of a row, whose moments are taken one by one

  // The kernels read them as dense FP32, of BF16's strips even and odd columns apart.
  bool gamma_as_it_is = false, beta_as_it_is = false;

  // Bytes of workspace regions; 0: not needed.
  int64_t gamma_bytes = 0, beta_bytes = 0;  // as the kernels read them; wide: by panels
  int64_t moment_bytes = 0;                 // wide: moments of the panels, statistics of the rows
};
Plan make_plan(const Problem& problem);

// Addresses of one run. Absent ones are null.
struct Addresses {
  const void *x = nullptr, *gamma = nullptr, *beta = nullptr;
  void *y = nullptr, *mean = nullptr, *rstd = nullptr;
  void *gamma_region = nullptr, *beta_region = nullptr, *moment_region = nullptr;
};
void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);
// Its regions are those of GpuScratch (plan.h).
CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const char* op;  // the function's name, as messages begin with it
  const aclTensor* input;
  const aclIntArray* normalized_shape;
  const aclTensor *weight, *bias;
  double eps;
  const aclTensor *out, *mean_out, *rstd_out;
  int32_t impl_mode;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_PROBLEM_H_

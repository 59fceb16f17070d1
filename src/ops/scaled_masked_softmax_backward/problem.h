// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward: for every row (b, n, i) of [B, N, S1, S2]
//
//   dx = 0                                      where mask is true
//   dx = scale * (dy * y - y * sum(dy * y))     elsewhere; the sum runs over the whole row
//
// Contract name -> name here: gradOutput dy, y y, mask mask, out dx; B batches, N heads, S1 rows,
// S2 cols.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PROBLEM_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PROBLEM_H_

#include <cstdint>

#include "aclnn/acl_meta.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::scaled_masked_softmax_backward {

// Plain data: what to compute, no addresses. All views have the four dimensions of dx, the last one
// dense; where the mask repeats itself over batches or heads its stride is 0.
struct Problem {
  int64_t batches = 0, heads = 0, rows = 0, cols = 0;
  View dy, y, mask, dx;
  double scale = 1.0;
};

// How it is cut, from the shape alone.
using Plan = AttentionBlocks;
Plan make_plan(const Problem& problem);

// Addresses of one run.
struct Addresses {
  const void *dy = nullptr, *y = nullptr, *mask = nullptr;
  void* dx = nullptr;
};
void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);
CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const aclTensor *grad_output, *y, *mask;
  double scale;
  bool fix_triu_mask;
  const aclTensor* out;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::scaled_masked_softmax_backward

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_PROBLEM_H_

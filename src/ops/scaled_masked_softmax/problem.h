// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax: for every row (b, n, i) of [B, N, S1, S2]
//
//   z = -10000        where mask is true
//   z = scale * x     elsewhere
//   y = exp(z - max(z)) / sum(exp(z - max(z)))
//
// Contract name -> name here: x x, mask mask, y y; B batches, N heads, S1 rows, S2 cols.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_PROBLEM_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_PROBLEM_H_

#include <cstdint>

#include "aclnn/acl_meta.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::scaled_masked_softmax {

// Plain data: what to compute, no addresses. All views have the four dimensions of y, the last one
// dense; where the mask repeats itself over batches or heads its stride is 0.
struct Problem {
  int64_t batches = 0, heads = 0, rows = 0, cols = 0;
  View x, mask, y;
  double scale = 1.0;
};

// How it is cut, from the shape alone.
using Plan = AttentionBlocks;
Plan make_plan(const Problem& problem);

// Addresses of one run.
struct Addresses {
  const void *x = nullptr, *mask = nullptr;
  void* y = nullptr;
};
void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);
CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const aclTensor *x, *mask;
  double scale;
  bool fixed_triu_mask;
  const aclTensor* y;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_PROBLEM_H_

// SPDX-License-Identifier: Apache-2.0
// One run as the kernels see it: the same for all instruction sets.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_JOB_H_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_JOB_H_

#include <cstdint>

#include "ops/nsa_compress_grad/problem.h"

namespace aclgrad::nsa_compress_grad {

struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  bool streaming;  // dx does not fit the cache, and all its rows are aligned
  bool collect;    // dx does not fit the cache, but lines are shared by heads or tokens
  // Once a run, because a division takes as long as some ten loads.
  int64_t most_windows;                  // of a token
  int64_t tokens_ahead;                  // how many tokens x is fetched ahead
  int64_t first_head = 0, end_head = 0;  // those of the batch

  // Of the heads of the batch.
  float* weights(int64_t head) const {
    return static_cast<float*>(at.weight_region) + (head - first_head) * problem.window;
  }
  double* totals(int64_t slab, int64_t head) const {
    return static_cast<double*>(at.partial_region) +
           (slab * plan.batch_heads + head - first_head) * problem.window;
  }
};

}  // namespace aclgrad::nsa_compress_grad

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_JOB_H_

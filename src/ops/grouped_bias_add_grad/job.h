// SPDX-License-Identifier: Apache-2.0
// One run as the kernels see it.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_JOB_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_JOB_H_

#include <cstdint>

#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/problem.h"

namespace aclgrad::grouped_bias_add_grad {

struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  const Groups& groups;
  bool dense;       // rows follow each other without gaps
  bool contiguous;  // and so do groups
  bool streaming;   // dbias does not fit the cache
  bool in_tiles;    // groups of many rows are read in tiles of columns

  double* partial(int64_t slot) const {
    return static_cast<double*>(at.partials) + slot * problem.cols;
  }
};

// Elements from row `row` of a group on that may be read, whatever they belong to.
inline int64_t readable(const Job& job, int64_t group, const Span& span, int64_t row) {
  const Problem& problem = job.problem;
  if (!job.dense) return 0;
  if (!job.contiguous) return (span.rows - row) * problem.cols;
  const int64_t rows = problem.has_ends() ? problem.rows : problem.groups * problem.rows;
  const int64_t first = problem.has_ends() ? span.first : group * problem.rows;
  return (rows - first - row) * problem.cols;
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_JOB_H_

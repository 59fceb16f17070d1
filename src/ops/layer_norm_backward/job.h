// SPDX-License-Identifier: Apache-2.0
// One run as the kernels see it: the same for all instruction sets.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_JOB_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_JOB_H_

#include <cstdint>

#include "ops/layer_norm_backward/problem.h"
#include "ops/layer_norm_backward/row_forms.h"

namespace aclgrad::layer_norm_backward {

// Addresses, where rows lie, sizes in elements.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  const float* gamma;  // FP32 in strip order, readable to the end of its last strip
  int64_t padded_cols;
  double reciprocal_cols;
  bool columns;    // dgamma or dbeta wanted
  bool one_block;  // of rows, in one slab: its chains are all there is to sum
  bool streaming;  // dx is wanted and does not fit the cache
  const Places& places;
  const RowForms& forms;
  bool gathered;  // not all of the forms are dense

  double* slab_totals(int64_t slab) const {
    return static_cast<double*>(at.partial_region) + slab * 2 * padded_cols;
  }
  // Wide problems: the sums of every panel of every row, then the means of every row.
  double* row_totals(int64_t row, int64_t panel) const {
    return static_cast<double*>(at.row_region) + (row * plan.panels + panel) * 2;
  }
  RowMeans& row_means(int64_t row) const {
    return reinterpret_cast<RowMeans*>(row_totals(problem.rows, 0))[row];
  }
};

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_JOB_H_

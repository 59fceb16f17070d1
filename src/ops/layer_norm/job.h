// SPDX-License-Identifier: Apache-2.0
// One run as the kernels see it, and what they do with single numbers: the same code for all
// instruction sets.
#ifndef ACLGRAD_OPS_LAYER_NORM_JOB_H_
#define ACLGRAD_OPS_LAYER_NORM_JOB_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/segments.h"
#include "ops/layer_norm/problem.h"
#include "ops/layer_norm/row.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"

namespace aclgrad::layer_norm {

struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  const float *gamma, *beta;  // FP32, ones and zeros when absent
  double reciprocal_cols;
  bool streaming;  // y does not fit the cache
  RowOffsets x_rows, y_rows, mean_rows, rstd_rows;
  Segments x_form, y_form;
  bool gathered;               // not both of the forms are dense
  bool y_follows;              // every row of y begins where the one before it ends
  int64_t y_row_bytes;         // from one to the next, where they are uniform
  bool usual_weights = false;  // with them an ordinary row has no NaN

  int64_t panel_columns(int64_t panel) const {
    return std::min(kPanel, problem.cols - panel * kPanel);
  }
  // Wide problems only.
  Moments* panel_moments(int64_t row) const {
    return static_cast<Moments*>(at.moment_region) + row * plan.panels;
  }
  Statistics& statistics(int64_t row) const {
    return reinterpret_cast<Statistics*>(panel_moments(problem.rows))[row];
  }
};

// The statistics of a row of these moments, before they are rounded.
struct WideStatistics {
  double mean, rstd;
};
template <class Row>
inline WideStatistics statistics_of(const Job& job, const Row& x, Moments row) {
  const auto count = static_cast<double>(job.problem.cols);
  const double spread = row.squares * job.reciprocal_cols;
  double variance = spread + job.problem.eps;
  const bool in_range =
      variance >= kLeastVariance && variance <= std::numeric_limits<double>::max();
  if (!in_range || variance < kLittleLeft * spread) {
    row = wide_moments<Row>(x, job.problem.cols);
    variance = row.squares / count + job.problem.eps;
  }
  if (row.mean * row.mean < kLeftOver * row.squares * job.reciprocal_cols) [[unlikely]] {
    row.mean = exact_mean<Row>(x, job.problem.cols);
  }
  return {row.mean, 1.0 / std::sqrt(variance)};
}

// One element of an optional output of any float dtype.
inline void put(const View& view, void* base, int64_t offset, float value) {
  if (!given(view)) return;
  visit_float(view.dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(base)[offset] = from_float<T>(value);
  });
}
// Elements of an optional output, for `count` rows from `row` on. `clean`: none is a NaN.
inline void put_rows(const View& view, void* base, const RowOffsets& places, int64_t row,
                     int64_t count, const float* values, bool clean) {
  if (!given(view)) return;
  if (clean && view.dtype == ACL_FLOAT && places.uniform() && places.stride() == 1) {
    std::copy_n(values, count, static_cast<float*>(base) + row);
    return;
  }
  for (int64_t r = 0; r < count; ++r) put(view, base, places(row + r), values[r]);
}

// Where a row begins.
template <class T>
inline const T* first_of(const Job& job, int64_t row) {
  return static_cast<const T*>(job.at.x) + job.x_rows(row);
}
inline void* first_of_y(const Job& job, int64_t row) {
  const auto size = static_cast<int64_t>(dtype_size(job.problem.y.dtype));
  return static_cast<char*>(job.at.y) + job.y_rows(row) * size;
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_JOB_H_

// SPDX-License-Identifier: Apache-2.0
// The statistics of rows: from their moments, and again for the rows that FP32 is too little for.

#if defined(ACLGRAD_OPS_LAYER_NORM_FIND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_FIND_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_FIND_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_FIND_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/layer_norm/block-inl.h"
#include "ops/layer_norm/job.h"
#include "ops/layer_norm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

// Whether a row near zero is to be written in FP64 (statistics.h). A mean of exactly 0 loses
// nothing itself: then, and where only its product with rstd is small, the elements decide.
template <class Row>
HWY_NOINLINE void look_closer(const Row& x, int64_t cols, const WideStatistics& wide,
                              ExactStatistics& exact) {
  const bool whatever_x =
      (wide.mean != 0.0 && std::abs(wide.mean) < double{kNear}) || wide.rstd < double{kLeastRstd};
  const auto reach = static_cast<float>(double{kNear} * std::max(1.0, 1.0 / wide.rstd));
  const auto mean = static_cast<float>(wide.mean);
  bool look = whatever_x;
  if (!look) {
    x.each_piece([&](const auto* piece, int64_t columns)
                     HWY_ATTR { look = look || any_near(piece, columns, mean, reach); });
  }
  if (look) exact = {true, exact_mean<Row>(x, cols), wide.rstd};
}

// The statistics of a row that is not ordinary, or stands beside one.
template <class Row, class T>
HWY_NOINLINE void find_unusual(const Job& job, const Row& x, Rows<T>& rows, size_t r) {
  const WideStatistics wide = statistics_of(job, x, {rows.wide_mean[r], rows.squares[r]});
  rows.mean[r] = static_cast<float>(wide.mean);
  rows.rstd[r] = static_cast<float>(wide.rstd);
  rows.exact[r].needed = false;
  if (!is_near_zero(rows.mean[r], rows.rstd[r])) return;
  look_closer(x, job.problem.cols, wide, rows.exact[r]);
}

// Padding, which is not rare: its mean of 0 loses nothing.
template <class Row>
bool all_zeros(const Row& x) {
  bool other = false;
  x.each_piece([&](const auto* piece, int64_t columns) HWY_ATTR {
    other = other || any_near(piece, columns, 0.0f, std::numeric_limits<float>::infinity());
  });
  return !other;
}

// The statistics of rows from their moments; row(r) is row r.
template <class T, class RowAt>
HWY_INLINE void finish(const Job& job, Rows<T>& rows, RowAt&& row) {
  const bool or_zeros = finish_statistics(rows, job.reciprocal_cols, job.problem.eps);
  if (HWY_LIKELY(rows.ordinary)) return;
  const auto is_harmless = [&](size_t r) {
    return rows.wide_mean[r] != 0.0 || rows.squares[r] != 0.0 || all_zeros(row(r));
  };
  rows.ordinary = or_zeros;
  for (size_t r = 0; rows.ordinary && r < rows.count; ++r) rows.ordinary = is_harmless(r);
  for (size_t r = 0; !rows.ordinary && r < rows.count; ++r) find_unusual(job, row(r), rows, r);
}

// The moments of a row of several panels.
template <class Row>
Moments moments_of_row(const Job& job, const Row& x) {
  RowMoments joined;
  for (int64_t p = 0; p < job.plan.panels; ++p) {
    const int64_t columns = job.panel_columns(p);
    joined.add(moments(x.piece(p * kPanel, columns), columns), columns);
  }
  return joined.all();
}

// The statistics of rows that are one run each, from rows.x and their moments.
template <class T>
HWY_INLINE void finish_dense(const Job& job, Rows<T>& rows) {
  finish(job, rows, [&](size_t r) { return DenseRow<T>{rows.x[r], job.problem.cols}; });
}
template <class T>
HWY_INLINE void find_statistics(const Job& job, Rows<T>& rows) {
  const int64_t cols = job.problem.cols;
  if (job.plan.panels == 1) {
    find_moments(rows, static_cast<size_t>(cols), job.reciprocal_cols);
  } else {
    for (size_t r = 0; r < rows.count; ++r) {
      rows.set_moments(r, moments_of_row(job, DenseRow<T>{rows.x[r], cols}));
    }
  }
  finish_dense(job, rows);
}

// The same for one row of several panels that need not be one run.
template <class T>
void find_statistics(const Job& job, const GatheredRow<T>& x, const Moments& found, Rows<T>& rows) {
  rows.count = 1;
  rows.set_moments(0, found);
  finish(job, rows, [&](size_t) -> const GatheredRow<T>& { return x; });
}

template <class T>
HWY_INLINE void put_statistics(const Job& job, int64_t row, const Rows<T>& rows) {
  const auto count = static_cast<int64_t>(rows.count);
  put_rows(job.problem.mean, job.at.mean, job.mean_rows, row, count, rows.mean, rows.ordinary);
  put_rows(job.problem.rstd, job.at.rstd, job.rstd_rows, row, count, rows.rstd, rows.ordinary);
}

template <class T>
HWY_INLINE Weights<T> weights_of(const Job& job) {
  return {ColumnNumbers<T>(job.gamma, job.problem.cols),
          ColumnNumbers<T>(job.beta, job.problem.cols)};
}

template <class T>
HWY_INLINE bool is_plain(const Job& job, const Rows<T>& rows) {
  return rows.ordinary && job.usual_weights && job.problem.y.dtype == job.problem.x.dtype;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Rows of x or y that are not one run, and few wide rows, whose panels are shared among threads.

#if defined(ACLGRAD_OPS_LAYER_NORM_GATHERED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_GATHERED_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_GATHERED_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_GATHERED_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/layer_norm/find-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

// Columns [begin, begin + columns) of rows from `row` on, at most a panel in all, which rows.x
// points to, from a buffer where y is not dense.
template <class T>
HWY_NOINLINE void write_piece(const Job& job, int64_t row, Rows<T>& rows, int64_t begin,
                              int64_t columns) {
  visit_float(job.problem.y.dtype, [&](auto type) HWY_ATTR {
    using TOut = decltype(type);
    alignas(64) TOut buffer[kPanel];
    const bool dense = job.y_form.dense();
    for (size_t r = 0; r < rows.count; ++r) {
      auto* y = static_cast<TOut*>(first_of_y(job, row + static_cast<int64_t>(r)));
      rows.y[r] = dense ? y + begin : buffer + static_cast<int64_t>(r) * columns;
    }
    Store store{job.problem.y.dtype, job.streaming && dense};
    for (size_t r = 0; store.streaming && r < rows.count; ++r) {
      store.streaming = begins_line(static_cast<const char*>(rows.y[r]));
    }
    write_rows(rows, job.gamma + begin, job.beta + begin, static_cast<size_t>(columns), store,
               is_plain(job, rows), false);
    for (size_t r = 0; !dense && r < rows.count; ++r) {
      auto* y = static_cast<TOut*>(first_of_y(job, row + static_cast<int64_t>(r)));
      job.y_form.copy_out(buffer + static_cast<int64_t>(r) * columns, begin, columns, y);
    }
  });
}

// The task of slab() where a row of x or y is not one run: short rows are gathered, as many as make
// up a panel, and long ones pass a panel at a time.
template <class T>
void gathered_slab(const Job& job, int64_t index) {
  const int64_t cols = job.problem.cols;
  const int64_t begin = index * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  const int64_t group = std::clamp(kPanel / cols, int64_t{1}, int64_t{kRows});
  Rows<T> rows;
  if (job.plan.panels == 1) {
    alignas(64) T gathered[kPanel];
    for (int64_t row = begin; row < end; row += group) {
      rows.count = static_cast<size_t>(std::min(group, end - row));
      for (size_t r = 0; r < rows.count; ++r) {
        rows.x[r] = first_of<T>(job, row + static_cast<int64_t>(r));
        if (job.x_form.dense()) continue;
        T* to = gathered + static_cast<int64_t>(r) * cols;
        job.x_form.copy_in(rows.x[r], 0, cols, to);
        rows.x[r] = to;
      }
      find_statistics(job, rows);
      put_statistics(job, row, rows);
      write_piece(job, row, rows, 0, cols);
    }
  } else {
    GatheredRow<T> x(job.x_form, cols);
    for (int64_t row = begin; row < end; ++row) {
      x.enter(first_of<T>(job, row));
      find_statistics(job, x, moments_of_row(job, x), rows);
      put_statistics(job, row, rows);
      x.each_piece([&, at = int64_t{0}](const T* piece, int64_t columns) mutable {
        rows.x[0] = piece;
        write_piece(job, row, rows, at, columns);
        at += columns;
      });
    }
  }
  if (job.streaming) hwy::FlushStream();
}

// Wide problems, in three steps: the moments of every panel, the statistics of every row, and y
// panel by panel.
template <class T>
void panel_moments(const Job& job, int64_t index) {
  const int64_t row = index / job.plan.panels;
  const int64_t panel = index % job.plan.panels;
  const int64_t columns = job.panel_columns(panel);
  GatheredRow<T> x(job.x_form, job.problem.cols);
  x.enter(first_of<T>(job, row));
  job.panel_moments(row)[panel] = moments(x.piece(panel * kPanel, columns), columns);
}

template <class T>
void row_statistics(const Job& job, int64_t row) {
  RowMoments row_moments;
  for (int64_t p = 0; p < job.plan.panels; ++p) {
    row_moments.add(job.panel_moments(row)[p], job.panel_columns(p));
  }
  GatheredRow<T> x(job.x_form, job.problem.cols);
  x.enter(first_of<T>(job, row));
  Rows<T> rows;
  find_statistics(job, x, row_moments.all(), rows);
  put_statistics(job, row, rows);
  job.statistics(row) = {rows.mean[0], rows.rstd[0], rows.ordinary, rows.exact[0]};
}

template <class T>
void write_panel(const Job& job, int64_t index) {
  const int64_t row = index / job.plan.panels;
  const int64_t panel = index % job.plan.panels;
  const int64_t columns = job.panel_columns(panel);
  GatheredRow<T> x(job.x_form, job.problem.cols);
  x.enter(first_of<T>(job, row));
  const Statistics& values = job.statistics(row);
  Rows<T> rows;
  rows.count = 1;
  rows.x[0] = x.piece(panel * kPanel, columns);
  rows.mean[0] = values.mean;
  rows.rstd[0] = values.rstd;
  rows.ordinary = values.ordinary;
  rows.exact[0] = values.exact;
  write_piece(job, row, rows, panel * kPanel, columns);
  if (job.streaming) hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Rows of x or y that are not one run.

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
// points to, from a buffer where y is not dense. `weights` begin at column `begin`.
template <class T>
HWY_NOINLINE void write_piece(const Job& job, int64_t row, Rows<T>& rows, int64_t begin,
                              int64_t columns, const Weights<T>& weights, bool usual_weights) {
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
    const bool plain = rows.ordinary && usual_weights && job.problem.y.dtype == job.problem.x.dtype;
    write_rows(rows, weights, static_cast<size_t>(columns), store, plain, false);
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
  const Weights<T> weights = weights_of<T>(job);
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
      write_piece(job, row, rows, 0, cols, weights, job.usual_weights);
    }
  } else {
    GatheredRow<T> x(job.x_form, cols);
    for (int64_t row = begin; row < end; ++row) {
      x.enter(first_of<T>(job, row));
      find_statistics(job, x, moments_of_row(job, x), rows);
      put_statistics(job, row, rows);
      x.each_piece([&, at = int64_t{0}](const T* piece, int64_t columns) mutable {
        rows.x[0] = piece;
        write_piece(job, row, rows, at, columns, weights.from(static_cast<size_t>(at)),
                    job.usual_weights);
        at += columns;
      });
    }
  }
  if (job.streaming) hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

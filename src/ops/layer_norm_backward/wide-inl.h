// SPDX-License-Identifier: Apache-2.0
// Few wide rows, cut in panels of columns: the sums along the rows take a pass of their own, batch
// of rows by batch, before the second visit finds them in the last-level cache.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_WIDE_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_WIDE_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_WIDE_INL_H_
#endif

#include <algorithm>

#include <hwy/cache_control.h>

#include "kernels/cpu/parallel.h"
#include "ops/layer_norm_backward/first_visit-inl.h"
#include "ops/layer_norm_backward/gamma-inl.h"
#include "ops/layer_norm_backward/gather-inl.h"
#include "ops/layer_norm_backward/second_visit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// By which the first pass asks for what comes in the row.
inline constexpr Ahead kPanelAhead = {intptr_t{8} << 10, intptr_t{8} << 10};

// Wide problems, first pass: one row's sums over one panel, for whose columns the job has gamma.
template <class T>
void panel_sums(const Job& job, int64_t row, int64_t panel) {
  const int64_t first = panel * kPanel;
  const auto begin = static_cast<size_t>(first);
  const auto count = static_cast<size_t>(std::min(kPanel, job.problem.cols - first));
  Rows<T> rows;
  locate(job, row, 1, rows);
  double sums[2];
  if (job.gathered) {
    sum_gathered_row(rows, job.forms, job.gamma, begin, count, sums);
  } else {
    InPlace<T> source{rows};
    sum_row<T>(source, 0, job.gamma, begin, count, rows.mean[0], kPanelAhead, sums);
  }
  std::copy_n(sums, 2, job.row_totals(row, panel));
}

// The sums of all panels of rows [first, last). A panel whose gamma has to be prepared is one task,
// for all of the rows.
template <class T>
void all_panel_sums(const Job& job, int64_t first, int64_t last) {
  const int64_t panels = job.plan.panels;
  if (!job.plan.gamma_by_panel) {
    return parallel_blocks((last - first) * panels, [&](int64_t index) {
      panel_sums<T>(job, first + index / panels, index % panels);
    });
  }
  parallel_blocks(panels, [&](int64_t index) {
    const int64_t begin = index * kPanel;
    PanelGamma<T> gamma;
    const Job here = gamma.of(job, begin, std::min(begin + kPanel, job.problem.cols));
    for (int64_t row = first; row < last; ++row) panel_sums<T>(here, row, index);
  });
}

// Between the passes: the means of one row, from its panels in order.
template <class T>
void row_means(const Job& job, int64_t row) {
  Rows<T> rows;
  locate(job, row, 1, rows);
  double sums[2] = {0.0, 0.0};
  for (int64_t p = 0; p < job.plan.panels; ++p) {
    sums[0] += job.row_totals(row, p)[0];
    sums[1] += job.row_totals(row, p)[1];
  }
  const Means means = {sums[0] * job.reciprocal_cols,
                       mean_gx_of(sums[1], rows.rstd[0], job.reciprocal_cols)};
  rows.mean_g[0] = static_cast<float>(means.g);
  rows.mean_gx[0] = static_cast<float>(means.gx);
  classify(job, rows);
  const bool exact = rows.exact != 0;
  const Means& found = exact ? rows.exact_means[0] : means;
  job.row_means(row) = {found.g, found.gx, exact};
}

// Wide problems, second pass: rows [first, last) of one panel. The totals of dgamma and dbeta wait
// in the workspace where there are more batches of rows to come.
template <class T>
void panel(const Job& whole, int64_t first, int64_t last, int64_t index) {
  const int64_t begin = index * kPanel;
  const int64_t end = std::min(begin + kPanel, whole.problem.cols);
  PanelGamma<T> gamma;
  const Job job = gamma.of(whole, begin, end);
  alignas(64) double own_totals[2 * kPanel];
  const bool waits = job.plan.partial_bytes > 0;
  double* totals = waits ? job.slab_totals(0) + begin : own_totals;
  const int64_t stride = waits ? job.padded_cols : kPanel;
  // Behind the totals.
  float* chain = waits && job.plan.batch_rows < kRowBlock
                     ? reinterpret_cast<float*>(job.slab_totals(1)) + 2 * begin
                     : nullptr;
  Rows<T> rows;
  for (int64_t block = first; block < last; block += kRowBlock) {
    const int64_t block_end = std::min(block + kRowBlock, last);
    locate(job, block, static_cast<size_t>(block_end - block), rows);
    rows.ahead = {kTile * sizeof(T), kTile * sizeof(T)};
    for (size_t r = 0; job.problem.want_dx && r < rows.count; ++r) {
      const RowMeans& means = job.row_means(block + static_cast<int64_t>(r));
      rows.mean_g[r] = static_cast<float>(means.g);
      rows.mean_gx[r] = static_cast<float>(means.gx);
      rows.exact_means[r] = {means.g, means.gx};
      if (means.exact) rows.exact |= 1u << r;
    }
    const Group group{block % kRowBlock == 0,
                      block_end % kRowBlock == 0 || block_end == job.problem.rows,
                      chain,
                      block < kRowBlock,
                      job.columns ? totals : nullptr,
                      stride};
    write_rows<T>(job, rows, group, begin, end, nullptr);
  }
  if (last == job.problem.rows) write_column_sums<T>(job, begin, end, totals, stride, -0.0f);
  if (job.streaming) hwy::FlushStream();
}

template <class T>
void run_wide(const Job& job) {
  const Plan& plan = job.plan;
  const int64_t all = job.problem.rows;
  for (int64_t first = 0; first < all; first += plan.batch_rows) {
    const int64_t last = std::min(first + plan.batch_rows, all);
    if (job.problem.want_dx) {
      all_panel_sums<T>(job, first, last);
      parallel_blocks(last - first, [&](int64_t row) { row_means<T>(job, first + row); });
    }
    parallel_blocks(plan.panels, [&](int64_t index) { panel<T>(job, first, last, index); });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

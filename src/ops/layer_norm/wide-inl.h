// SPDX-License-Identifier: Apache-2.0
// Few wide rows, whose panels are shared among threads, in three steps: the moments of every panel,
// the statistics of every row, and y panel by panel.

#if defined(ACLGRAD_OPS_LAYER_NORM_WIDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_WIDE_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_WIDE_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_WIDE_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/parallel.h"
#include "ops/layer_norm/gathered-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

// What a task takes: a run of panels of some rows.
struct WidePart {
  int64_t first_row, last_row, first_panel, last_panel;
};

// How a batch of rows is cut.
class WideCut {
 public:
  WideCut(const Job& job, int64_t begin, int64_t end)
      : begin_(begin),
        end_(end),
        panels_(job.plan.panels),
        rows_(std::min(end - begin, kTaskPanels)),
        of_task_(kTaskPanels / rows_),
        across_(ceil_div(panels_, of_task_)) {}

  int64_t tasks() const { return ceil_div(end_ - begin_, rows_) * across_; }
  WidePart part(int64_t index) const {
    const int64_t row = begin_ + index / across_ * rows_;
    const int64_t panel = index % across_ * of_task_;
    return {row, std::min(row + rows_, end_), panel, std::min(panel + of_task_, panels_)};
  }

 private:
  int64_t begin_, end_, panels_, rows_, of_task_, across_;
};

template <class T>
void part_moments(const Job& job, const WidePart& part) {
  GatheredRow<T> x(job.x_form, job.problem.cols);
  for (int64_t row = part.first_row; row < part.last_row; ++row) {
    x.enter(first_of<T>(job, row));
    for (int64_t panel = part.first_panel; panel < part.last_panel; ++panel) {
      const int64_t columns = job.panel_columns(panel);
      job.panel_moments(row)[panel] = moments(x.piece(panel * kPanel, columns), columns);
    }
  }
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

// gamma or beta of a panel: where they lie, or from a buffer. Only what is in the buffer is looked
// at: the others would have to come from memory for that (f32 1x6250000: 2.1 ms without, 3.0 so).
template <class T>
class PanelNumbers {
 public:
  ColumnNumbers<T> find(const View& view, const void* given_at, bool as_it_is, int64_t begin,
                        int64_t columns, float absent) {
    if (as_it_is) return {static_cast<const float*>(given_at) + begin, columns};
    const auto out = prepare<T>(view, given_at, begin, columns, absent, buffer_);
    usual_ = all_usual(buffer_, weight_floats(columns));
    return out;
  }
  // all_usual() of the panel that was found; false: it is not known.
  bool usual() const { return usual_; }

 private:
  alignas(64) float buffer_[weight_floats(kPanel)];
  bool usual_ = false;
};

template <class T>
void write_part(const Job& job, const WidePart& part) {
  const Problem& problem = job.problem;
  GatheredRow<T> x(job.x_form, problem.cols);
  PanelNumbers<T> gamma, beta;
  Rows<T> rows;
  rows.count = 1;
  for (int64_t panel = part.first_panel; panel < part.last_panel; ++panel) {
    const int64_t begin = panel * kPanel;
    const int64_t columns = job.panel_columns(panel);
    const Weights<T> weights{
        gamma.find(problem.gamma, job.at.gamma, job.plan.gamma_as_it_is, begin, columns, 1.0f),
        beta.find(problem.beta, job.at.beta, job.plan.beta_as_it_is, begin, columns, 0.0f)};
    const bool usual = problem.eps >= 0.0 && gamma.usual() && beta.usual();
    for (int64_t row = part.first_row; row < part.last_row; ++row) {
      x.enter(first_of<T>(job, row));
      const Statistics& values = job.statistics(row);
      rows.x[0] = x.piece(begin, columns);
      rows.mean[0] = values.mean;
      rows.rstd[0] = values.rstd;
      rows.ordinary = values.ordinary;
      rows.exact[0] = values.exact;
      write_piece(job, row, rows, begin, columns, weights, usual);
    }
  }
  if (job.streaming) hwy::FlushStream();
}

template <class T>
void run_wide(const Job& job) {
  const int64_t row_bytes = job.problem.cols * static_cast<int64_t>(sizeof(T));
  const int64_t fitting = kBatchBytes / row_bytes;
  const int64_t batch = fitting < 2 ? job.problem.rows : fitting;
  for (int64_t begin = 0; begin < job.problem.rows; begin += batch) {
    const int64_t end = std::min(begin + batch, job.problem.rows);
    const WideCut cut(job, begin, end);
    parallel_blocks(cut.tasks(), [&](int64_t index) { part_moments<T>(job, cut.part(index)); });
    parallel_blocks(end - begin, [&](int64_t row) { row_statistics<T>(job, begin + row); });
    parallel_blocks(cut.tasks(), [&](int64_t index) { write_part<T>(job, cut.part(index)); });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

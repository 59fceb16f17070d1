// SPDX-License-Identifier: Apache-2.0
// LayerNorm on the CPU: one parallel pass over the rows. A row comes from memory for its mean, is
// visited again in L1 for its variance, and a third time, in L1 or L2, to be written; meanwhile the
// next row is on its way. Moments are taken panel by panel and joined, so that a row of any length
// is read from memory at most twice. Few wide rows share their panels among threads instead. Where
// a row's columns are not one run they pass through buffers on the stack, a panel at a time. Long
// because of these three cuts, and because a row is written in whole lines, in parts, or in FP64.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/segments.h"
#include "ops/layer_norm/problem.h"
#include "ops/layer_norm/row.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm/moments-inl.h"

#ifndef ACLGRAD_OPS_LAYER_NORM_CPU_SHARED_
#define ACLGRAD_OPS_LAYER_NORM_CPU_SHARED_
namespace aclgrad::layer_norm {
namespace {

// Columns from which a row's first and last lines, which are not whole, may be written apart from
// the streamed ones between. Does not influence the bits.
constexpr int64_t kStreamColumns = 128;

// Rows that are visited together, in bytes and in number. More bytes would fit L1 beside gamma and
// beta, too, but the next group is brought in meanwhile: rows of 3 KiB from small pages take 30 ms
// two at a time and 42 ms five at a time. Does not influence the bits.
constexpr int64_t kGroupBytes = int64_t{8} << 10;
constexpr int64_t kGroupRows = 16;

// Columns up to which the next row is brought into L2 while one is written. Longer rows would push
// each other out.
constexpr int64_t kPrefetchColumns = 32768;

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  const float *gamma, *beta;  // FP32, ones and zeros when absent
  double reciprocal_cols;
  bool streaming;  // y does not fit the cache
  RowOffsets x_rows, y_rows, mean_rows, rstd_rows;
  Segments x_form, y_form;
  bool gathered;  // not both of the forms are dense

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
HWY_INLINE WideStatistics statistics_of(const Job& job, const Row& x, Moments row) {
  const auto count = static_cast<double>(job.problem.cols);
  double variance = row.squares * job.reciprocal_cols + job.problem.eps;
  if (!(variance >= kLeastVariance && variance <= std::numeric_limits<double>::max())) {
    row = wide_moments<Row>(x, job.problem.cols);
    variance = row.squares / count + job.problem.eps;
  }
  if (HWY_UNLIKELY(row.mean * row.mean < kLeftOver * row.squares * job.reciprocal_cols)) {
    row.mean = exact_mean<Row>(x, job.problem.cols);
  }
  return {row.mean, 1.0 / std::sqrt(variance)};
}

// One element of an optional output of any float dtype.
void put(const View& view, void* base, int64_t offset, float value) {
  if (!given(view)) return;
  visit_float(view.dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(base)[offset] = from_float<T>(value);
  });
}
void put_statistics(const Job& job, int64_t row, const Statistics& values) {
  put(job.problem.mean, job.at.mean, job.mean_rows(row), values.mean);
  put(job.problem.rstd, job.at.rstd, job.rstd_rows(row), values.rstd);
}

// Where a row of x begins.
template <class T>
HWY_INLINE const T* first_of(const Job& job, int64_t row) {
  return static_cast<const T*>(job.at.x) + job.x_rows(row);
}
template <class T>
HWY_INLINE DenseRow<T> dense_row(const Job& job, int64_t row) {
  return {first_of<T>(job, row), job.problem.cols};
}

}  // namespace
}  // namespace aclgrad::layer_norm
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Whether a row near zero is to be written in FP64 (statistics.h). A mean of exactly 0 loses
// nothing itself: then, and where only its product with rstd is small, the elements decide.
template <class Row>
HWY_NOINLINE void look_closer(const Row& x, int64_t cols, const WideStatistics& wide,
                              Statistics& values) {
  const bool whatever_x =
      (wide.mean != 0.0 && std::abs(wide.mean) < double{kNear}) || wide.rstd < double{kLeastRstd};
  const auto reach = static_cast<float>(double{kNear} * std::max(1.0, 1.0 / wide.rstd));
  bool look = whatever_x;
  if (!look) {
    x.each_piece([&](const auto* piece, int64_t columns)
                     HWY_ATTR { look = look || any_near(piece, columns, values.mean, reach); });
  }
  if (!look) return;
  values.exact = true;
  values.exact_mean = exact_mean<Row>(x, cols);
  values.exact_rstd = wide.rstd;
}

template <class Row>
HWY_INLINE void find_statistics(const Job& job, const Row& x, const Moments& moments,
                                Statistics& values) {
  const WideStatistics wide = statistics_of(job, x, moments);
  values.mean = static_cast<float>(wide.mean);
  values.rstd = static_cast<float>(wide.rstd);
}

// After find_statistics(), where any_near_zero(): whether the row is to be written in FP64.
template <class Row>
HWY_NOINLINE void mark_exact(const Job& job, const Row& x, const Moments& moments,
                             Statistics& values) {
  values.exact = false;
  if (!values.near_zero()) return;
  look_closer(x, job.problem.cols, statistics_of(job, x, moments), values);
}
HWY_INLINE bool any_near_zero(const Statistics* values, int64_t count) {
  bool found = false;
  for (int64_t r = 0; r < count; ++r) found |= values[r].near_zero();
  return found;
}

// One row's elements on their way through the registers.
template <class T, class TOut>
struct Line {
  const T* x;
  const T* next;  // the row after it, or the row itself
  const float *gamma, *beta;
  TOut* y;
  F32x16 mean, rstd;

  HWY_INLINE F32x16 normalised(int64_t at) const {
    const F32x16 xhat = mul(sub(load16(x + at), mean), rstd);
    return fma(xhat, load16(gamma + at), load16(beta + at));
  }
  // Fewer than sixteen.
  HWY_INLINE void write_part(int64_t at, int64_t columns) const {
    const auto lanes = static_cast<size_t>(columns);
    const F32x16 xhat = mul(sub(load_first(x + at, lanes), mean), rstd);
    store_first(fma(xhat, load_first(gamma + at, lanes), load_first(beta + at, lanes)), y + at,
                lanes);
  }
  // Whole vectors from `at` on; returns where they end.
  template <bool kStream>
  HWY_INLINE int64_t write_whole(int64_t at, int64_t end) const {
    constexpr auto kStep = static_cast<int64_t>(kLanes);
    constexpr auto kCacheLine = static_cast<int64_t>(64 / sizeof(T));
    const auto write = [this](int64_t place) HWY_ATTR {
      if constexpr (kStream) {
        stream16(normalised(place), y + place);
      } else {
        store16(normalised(place), y + place);
      }
    };
    for (; at + kCacheLine <= end; at += kCacheLine) {
      __builtin_prefetch(next + at, 0, 2);
      for (int64_t i = 0; i < kCacheLine; i += kStep) write(at + i);
    }
    for (; at + kStep <= end; at += kStep) write(at);
    return at;
  }
};

// The first `columns` of a line.
template <class T, class TOut>
HWY_INLINE void write_line(const Line<T, TOut>& line, int64_t columns, bool streaming) {
  const auto first = reinterpret_cast<uintptr_t>(line.y);
  int64_t at = 0;
  if (streaming && columns >= kStreamColumns && first % sizeof(TOut) == 0) {
    constexpr uintptr_t kVector = kLanes * sizeof(TOut);
    const auto head = static_cast<int64_t>((0 - first) % kVector / sizeof(TOut));
    if (head != 0) line.write_part(0, head);
    at = line.template write_whole<true>(head, columns);
  } else {
    at = line.template write_whole<false>(0, columns);
  }
  if (at < columns) line.write_part(at, columns - at);
}

template <class T, class TOut>
HWY_INLINE Line<T, TOut> line_of(const Job& job, int64_t row, int64_t next,
                                 const Statistics& values) {
  return Line<T, TOut>{first_of<T>(job, row),
                       first_of<T>(job, next),
                       job.gamma,
                       job.beta,
                       static_cast<TOut*>(job.at.y) + job.y_rows(row),
                       set16(values.mean),
                       set16(values.rstd)};
}

// Takes the line apart, because one whose address is known to a call could not stay in registers.
template <class T, class TOut>
HWY_NOINLINE void write_exact(const Statistics& values, const T* x, const float* gamma,
                              const float* beta, TOut* y, int64_t columns) {
  for (int64_t col = 0; col < columns; ++col) {
    y[col] = from_float<TOut>(exact_y(values, to_float(x[col]), gamma[col], beta[col]));
  }
}

// A line's first `columns`, whichever way the row takes.
template <class T, class TOut>
HWY_INLINE void write(const Line<T, TOut>& line, const Statistics& values, bool exact,
                      int64_t columns, bool streaming) {
  if (HWY_UNLIKELY(exact)) {
    write_exact(values, line.x, line.gamma, line.beta, line.y, columns);
  } else {
    write_line(line, columns, streaming);
  }
}

// Columns [begin, begin + columns) of a row, at most a panel, which `x` points to, from a buffer
// where y is not dense. A function of its own keeps that out of its caller's frame.
template <class T, class TOut>
HWY_NOINLINE void write_piece(const Job& job, int64_t row, const Statistics& values, const T* x,
                              int64_t begin, int64_t columns) {
  alignas(64) TOut buffer[kPanel];
  TOut* const y = static_cast<TOut*>(job.at.y) + job.y_rows(row);
  const bool dense = job.y_form.dense();
  const Line<T, TOut> line{x,
                           x,
                           job.gamma + begin,
                           job.beta + begin,
                           dense ? y + begin : buffer,
                           set16(values.mean),
                           set16(values.rstd)};
  write(line, values, values.exact, columns, job.streaming && dense);
  if (!dense) job.y_form.copy_out(buffer, begin, columns, y);
}

// The moments of one row, panel by panel.
template <class Row>
HWY_INLINE Moments moments_of_row(const Job& job, const Row& x) {
  if (job.plan.panels == 1) {
    const auto n = static_cast<size_t>(job.problem.cols);
    const auto* columns = x.piece(0, job.problem.cols);
    const double mean = sum_of(columns, n) * job.reciprocal_cols;
    return {mean, squares_around(mean, columns, n)};
  }
  RowMoments joined;
  for (int64_t p = 0; p < job.plan.panels; ++p) {
    const int64_t columns = job.panel_columns(p);
    joined.add(moments(x.piece(p * kPanel, columns), columns), columns);
  }
  return joined.all();
}

// The moments of `count` rows from `row` on. Step by step for all of them, so that the ends of the
// sums, which wait for one another, overlap between rows.
template <class T>
HWY_INLINE void group_moments(const Job& job, int64_t row, int64_t count, Moments* out) {
  if (job.plan.panels > 1) {  // one row
    out[0] = moments_of_row(job, dense_row<T>(job, row));
    return;
  }
  const auto n = static_cast<size_t>(job.problem.cols);
  for (int64_t r = 0; r < count; ++r) {
    out[r].mean = sum_of(first_of<T>(job, row + r), n) * job.reciprocal_cols;
  }
  for (int64_t r = 0; r < count; ++r) {
    out[r].squares = squares_around(out[r].mean, first_of<T>(job, row + r), n);
  }
}

// One task: a slab of rows.
template <class T, class TOut>
void slab(const Job& job, int64_t index) {
  const int64_t cols = job.problem.cols;
  const int64_t begin = index * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  const int64_t row_bytes = cols * static_cast<int64_t>(sizeof(T));
  const int64_t group = std::clamp(kGroupBytes / row_bytes, int64_t{1}, kGroupRows);
  Moments found[kGroupRows];
  Statistics values[kGroupRows];
  for (int64_t row = begin; row < end; row += group) {
    const int64_t count = std::min(group, end - row);
    group_moments<T>(job, row, count, found);
    for (int64_t r = 0; r < count; ++r) {
      find_statistics(job, dense_row<T>(job, row + r), found[r], values[r]);
      put_statistics(job, row + r, values[r]);
    }
    const bool look = any_near_zero(values, count);
    for (int64_t r = 0; HWY_UNLIKELY(look) && r < count; ++r) {
      mark_exact(job, dense_row<T>(job, row + r), found[r], values[r]);
    }
    for (int64_t r = 0; r < count; ++r) {
      const int64_t next = cols <= kPrefetchColumns ? std::min(row + r + group, end - 1) : row + r;
      const Line<T, TOut> line = line_of<T, TOut>(job, row + r, next, values[r]);
      write(line, values[r], look && values[r].exact, cols, job.streaming);
    }
  }
  if (job.streaming) hwy::FlushStream();
}

// The same task where a row of x or y is not one run: row by row, a panel at a time.
template <class T, class TOut>
void gathered_slab(const Job& job, int64_t index) {
  const int64_t cols = job.problem.cols;
  const int64_t begin = index * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  GatheredRow<T> x(job.x_form, cols);
  for (int64_t row = begin; row < end; ++row) {
    x.enter(first_of<T>(job, row));
    const Moments found = moments_of_row(job, x);
    Statistics values;
    find_statistics(job, x, found, values);
    put_statistics(job, row, values);
    mark_exact(job, x, found, values);
    x.each_piece([&, at = int64_t{0}](const T* piece, int64_t columns) mutable {
      write_piece<T, TOut>(job, row, values, piece, at, columns);
      at += columns;
    });
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
  find_statistics(job, x, row_moments.all(), job.statistics(row));
  mark_exact(job, x, row_moments.all(), job.statistics(row));
  put_statistics(job, row, job.statistics(row));
}

template <class T, class TOut>
void write_panel(const Job& job, int64_t index) {
  const int64_t row = index / job.plan.panels;
  const int64_t panel = index % job.plan.panels;
  const int64_t columns = job.panel_columns(panel);
  GatheredRow<T> x(job.x_form, job.problem.cols);
  x.enter(first_of<T>(job, row));
  const T* piece = x.piece(panel * kPanel, columns);
  write_piece<T, TOut>(job, row, job.statistics(row), piece, panel * kPanel, columns);
  if (job.streaming) hwy::FlushStream();
}

// gamma or beta as dense FP32, or one number everywhere.
template <class T>
void widen(const View& view, const void* from, int64_t cols, float* to) {
  GatheredRow<T> numbers(Segments(view, 0), cols);
  numbers.enter(static_cast<const T*>(from));
  numbers.each_piece([&](const T* piece, int64_t columns) HWY_ATTR {
    constexpr auto kStep = static_cast<int64_t>(kLanes);
    int64_t at = 0;
    for (; at + kStep <= columns; at += kStep) store_raw(load16(piece + at), to + at);
    for (; at < columns; ++at) to[at] = to_float(piece[at]);
    to += columns;
  });
}
template <class T>
void prepare(const View& view, const void* from, int64_t cols, float absent, float* to) {
  if (!given(view)) {
    std::fill_n(to, cols, absent);
  } else if (view.dtype == ACL_FLOAT) {
    widen<float>(view, from, cols, to);
  } else {
    widen<T>(view, from, cols, to);
  }
}

template <class T, class TOut>
void run_to(const Job& job) {
  const Plan& plan = job.plan;
  if (!plan.wide) {
    parallel_blocks(plan.slabs, [&](int64_t index) {
      if (job.gathered) return gathered_slab<T, TOut>(job, index);
      slab<T, TOut>(job, index);
    });
    return;
  }
  const int64_t panels = job.problem.rows * plan.panels;
  parallel_blocks(panels, [&](int64_t index) { panel_moments<T>(job, index); });
  parallel_blocks(job.problem.rows, [&](int64_t row) { row_statistics<T>(job, row); });
  parallel_blocks(panels, [&](int64_t index) { write_panel<T, TOut>(job, index); });
}

template <class T>
void run(const Job& job) {
  const Problem& problem = job.problem;
  const Addresses& at = job.at;
  if (job.plan.gamma_bytes > 0) {
    prepare<T>(problem.gamma, at.gamma, problem.cols, 1.0f, static_cast<float*>(at.gamma_region));
  }
  if (job.plan.beta_bytes > 0) {
    prepare<T>(problem.beta, at.beta, problem.cols, 0.0f, static_cast<float*>(at.beta_region));
  }
  visit_float(problem.y.dtype, [&](auto type) { run_to<T, decltype(type)>(job); });
}
void run_f32(const Job& job) { run<float>(job); }
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::layer_norm {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

// The sum of no elements is 0; their variance is 0 / 0.
void run_without_columns(const Job& job) {
  for (int64_t row = 0; row < job.problem.rows; ++row) {
    put_statistics(job, row, {0.0f, std::numeric_limits<float>::quiet_NaN(), false, 0.0, 0.0});
  }
}

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const int64_t y_bytes =
      problem.rows * problem.cols * static_cast<int64_t>(dtype_size(problem.y.dtype));
  const Segments x_form(problem.x, problem.row_dim), y_form(problem.y, problem.row_dim);
  const Job job{problem,
                plan,
                at,
                static_cast<const float*>(plan.gamma_bytes > 0 ? at.gamma_region : at.gamma),
                static_cast<const float*>(plan.beta_bytes > 0 ? at.beta_region : at.beta),
                1.0 / static_cast<double>(problem.cols),
                outputs_should_stream(y_bytes),
                RowOffsets(problem.x, problem.row_dim),
                RowOffsets(problem.y, problem.row_dim),
                RowOffsets(problem.mean, problem.mean.rank),
                RowOffsets(problem.rstd, problem.rstd.rank),
                x_form,
                y_form,
                !x_form.dense() || !y_form.dense()};
  if (problem.cols == 0) return run_without_columns(job);
  switch (problem.x.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(job);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(job);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(job);
  }
}

}  // namespace aclgrad::layer_norm
#endif  // HWY_ONCE

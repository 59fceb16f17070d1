// SPDX-License-Identifier: Apache-2.0
// LayerNorm on the CPU: one parallel pass over the rows. A row comes from memory for its mean, is
// visited again in L1 for its variance, and a third time, in L1 or L2, to be written; meanwhile the
// next row is on its way. Moments are taken panel by panel and joined, so that a row of any length
// is read from memory at most twice. Few wide rows share their panels among threads instead. Long
// because of these two cuts, and because a row is written in whole lines, in parts, or in FP64.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "ops/layer_norm/problem.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"

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
template <class T>
HWY_INLINE WideStatistics statistics_of(const Job& job, const T* x, Moments row) {
  const int64_t cols = job.problem.cols;
  const auto count = static_cast<double>(cols);
  double variance = row.squares * job.reciprocal_cols + job.problem.eps;
  if (!(variance >= kLeastVariance && variance <= std::numeric_limits<double>::max())) {
    row = wide_moments(x, cols);
    variance = row.squares / count + job.problem.eps;
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

}  // namespace
}  // namespace aclgrad::layer_norm
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

using Chain = VecF64[kWideParts];

// Sixteen numbers more in an FP64 chain of sixteen lanes.
HWY_INLINE void add_vector(const F32x16& v, Chain& chain) {
  each_wide(v, [&](size_t lane, VecF64 wide) HWY_ATTR {
    chain[lane / kWideLanes] = hn::Add(chain[lane / kWideLanes], wide);
  });
}
template <class T>
HWY_INLINE void add_vector(const T* x, Chain& chain) {
  if constexpr (std::is_same_v<T, float>) {
    const hn::Rebind<float, TagF64> narrow;  // promoted on the way from memory
    for (size_t part = 0; part < kWideParts; ++part) {
      const auto v = hn::LoadU(narrow, x + part * kWideLanes);
      // A multiplication by 1 changes nothing but the execution unit: the adders are busy
      // promoting.
      chain[part] = hn::MulAdd(hn::PromoteTo(TagF64(), v), hn::Set(TagF64(), 1.0), chain[part]);
    }
  } else {
    add_vector(load16(x), chain);
  }
}
// Four vectors more.
template <class T>
HWY_INLINE void add_four(const T* x, Chain& even, Chain& odd) {
  add_vector(x, even);
  add_vector(x + kLanes, odd);
  add_vector(x + 2 * kLanes, even);
  add_vector(x + 3 * kLanes, odd);
}

// The sum of a row or panel. In FP64: between large numbers of both signs the mean may be small,
// and elements near it are right only if it is.
template <class T>
HWY_INLINE double sum_of(const T* x, size_t n) {
  Chain even, odd;
  for (size_t part = 0; part < kWideParts; ++part) even[part] = odd[part] = hn::Zero(TagF64());
  size_t at = 0;
  for (; at + 4 * kLanes <= n; at += 4 * kLanes) add_four(x + at, even, odd);
  for (; at + kLanes <= n; at += kLanes) add_vector(x + at, odd);
  if (at < n) add_vector(load_first(x + at, n - at), even);
  for (size_t part = 0; part < kWideParts; ++part) even[part] = hn::Add(even[part], odd[part]);
  return join_wide(even);
}

// The squares around a mean: those around its FP32 neighbour, less what the step between adds.
template <class T>
HWY_INLINE double squares_around(double mean, const T* x, size_t n) {
  const auto near = static_cast<float>(mean);
  const F32x16 centre = set16(near);
  const auto square = [&](const T* at, size_t lanes, const F32x16& sum) HWY_ATTR {
    const F32x16 distance = HWY_LIKELY(lanes == kLanes)
                                ? sub(load16(at), centre)
                                : keep_first(sub(load_first(at, lanes), centre), lanes);
    return fma(distance, distance, sum);
  };
  double squares[1];
  if (n <= 2 * kLanes) {  // the same sum without a loop
    const size_t first = std::min(n, kLanes);
    F32x16 sum = square(x, first, zero16());
    if (n > first) sum = add(sum, square(x + first, n - first, zero16()));
    squares[0] = join16(sum);
  } else {
    row_sums<1>(n, squares, [&](size_t i, size_t lanes, F32x16(&acc)[1]) HWY_ATTR {
      acc[0] = square(x + i * kLanes, lanes, acc[0]);
    });
  }
  const double step = mean - static_cast<double>(near);
  const double around_mean = squares[0] - step * step * static_cast<double>(n);
  return around_mean < 0.0 ? 0.0 : around_mean;
}

// An element is nearer to the mean than `reach`, but not on it.
template <class T>
bool any_near(const T* x, int64_t cols, float mean, float reach) {
  const TagF32 d;
  const F32x16 centre = set16(mean);
  auto found = hn::Ne(hn::Zero(d), hn::Zero(d));
  const auto look = [&](const F32x16& distance) HWY_ATTR {
    for (size_t i = 0; i < kParts; ++i) {
      const auto apart = hn::Ne(distance.part[i], hn::Zero(d));
      found = hn::Or(found, hn::And(apart, hn::Lt(hn::Abs(distance.part[i]), hn::Set(d, reach))));
    }
  };
  const auto n = static_cast<size_t>(cols);
  size_t at = 0;
  for (; at + kLanes <= n; at += kLanes) look(sub(load16(x + at), centre));
  if (at < n) look(keep_first(sub(load_first(x + at, n - at), centre), n - at));
  return !hn::AllFalse(d, found);
}

template <class T>
HWY_INLINE Moments moments(const T* x, int64_t columns) {
  const auto n = static_cast<size_t>(columns);
  const double mean = sum_of(x, n) / static_cast<double>(columns);
  return {mean, squares_around(mean, x, n)};
}

// Whether a row near zero is to be written in FP64 (statistics.h). A mean of exactly 0 loses
// nothing itself: then, and where only its product with rstd is small, the elements decide.
template <class T>
HWY_NOINLINE void look_closer(const T* x, int64_t cols, const WideStatistics& wide,
                              Statistics& values) {
  const bool whatever_x =
      (wide.mean != 0.0 && std::abs(wide.mean) < double{kNear}) || wide.rstd < double{kLeastRstd};
  const double reach = double{kNear} * std::max(1.0, 1.0 / wide.rstd);
  if (!whatever_x && !any_near(x, cols, values.mean, static_cast<float>(reach))) return;
  values.exact = true;
  values.exact_mean = exact_mean(x, cols);
  values.exact_rstd = wide.rstd;
}

template <class T>
HWY_INLINE void find_statistics(const Job& job, const T* x, const Moments& moments,
                                Statistics& values) {
  const WideStatistics wide = statistics_of(job, x, moments);
  values.mean = static_cast<float>(wide.mean);
  values.rstd = static_cast<float>(wide.rstd);
}

// After find_statistics(), where any_near_zero(): whether the row is to be written in FP64.
template <class T>
HWY_NOINLINE void mark_exact(const Job& job, const T* x, const Moments& moments,
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

// Columns [begin, end) of a row.
template <class T, class TOut>
HWY_INLINE void write_row(const Job& job, const Line<T, TOut>& line, int64_t begin, int64_t end) {
  const auto first = reinterpret_cast<uintptr_t>(line.y + begin);
  int64_t at = begin;
  if (job.streaming && end - begin >= kStreamColumns && first % sizeof(TOut) == 0) {
    constexpr uintptr_t kVector = kLanes * sizeof(TOut);
    const auto head = static_cast<int64_t>((0 - first) % kVector / sizeof(TOut));
    if (head != 0) line.write_part(begin, head);
    at = line.template write_whole<true>(begin + head, end);
  } else {
    at = line.template write_whole<false>(begin, end);
  }
  if (at < end) line.write_part(at, end - at);
}

template <class T, class TOut>
HWY_INLINE Line<T, TOut> line_of(const Job& job, int64_t row, int64_t next,
                                 const Statistics& values) {
  const T* x = static_cast<const T*>(job.at.x);
  return Line<T, TOut>{x + job.x_rows(row),
                       x + job.x_rows(next),
                       job.gamma,
                       job.beta,
                       static_cast<TOut*>(job.at.y) + job.y_rows(row),
                       set16(values.mean),
                       set16(values.rstd)};
}

template <class T, class TOut>
HWY_NOINLINE void write_exact(const Job& job, int64_t row, const Statistics& values, int64_t begin,
                              int64_t end) {
  const T* x = static_cast<const T*>(job.at.x) + job.x_rows(row);
  TOut* y = static_cast<TOut*>(job.at.y) + job.y_rows(row);
  for (int64_t col = begin; col < end; ++col) {
    y[col] = from_float<TOut>(exact_y(values, to_float(x[col]), job.gamma[col], job.beta[col]));
  }
}

// The moments of `count` rows from `row` on. Step by step for all of them, so that the ends of the
// sums, which wait for one another, overlap between rows.
template <class T>
HWY_INLINE void group_moments(const Job& job, int64_t row, int64_t count, Moments* out) {
  const T* x = static_cast<const T*>(job.at.x);
  const int64_t cols = job.problem.cols;
  if (job.plan.panels > 1) {  // one row
    RowMoments joined;
    for (int64_t p = 0; p < job.plan.panels; ++p) {
      const int64_t columns = job.panel_columns(p);
      joined.add(moments(x + job.x_rows(row) + p * kPanel, columns), columns);
    }
    out[0] = joined.all();
    return;
  }
  const auto n = static_cast<size_t>(cols);
  for (int64_t r = 0; r < count; ++r) {
    out[r].mean = sum_of(x + job.x_rows(row + r), n) * job.reciprocal_cols;
  }
  for (int64_t r = 0; r < count; ++r) {
    out[r].squares = squares_around(out[r].mean, x + job.x_rows(row + r), n);
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
      const T* x = static_cast<const T*>(job.at.x) + job.x_rows(row + r);
      find_statistics(job, x, found[r], values[r]);
      put_statistics(job, row + r, values[r]);
    }
    const bool look = any_near_zero(values, count);
    for (int64_t r = 0; HWY_UNLIKELY(look) && r < count; ++r) {
      const T* x = static_cast<const T*>(job.at.x) + job.x_rows(row + r);
      mark_exact(job, x, found[r], values[r]);
    }
    for (int64_t r = 0; r < count; ++r) {
      const int64_t next = cols <= kPrefetchColumns ? std::min(row + r + group, end - 1) : row + r;
      if (HWY_UNLIKELY(look && values[r].exact)) {
        write_exact<T, TOut>(job, row + r, values[r], 0, cols);
      } else {
        write_row(job, line_of<T, TOut>(job, row + r, next, values[r]), 0, cols);
      }
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
  const T* x = static_cast<const T*>(job.at.x) + job.x_rows(row) + panel * kPanel;
  job.panel_moments(row)[panel] = moments(x, job.panel_columns(panel));
}

template <class T>
void row_statistics(const Job& job, int64_t row) {
  RowMoments row_moments;
  for (int64_t p = 0; p < job.plan.panels; ++p) {
    row_moments.add(job.panel_moments(row)[p], job.panel_columns(p));
  }
  const T* x = static_cast<const T*>(job.at.x) + job.x_rows(row);
  find_statistics(job, x, row_moments.all(), job.statistics(row));
  mark_exact(job, x, row_moments.all(), job.statistics(row));
  put_statistics(job, row, job.statistics(row));
}

template <class T, class TOut>
void write_panel(const Job& job, int64_t index) {
  const int64_t row = index / job.plan.panels;
  const int64_t begin = index % job.plan.panels * kPanel;
  const int64_t end = std::min(begin + kPanel, job.problem.cols);
  const Statistics& values = job.statistics(row);
  if (HWY_UNLIKELY(values.exact)) {
    write_exact<T, TOut>(job, row, values, begin, end);
  } else {
    write_row(job, line_of<T, TOut>(job, row, row, values), begin, end);
  }
  if (job.streaming) hwy::FlushStream();
}

// gamma or beta in FP32: its 16-bit numbers converted, or one number everywhere.
template <class T>
void widen(const View& view, const void* from, int64_t cols, float absent, float* to) {
  if (!given(view)) {
    std::fill_n(to, cols, absent);
    return;
  }
  const T* values = static_cast<const T*>(from);
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  int64_t at = 0;
  for (; at + kStep <= cols; at += kStep) store_raw(load16(values + at), to + at);
  for (; at < cols; ++at) to[at] = to_float(values[at]);
}

template <class T, class TOut>
void run_to(const Job& job) {
  const Plan& plan = job.plan;
  if (!plan.wide) {
    parallel_blocks(plan.slabs, [&](int64_t index) { slab<T, TOut>(job, index); });
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
  if (problem.gamma.dtype != ACL_FLOAT) {
    widen<T>(problem.gamma, at.gamma, problem.cols, 1.0f, static_cast<float*>(at.gamma_region));
  }
  if (problem.beta.dtype != ACL_FLOAT) {
    widen<T>(problem.beta, at.beta, problem.cols, 0.0f, static_cast<float*>(at.beta_region));
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
  const bool gamma_as_is = problem.gamma.dtype == ACL_FLOAT;
  const bool beta_as_is = problem.beta.dtype == ACL_FLOAT;
  const Job job{problem,
                plan,
                at,
                static_cast<const float*>(gamma_as_is ? at.gamma : at.gamma_region),
                static_cast<const float*>(beta_as_is ? at.beta : at.beta_region),
                1.0 / static_cast<double>(problem.cols),
                outputs_should_stream(y_bytes),
                RowOffsets(problem.x, problem.row_dim),
                RowOffsets(problem.y, problem.row_dim),
                RowOffsets(problem.mean, problem.mean.rank),
                RowOffsets(problem.rstd, problem.rstd.rank)};
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

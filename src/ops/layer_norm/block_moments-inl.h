// SPDX-License-Identifier: Apache-2.0
// Up to sixteen rows, each of which is one run in memory, and the visits that sum them:
// find_moments() and finish_statistics().

#if defined(ACLGRAD_OPS_LAYER_NORM_BLOCK_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BLOCK_MOMENTS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BLOCK_MOMENTS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BLOCK_MOMENTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm/columns-inl.h"
#include "ops/layer_norm/moments-inl.h"
#include "ops/layer_norm/parts-inl.h"
#include "ops/layer_norm/short-inl.h"
#include "ops/layer_norm/statistics.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows of a block: as many as lane_sums() sums at once.
inline constexpr size_t kRows = kLanes;

// Up to sixteen rows and what each needs.
template <class T>
struct Rows {
  size_t count = 0;
  const T* x[kRows];
  void* y[kRows];
  // Elements between the sixteen rows of x, behind each of which as many elements may be read as
  // its last steps lack (columns_in_parts()); 0: it is not so.
  int64_t columns_stride = 0;
  bool open = false;  // a strip may be read where the last columns of a row of x begin
  bool room = false;  // and written where those of y do: the rows behind are written later
  alignas(64) double wide_mean[kRows] = {};  // before it is rounded
  alignas(64) double squares[kRows] = {};    // around it
  alignas(64) float mean[kRows] = {};
  alignas(64) float rstd[kRows] = {};
  bool ordinary = false;         // all rows are (statistics.h)
  ExactStatistics exact[kRows];  // for rows that are not
#if HWY_TARGET == HWY_AVX2
  [[no_unique_address]] Converted<T> converted;  // by find_part_moments()
#endif

  void set_moments(size_t r, const Moments& found) {
    wide_mean[r] = found.mean;
    squares[r] = found.squares;
    mean[r] = static_cast<float>(found.mean);
  }
};

// Means of rows from their FP64 sums, which stand in wide_mean.
template <class T>
HWY_INLINE void divide_sums(Rows<T>& rows, double reciprocal_cols) {
  const TagF64 d;
  const hn::Rebind<float, TagF64> narrow;
  for (size_t r = 0; r < rows.count; r += kWideLanes) {
    const VecF64 mean = hn::Mul(hn::Load(d, rows.wide_mean + r), hn::Set(d, reciprocal_cols));
    hn::Store(mean, d, rows.wide_mean + r);
    hn::StoreU(hn::DemoteTo(narrow, mean), narrow, rows.mean + r);
  }
}

// Squares around the rounded means, which stand in squares, become those around the means.
template <class T>
HWY_INLINE void move_to_means(Rows<T>& rows, size_t n) {
  const TagF64 d;
  const hn::Rebind<float, TagF64> narrow;
  const VecF64 count = hn::Set(d, static_cast<double>(n));
  for (size_t r = 0; r < rows.count; r += kWideLanes) {
    const VecF64 near = hn::PromoteTo(d, hn::LoadU(narrow, rows.mean + r));
    const VecF64 step = hn::Sub(hn::Load(d, rows.wide_mean + r), near);
    const VecF64 around =
        hn::Sub(hn::Load(d, rows.squares + r), hn::Mul(hn::Mul(step, step), count));
    const VecF64 zero = hn::Zero(d);
    hn::Store(hn::IfThenElse(hn::Lt(around, zero), zero, around), d, rows.squares + r);
  }
}

// The moments of rows of at most kChainColumns columns from their put_sums(), of which there is
// room for kRows: the lanes of many rows are joined at once, and nothing waits for a row's own sum.
// squares(r) gives the lanes of row r's squares around its rounded mean.
template <class T, class Squares>
HWY_INLINE void find_joined_moments(Rows<T>& rows, double* sums, size_t n, double reciprocal_cols,
                                    Squares&& squares) {
  size_t r = rows.count;
  std::fill(sums + r * kWideSums, sums + hwy::RoundUpTo(r, kWideSums) * kWideSums, 0.0);
  for (r = 0; r < rows.count; r += kWideSums) join_sums(sums + r * kWideSums, rows.wide_mean + r);
  divide_sums(rows, reciprocal_cols);

  alignas(64) float lanes[kRows * kLanes];
  for (r = 0; r < rows.count; ++r) store_raw(squares(r), lanes + r * kLanes);
  std::fill(lanes + r * kLanes, lanes + kRows * kLanes, 0.0f);
  set_to(rows.squares, lane_sums(lanes));
  move_to_means(rows, n);
}

template <class T>
HWY_INLINE void find_joined_moments(Rows<T>& rows, double* sums, size_t n, double reciprocal_cols) {
  find_joined_moments(rows, sums, n, reciprocal_cols, [&](size_t r) ACLGRAD_INLINED {
    return square_chains(rows.x[r], n, rows.mean[r], rows.open);
  });
}

// The same for rows of at most two vectors.
template <class T>
HWY_INLINE void find_short_moments(Rows<T>& rows, size_t n, double reciprocal_cols) {
  alignas(64) double sums[kRows * kWideSums];
  const auto each_row = [&](auto&& put) ACLGRAD_INLINED {
    for (size_t r = 0; r < rows.count; ++r) put(rows.x[r], sums + r * kWideSums);
  };
  bool put = false;
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    put = n > kLanes;
    if (n > kLanes + kWideLanes) {
      each_row([n](const float* x, double* out)
                   ACLGRAD_INLINED { put_sums_of_two<true>(x, n, out); });
    } else if (put) {
      each_row([n](const float* x, double* out)
                   ACLGRAD_INLINED { put_sums_of_two<false>(x, n, out); });
    }
  } else {
    put = true;
    each_row([n](const T* x, double* out) ACLGRAD_INLINED { put_pair_sums(x, n, out); });
  }
#endif
  if (!put) {
    each_row([n](const T* x, double* out) ACLGRAD_INLINED { put_sums(load_two_first(x, n), out); });
  }
  find_joined_moments(rows, sums, n, reciprocal_cols, [&](size_t r) ACLGRAD_INLINED {
    return squares_of_two<T>(load_two_first(rows.x[r], n), n, rows.mean[r]);
  });
}

// The same for rows of three or four vectors.
template <class T, size_t S, size_t V>
HWY_NOINLINE void find_few_moments(Rows<T>& rows, size_t last, size_t n, double reciprocal_cols) {
  alignas(64) double sums[kRows * kWideSums];
  for (size_t r = 0; r < rows.count; ++r) {
    put_few_sums(rows.x[r], n, sums + r * kWideSums);
  }
  find_joined_moments(rows, sums, n, reciprocal_cols, [&](size_t r) ACLGRAD_INLINED {
    return few_squares<T, S, V>(rows.x[r], last, rows.mean[r]);
  });
}

#if HWY_TARGET <= HWY_AVX3
// The same from columns.
template <size_t kColumns>
HWY_INLINE void find_column_moments(Rows<float>& rows, size_t n, double reciprocal_cols) {
  alignas(64) float columns[kColumns * kLanes];
  load_columns(rows.x[0], rows.columns_stride, n, columns);
  for (size_t c = n; c < kColumns; ++c) store_raw(zero16(), columns + c * kLanes);
  sum_columns<kColumns>(columns, rows.wide_mean);
  divide_sums(rows, reciprocal_cols);
  const F32x16 centres = load16(rows.mean);
  for (size_t c = n; c < kColumns; ++c) store_raw(centres, columns + c * kLanes);
  set_to(rows.squares, square_columns<kColumns>(columns, centres));
  move_to_means(rows, n);
}
#endif

#if HWY_TARGET == HWY_AVX2
// The same of sixteen rows in parts.
template <class T>
HWY_NOINLINE void find_part_moments(Rows<T>& rows, size_t n, double reciprocal_cols) {
  const T* x = rows.x[0];
  with_parts<T>(n, [&](const auto& parts) ACLGRAD_INLINED {
    parts.put_sums(x, rows.columns_stride, rows.wide_mean, rows.converted);
    divide_sums(rows, reciprocal_cols);
    set_to(rows.squares, parts.squares(x, rows.columns_stride, rows.mean, rows.converted));
  });
  move_to_means(rows, n);
}
#endif

// The moments of rows of at most a panel.
template <class T>
void find_moments(Rows<T>& rows, size_t n, double reciprocal_cols) {
#if HWY_TARGET == HWY_AVX2
  if (rows.columns_stride != 0) return find_part_moments(rows, n, reciprocal_cols);
#endif
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    if (rows.columns_stride != 0) {
      if (n <= kEight) return find_column_moments<kEight>(rows, n, reciprocal_cols);
      return find_column_moments<kMostColumns>(rows, n, reciprocal_cols);
    }
  }
#endif
  if (n <= kTwo) return find_short_moments(rows, n, reciprocal_cols);
  if (n <= kFour) {
    constexpr size_t S = kFourStrips<T>;
    if constexpr (kStripVectors<T> == 1) {
      if (n <= kFour - kLanes) {
        return find_few_moments<T, S - 1, 1>(rows, n - kTwo, n, reciprocal_cols);
      }
    }
    const size_t last = n - (S - 1) * kStrip<T>;
    return with_vectors_of<T>(last, [&](auto vectors) HWY_ATTR {
      find_few_moments<T, S, vectors>(rows, last, n, reciprocal_cols);
    });
  }
  if (n <= kChainColumns) {
    alignas(64) double sums[kRows * kWideSums];
    for (size_t r = 0; r < rows.count; ++r) put_sums(rows.x[r], n, sums + r * kWideSums);
    return find_joined_moments(rows, sums, n, reciprocal_cols);
  }
  for (size_t r = 0; r < rows.count; ++r) {
    rows.set_moments(r, moments(rows.x[r], static_cast<int64_t>(n)));
  }
}

// rstd of every row from its moments, and whether all are ordinary. The arithmetic is that of
// Statistics' scalar functions. Returns whether those that are not may be all_zeros() of a usual
// eps.
template <class T>
HWY_INLINE bool finish_statistics(Rows<T>& rows, double reciprocal_cols, double eps) {
  const TagF64 d;
  const hn::Rebind<float, TagF64> narrow;
  rows.ordinary = !(eps < 0.0);
  bool or_zeros = rows.ordinary;
  for (size_t r = 0; r < rows.count; r += kWideLanes) {
    const VecF64 mean = hn::Load(d, rows.wide_mean + r);
    const VecF64 squares = hn::Load(d, rows.squares + r);
    const VecF64 spread = hn::Mul(squares, hn::Set(d, reciprocal_cols));
    const VecF64 variance = hn::Add(spread, hn::Set(d, eps));
    const VecF64 rstd = hn::Div(hn::Set(d, 1.0), hn::Sqrt(variance));
    hn::StoreU(hn::DemoteTo(narrow, rstd), narrow, rows.rstd + r);
    const auto between = [d](VecF64 v, double least, double most) HWY_ATTR {
      return hn::And(hn::Ge(v, hn::Set(d, least)), hn::Le(v, hn::Set(d, most)));
    };
    const auto usual = between(variance, kUsualVariance, 1.0 / kUsualVariance);
    const auto usual_mean = between(hn::Abs(mean), kUsualMean, 1.0 / kUsualMean);
    const auto whole = hn::Ge(hn::Mul(mean, mean), hn::Mul(hn::Set(d, kLeftOver), spread));
    const auto here = hn::FirstN(d, rows.count - r);
    const auto ordinary = hn::And(hn::And(usual, usual_mean), whole);
    const bool all = hn::AllTrue(d, hn::Or(ordinary, hn::Not(here)));
    rows.ordinary = rows.ordinary && all;
    if (HWY_LIKELY(all)) continue;
    const auto still = hn::And(hn::Eq(mean, hn::Zero(d)), hn::Eq(squares, hn::Zero(d)));
    const auto either = hn::Or(ordinary, hn::And(usual, still));
    or_zeros = or_zeros && hn::AllTrue(d, hn::Or(either, hn::Not(here)));
  }
  return or_zeros;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Rows on their way: some are written while those to come are summed.

#if defined(ACLGRAD_OPS_LAYER_NORM_PASSING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_PASSING_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_PASSING_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_PASSING_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/prefetch.h"
#include "ops/layer_norm/ahead.h"
#include "ops/layer_norm/block-inl.h"
#include "ops/layer_norm/moments-inl.h"
#include "ops/layer_norm/row_sum-inl.h"
#include "ops/layer_norm/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// The columns of a plain row on their way, and those of a row to come.
template <class T>
struct Passing {
  HWY_INLINE Passing() {}
  const T* x;
  T* y;
  const T* next;
  F32x16 mean, rstd;
  bool open, next_open, room;  // Rows

  HWY_INLINE void ask_for_next(size_t at) const {
    for (size_t i = 0; i < kTwo; i += kStrip<T>) prefetch_to_l2(next + at + i, kAhead);
  }
  // Calls what is nearer from L2 to L1.
  HWY_INLINE void call_near(size_t at) const {
    for (size_t i = 0; i < kTwo; i += kStrip<T>) prefetch_to_l1(next + at + i, kAheadToL1);
  }
};

// Writes columns [at, at + kTwo) of R rows.
template <class T, size_t R>
HWY_INLINE void write_two(const Passing<T> (&rows)[R], Weights<T> weights, size_t at,
                          bool streaming) {
  for (size_t i = 0; i < kTwo; i += kStrip<T>) {
    const Strip<T> gamma = weights.gamma.strip(at + i);
    const Strip<T> beta = weights.beta.strip(at + i);
    for (size_t r = 0; r < R; ++r) {
      const Strip<T> x = load_strip(rows[r].x + at + i);
      const Strip<T> y = normalised(x, rows[r].mean, rows[r].rstd, gamma, beta);
      store_clean_strip<T>(y, rows[r].y + at + i, streaming);
    }
  }
}
// Columns [at, n), fewer than kTwo.
template <class T, size_t R>
HWY_INLINE void write_last(const Passing<T> (&rows)[R], Weights<T> weights, size_t at, size_t n) {
  for (; at < n; at += kStrip<T>) {
    const size_t columns = std::min(kStrip<T>, n - at);
    const Strip<T> gamma = weights.gamma.last(at, columns);
    const Strip<T> beta = weights.beta.last(at, columns);
    for (size_t r = 0; r < R; ++r) {
      const bool whole = columns == kStrip<T>;
      const Strip<T> x = whole ? load_strip(rows[r].x + at)
                               : load_last_strip(rows[r].x + at, columns, rows[r].open);
      const Strip<T> y = normalised(x, rows[r].mean, rows[r].rstd, gamma, beta);
      if (whole || (kReadsWhole && rows[r].room)) {
        store_clean_strip<T>(y, rows[r].y + at, false);
      } else {
        store_clean_first<T>(y, rows[r].y + at, columns);
      }
    }
  }
}

// Whether so many columns of a long row are summed before as many of another one are written, and
// not vector by vector with them: where a vector takes several registers there are too few for both
// (two cores of Zen 1, times as fast: 8192x4096 f16 1.25, bf16 1.14, f32 1.09, 2048x12288 1.16,
// 1.06, 1.06). A load of the row to come that lies just behind a store to y, but for pages, would
// wait for it besides, as it does where rows are just under a page or two (f32 6200x2016 1.3).
// Shorter rows lose up to 9 %, but for those of joined-inl.h.
inline constexpr bool kTakesTurns = kParts > 1;

// Writes `n` columns of rows that are plain and sums those of rows to come (put_sums()), so that
// the memory is read while it is written to.
template <class T>
HWY_INLINE void write_and_sum(const Passing<T> (&rows)[1], Weights<T> weights, size_t n,
                              bool streaming, double* sums) {
  WideSum sum;
  size_t at = 0;
  for (; at + kTwo <= n; at += kTwo) {
    rows[0].ask_for_next(at);
    if (!kPrefetchesWait) rows[0].call_near(at);
    sum.add(rows[0].next + at);
    write_two(rows, weights, at, streaming);
  }
  sum.add_last(rows[0].next + at, n - at, rows[0].next_open);
  sum.put(sums);
  write_last(rows, weights, at, n);
}

// The same for a panel of long rows (moments()).
template <class T, size_t R>
HWY_INLINE void write_and_sum_long(const Passing<T> (&rows)[R], Weights<T> weights, size_t n,
                                   bool streaming, LongTotals (&totals)[R]) {
  for (size_t r = 0; r < R; ++r) totals[r].centre = near_mean(rows[r].next);
  LongSums sums[R];
  for (size_t r = 0; r < R; ++r) sums[r] = LongSums(totals[r].centre);
  for (size_t begin = 0; begin < n; begin += kSquareColumns) {
    const size_t end = std::min(n, begin + kSquareColumns);
    size_t at = begin;
    for (; at + kTwo <= end; at += kTwo) {
      for (size_t r = 0; r < R; ++r) {
        rows[r].ask_for_next(at);
        if (!kPrefetchesWait) rows[r].call_near(at);
        sums[r].add(rows[r].next + at);
      }
      if constexpr (!kTakesTurns) write_two(rows, weights, at, streaming);
    }
    if constexpr (kTakesTurns) {
      for (at = begin; at + kTwo <= end; at += kTwo) write_two(rows, weights, at, streaming);
    }
    if (at < end) {
      for (size_t r = 0; r < R; ++r) sums[r].add_last(rows[r].next + at, end - at);
      write_last(rows, weights, at, end);
    }
    for (size_t r = 0; r < R; ++r) sums[r].carry(totals[r].squares);
  }
  for (size_t r = 0; r < R; ++r) sums[r].put(totals[r].sums);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

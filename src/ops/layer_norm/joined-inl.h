// SPDX-License-Identifier: Apache-2.0
// Rows of y that follow each other and are not whole lines, written past the caches: vectors of y
// are taken where its lines begin, not its rows, so that only the lines that two rows share are
// put together. (A stage for all of y costs as much again as writing it: f32 24462x511 on one core
// of Zen 4 took twice the time of 24414x512.)

#if defined(ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/carry-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm/ahead.h"
#include "ops/layer_norm/block-inl.h"
#include "ops/layer_norm/passing-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// The line that the next row will complete. A strip of either dtype is a line.
template <class T>
class SharedLine {
  static constexpr size_t kLine = kStrip<T>;

 public:
  // Columns before the first one that begins a line of y.
  static size_t head_of(const T* y) {
    return (0 - reinterpret_cast<uintptr_t>(y) / sizeof(T)) % kLine;
  }
  // The first `count` elements of a row, of which v holds a line's worth.
  HWY_INLINE void complete(const Strip<T>& v, T* y, size_t count) {
    if (count == 0) return;
    if (begin_ == nullptr) {  // the first row
      store_clean_first(v, y, count);
      return;
    }
#if HWY_TARGET <= HWY_AVX3
    // In registers: a load over two stores waits until both have left, behind streaming ones.
    const Turn turn(kLine - count);
    const VecU32 before = hn::Load(TagU32(), reinterpret_cast<const uint32_t*>(line_));
    hn::Stream(turn.behind(before, turn(packed_strip(v))), TagU32(),
               reinterpret_cast<uint32_t*>(begin_));
#else
    store_clean_strip(v, line_ + kLine - count, false);
#if HWY_TARGET == HWY_SCALAR  // has no streaming stores
    std::memcpy(static_cast<void*>(begin_), line_, sizeof(line_) / 2);
#else
    for (size_t i = 0; i < kLineBytes / sizeof(float); i += kPartLanes) {
      const auto* from = reinterpret_cast<const float*>(line_) + i;
      hn::Stream(hn::Load(TagF32(), from), TagF32(), reinterpret_cast<float*>(begin_) + i);
    }
#endif
#endif
  }
  // The last `count` elements of a row, which begin a line.
  HWY_INLINE void begin(const Strip<T>& v, T* y, size_t count) {
#if HWY_TARGET <= HWY_AVX3
    hn::Store(packed_strip(v), TagU32(), reinterpret_cast<uint32_t*>(line_));
#else
    store_clean_strip(v, line_, false);
#endif
    begin_ = y;
    filled_ = count;
  }
  // Writes what no row has completed.
  void flush() {
    if (begin_ != nullptr) std::memcpy(static_cast<void*>(begin_), line_, filled_ * sizeof(T));
    begin_ = nullptr;
    filled_ = 0;
  }

 private:
#if HWY_TARGET <= HWY_AVX3
  using Turn = Rotation<sizeof(T)>;
#endif
  alignas(64) T line_[2 * kLine];  // where lines are joined in registers half of it will do
  T* begin_ = nullptr;
  size_t filled_ = 0;
};

// A plain row of `n` columns, 32 or more, on its way to the lines of y. Columns are counted from
// the first one that begins a line.
template <class T>
class JoinedRow {
 public:
  // Writes those before it.
  HWY_INLINE JoinedRow(const Passing<T>& row, const Weights<T>& weights, size_t n,
                       SharedLine<T>& line)
      : x_(row.x), y_(row.y), weights_(weights), mean_(row.mean), rstd_(row.rstd) {
    const size_t head = SharedLine<T>::head_of(y_);
    line.complete(y_of(0), y_, head);
    x_ += head;
    y_ += head;
    weights_ = weights_.from(head);
    left_ = n - head;
  }
  // As many as write_two() can write.
  HWY_INLINE size_t twos() const { return left_ / kTwo * kTwo; }
  HWY_INLINE void write_two(size_t at) const {
    for (size_t i = 0; i < kTwo; i += kStrip<T>) stream(at + i);
  }
  // Those behind them.
  HWY_INLINE void finish(SharedLine<T>& line) const {
    size_t at = twos();
    if (at + kStrip<T> <= left_) {
      stream(at);
      at += kStrip<T>;
    }
    const size_t rest = left_ - at;
    line.begin(normalised(load_strip_first(x_ + at, rest), mean_, rstd_,
                          weights_.gamma.last(at, rest), weights_.beta.last(at, rest)),
               y_ + at, rest);
  }

 private:
  HWY_INLINE Strip<T> y_of(size_t at) const {
    return normalised(load_strip(x_ + at), mean_, rstd_, weights_.gamma.strip(at),
                      weights_.beta.strip(at));
  }
  HWY_INLINE void stream(size_t at) const { store_clean_strip<T>(y_of(at), y_ + at, true); }

  const T* x_;
  T* y_;
  Weights<T> weights_;
  F32x16 mean_, rstd_;
  size_t left_;
};

// Asks for kTwo columns of the row to come, and calls some that are nearer: a load that is part of
// two lines waits for each of them (24462x511 on one core: 5.9 ms without, 5.3 so).
template <class T>
HWY_INLINE void ask_for_joined(const Passing<T>& row, size_t at) {
  row.ask_for_next(at);
  row.call_near(at);
}

// Writes `n` columns of a plain row; kSum: sums those of a row to come (put_sums()). Where a vector
// takes several registers by turns, in rows of any length (two cores of Zen 1, times as fast: f16
// 24438x1023 1.25, whose groups of four rows are just under two pages, 48923x511 1.25, 12500x2000
// 1.09, 2034x12289 1.2, bf16 1.0 to 1.28, f32 1.0 to 1.2).
template <class T, bool kSum>
HWY_INLINE void write_joined(const Passing<T>& pass, const Weights<T>& weights, size_t n,
                             SharedLine<T>& line, double* sums) {
  JoinedRow<T> row(pass, weights, n, line);
  const size_t twos = row.twos();
  WideSum sum;
  size_t at = 0;
  while (at < twos) {
    const size_t end = kTakesTurns ? std::min(twos, at + kSquareColumns) : at + kTwo;
    for (size_t i = at; kSum && i < end; i += kTwo) {
      ask_for_joined(pass, i);
      sum.add(pass.next + i);
    }
    for (; at < end; at += kTwo) row.write_two(at);
  }
  if constexpr (kSum) {
    for (; at + kTwo <= n; at += kTwo) sum.add(pass.next + at);
    sum.add_last(pass.next + at, n - at);
    sum.put(sums);
  }
  row.finish(line);
}

// The same for a row of any length, whose moments are taken panel by panel (moments()).
template <class T>
HWY_INLINE Moments write_joined_long(const Passing<T>& pass, const Weights<T>& weights, size_t n,
                                     SharedLine<T>& line) {
  constexpr auto kPanelColumns = static_cast<size_t>(kPanel);
  JoinedRow<T> row(pass, weights, n, line);
  const size_t twos = row.twos();
  RowMoments joined;
  Moments found{};
  for (size_t first = 0; first < n; first += kPanelColumns) {
    const T* next = pass.next + first;
    const size_t columns = std::min(kPanelColumns, n - first);
    if (HWY_UNLIKELY(columns < kLanes)) {  // no sixteen columns to begin with
      joined.add(moments(next, static_cast<int64_t>(columns)), static_cast<int64_t>(columns));
      continue;
    }
    LongTotals totals;
    totals.centre = near_mean(next);
    LongSums sums(totals.centre);
    for (size_t begin = 0; begin < columns; begin += kSquareColumns) {
      const size_t end = std::min(columns, begin + kSquareColumns);
      size_t at = begin;
      for (; at + kTwo <= end; at += kTwo) {
        ask_for_joined(pass, first + at);
        sums.add(next + at);
        if (!kTakesTurns && HWY_LIKELY(first + at < twos)) row.write_two(first + at);
      }
      for (size_t i = begin; kTakesTurns && i < at && first + i < twos; i += kTwo) {
        row.write_two(first + i);
      }
      if (at < end) sums.add_last(next + at, end - at);
      sums.carry(totals.squares);
    }
    sums.put(totals.sums);
    found = moments_from(totals, next, columns);
    joined.add(found, static_cast<int64_t>(columns));
  }
  row.finish(line);
  return n <= kPanelColumns ? found : joined.all();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

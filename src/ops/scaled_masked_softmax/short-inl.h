// SPDX-License-Identifier: Apache-2.0
// Rows of less than thirty-two elements, many at a time: their elements are taken in whole vectors,
// whatever rows they belong to; the largest elements and the sums of sixteen rows come at once.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_SHORT_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_SHORT_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_SHORT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/cpu/dense_rows.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_joins-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/scaled_masked_softmax/masked-inl.h"
#include "ops/scaled_masked_softmax/tree.h"
#include "ops/scaled_masked_softmax/unusual-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Elements of one portion: their numbers in FP32, 4 KiB, share L1 with what they come from.
constexpr size_t kPortionElements = 1024;

// Some of a block's rows, one behind the other, filled up to whole sixteens of rows.
template <class T>
struct Portion {
  const T* x = nullptr;
  const uint8_t* mask = nullptr;
  size_t rows = 0, cols = 0;
  size_t groups() const { return (rows + kLanes - 1) / kLanes; }
  size_t elements() const { return rows * cols; }
  size_t filled() const { return groups() * kLanes * cols; }
};

// What lies in L1 meanwhile. Of rows: a number each.
struct ShortBuffers {
  alignas(64) float values[kPortionElements + kLanes];
  alignas(64) float largest[kPortionElements + kLanes];   // then 1 / sum
  alignas(64) float rounders[kPortionElements + kLanes];  // see ExpTerms; then the sums
  alignas(64) float rests[kPortionElements + kLanes];     // see ExpTerms; then what 1 / sum lacks
};

// Joins all columns of the rows to `out`: the first sixteen, then the others, which go to `beyond`.
template <class Op>
HWY_INLINE void join_all(const float* values, size_t cols, size_t groups, float* out, float* beyond,
                         Op op) {
  join_columns(values, {cols, 0, HWY_MIN(cols, kLanes)}, groups, out, op);
  if (cols > kLanes) join_columns(values, {cols, kLanes, cols - kLanes}, groups, beyond, op);
}

// Fetches what the next portion has in the place of the sixteen elements from `at` on: where
// prefetches are dropped, beside the exps, which give memory time to answer.
template <class T>
HWY_INLINE void ask_for_next(const Portion<T>& portion, size_t at) {
  prefetch_to_l1(portion.x + portion.filled() + at);
  prefetch_to_l1(portion.mask + portion.filled() + at);
}

// sign * x, or -Inf where masked.
template <class T>
HWY_INLINE void load_values(const Job& job, const Portion<T>& portion, float* values) {
  const F32x16 sign = set16(job.sign);
  const size_t count = portion.filled();
  for (size_t i = 0; i < count; i += kLanes) {
    if (kPrefetchesWait) ask_for_next(portion, i);
    store_raw(unless(mul(load16(portion.x + i), sign), portion.mask + i), values + i);
  }
}

// What exp() needs of every row, from its largest element. Returns whether all rows are usual.
HWY_INLINE bool take_terms(const Job& job, const Portion<float>& rows, ShortBuffers& buffers) {
  const TagF32 d;
  const VecF32 factor = hn::Set(d, static_cast<float>(job.factor));
  const VecF32 lowest = hn::Set(d, kLowestUsual);
  const VecF32 highest = hn::Set(d, kHighestUsual);
  auto usual = hn::Eq(lowest, lowest);
  for (size_t r = 0; r < rows.rows; r += kLanes) {
    const F32x16 largest = load16(buffers.largest + r);
    for (size_t i = 0; i < kParts; ++i) {
      const VecF32 exponent = hn::Mul(largest.part[i], factor);
      usual = hn::And(usual, hn::And(hn::Gt(exponent, lowest), hn::Lt(exponent, highest)));
    }
    const ExpTerms terms = exp_terms(job.factor, largest);
    store_raw(terms.rounder, buffers.rounders + r);
    store_raw(terms.rest, buffers.rests + r);
  }
  return job.usual && hn::AllTrue(d, usual);
}

template <class T>
HWY_INLINE void take_exps(const Job& job, const Portion<T>& portion, const RowSpread& spread,
                          ShortBuffers& buffers) {
  ExpTerms terms = exp_terms(job.factor, zero16());
  float* values = buffers.values;
  const float* rounders = buffers.rounders;
  const float* rests = buffers.rests;
  size_t at = 0;
  for (; at < portion.filled(); rounders += kLanes, rests += kLanes) {
    for (size_t v = 0; v < job.cols; ++v, at += kLanes, values += kLanes) {
      if (!kPrefetchesWait) ask_for_next(portion, at);
      terms.rounder = spread(rounders, v);
      terms.rest = spread(rests, v);
      store_raw(exp_below(load16(values), terms), values);
    }
  }
}

// The values of rows that FP32 cannot tell apart, or that have a NaN: is_one(r).
template <class T, class IsOne>
HWY_NOINLINE void mend_rows(const Job& job, const Portion<T>& portion, float* values,
                            IsOne&& is_one) {
  alignas(64) float row_values[kPair];
  for (size_t r = 0; r < portion.rows; ++r) {
    if (!is_one(r)) continue;
    const size_t at = r * portion.cols;
    const Row<T> row{portion.x + at, portion.mask + at, nullptr};
    if (std::isnan(unusual_row(job, row, row_values))) {
      std::fill_n(row_values, portion.cols, to_float(float16_t{kCanonicalNanF16}));
    }
    std::memcpy(values + at, row_values, portion.cols * sizeof(float));
  }
}

// 1 / sum of every row, in two parts. Returns false if a sum is no number.
HWY_INLINE bool take_quotients(const Portion<float>& rows, ShortBuffers& buffers) {
  const TagF32 d;
  const F32x16 one = set16(1.0f);
  auto numbers = hn::Eq(one.part[0], one.part[0]);
  for (size_t r = 0; r < rows.rows; r += kLanes) {
    F32x16 sum = load16(buffers.rounders + r);
    F32x16 lost = zero16();
    if (rows.cols > kLanes) {
      // The two halves' sum, and exactly what its rounding loses.
      const F32x16 first = sum;
      const F32x16 second = load16(buffers.rests + r);
      sum = add(first, second);
      const F32x16 back = sub(sum, first);
      lost = add(sub(first, sub(sum, back)), sub(second, back));
    }
    F32x16 high;
    for (size_t i = 0; i < kParts; ++i) {
      numbers = hn::And(numbers, hn::Eq(sum.part[i], sum.part[i]));
      high.part[i] = hn::Div(one.part[i], sum.part[i]);
    }
    store_raw(high, buffers.largest + r);
    store_raw(mul(high, fnma(high, lost, fnma(high, sum, one))), buffers.rests + r);
  }
  return hn::AllTrue(d, numbers);
}

template <class T>
HWY_INLINE void write_short(const ShortBuffers& buffers, size_t count, size_t cols,
                            const RowSpread& spread, T* to) {
  const float* high = buffers.largest;
  const float* low = buffers.rests;
  for (size_t at = 0; at < count; high += kLanes, low += kLanes) {
    for (size_t v = 0; v < cols && at < count; ++v, at += kLanes) {
      const F32x16 value = load16(buffers.values + at);
      if constexpr (std::is_same_v<T, float>) {
        store16(fma(value, spread(high, v), mul(value, spread(low, v))), to + at);
      } else {
        store16(mul(value, spread(high, v)), to + at);
      }
    }
  }
}

// Rows of one element: 1, or NaN where it is none or infinite.
template <class T>
HWY_INLINE void write_singles(const Job& job, const Portion<T>& portion, T* to) {
  const F32x16 one = set16(1.0f);
  const F32x16 zero =
      set16(std::isfinite(job.problem.scale) ? 0.0f : std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < portion.elements(); i += kLanes) {
    hwy::Prefetch(portion.x + i + 4 * kPortionElements / sizeof(T));
    hwy::Prefetch(portion.mask + i + kPortionElements);
    store16(where_masked(fma(load16(portion.x + i), zero, one), portion.mask + i, 1.0f), to + i);
  }
}

template <class T>
HWY_INLINE void write_rows(const Job& job, const Portion<T>& portion, const RowSpread& spread,
                           ShortBuffers& buffers, T* to) {
  Portion<float> rows;
  rows.rows = portion.rows;
  rows.cols = portion.cols;
  const size_t cols = portion.cols;
  const size_t groups = portion.groups();
  load_values(job, portion, buffers.values);
  join_all(buffers.values, cols, groups, buffers.largest, buffers.rests, Largest());
  if (cols > kLanes) {
    for (size_t r = 0; r < groups * kLanes; r += kLanes) {
      const F32x16 both = max16(load16(buffers.largest + r), load16(buffers.rests + r));
      store_raw(both, buffers.largest + r);
    }
  }
  const bool usual = take_terms(job, rows, buffers);
  take_exps(job, portion, spread, buffers);
  if (HWY_UNLIKELY(!usual)) {
    mend_rows(job, portion, buffers.values,
              [&](size_t r) { return !is_usual(job, buffers.largest[r]); });
  }
  const auto take_sums = [&]() HWY_ATTR {
    join_all(buffers.values, cols, groups, buffers.rounders, buffers.rests, Sum());
    return take_quotients(rows, buffers);
  };
  if (HWY_UNLIKELY(!take_sums())) {
    mend_rows(job, portion, buffers.values,
              [&](size_t r) { return std::isnan(buffers.largest[r]); });
    take_sums();
  }
  write_short(buffers, portion.elements(), cols, spread, to);
}

// A block of rows of less than thirty-two elements.
template <class T>
void short_rows(const Job& job, const AttentionBlock<Offsets>& block, const Row<T>& first,
                Stage<T>& stage) {
  const DenseRows x(first.x, block, &Offsets::x, job.cols);
  const DenseRows mask(first.mask, block, &Offsets::mask, job.cols);
  const DenseRows y(first.y, block, &Offsets::y, job.cols);
  alignas(64) T x_buffer[kPortionElements];
  alignas(64) uint8_t mask_buffer[kPortionElements];
  alignas(64) T y_buffer[kPortionElements];
  ShortBuffers buffers;
  const RowSpread spread(job.cols);
  const auto most = static_cast<int64_t>(rows_of_portion(kPortionElements, job.cols));
  for (int64_t r = 0; r < y.rows(); r += most) {
    const int64_t count = std::min(most, y.rows() - r);
    Portion<T> portion;
    portion.rows = static_cast<size_t>(count);
    portion.cols = job.cols;
    portion.x = x.read(r, count, x_buffer);
    portion.mask = mask.read(r, count, mask_buffer);
    const bool staged = y.is_dense() && job.streaming;
    const bool direct = y.is_dense() && portion.elements() % kLanes == 0;
    T* to = y_buffer;
    if (staged) {
      to = stage.room(y.at(r), portion.elements());
    } else if (direct) {
      to = y.at(r);
    }
    if (job.cols == 1) {
      write_singles(job, portion, to);
    } else {
      write_rows(job, portion, spread, buffers, to);
    }
    if (!staged && !direct) y.write(r, count, y_buffer);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

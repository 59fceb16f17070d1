// SPDX-License-Identifier: Apache-2.0
// The sums of a row, or of a part of it, that is one run in memory: its moments, and whether an
// element lies near the mean. Vectors are those of strips (strips-inl.h), counted from the first
// column on.

#if defined(ACLGRAD_OPS_LAYER_NORM_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_MOMENTS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_MOMENTS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_MOMENTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/wide_sums-inl.h"
#include "ops/layer_norm/ahead.h"
#include "ops/layer_norm/row_sum-inl.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Columns of one round of the chains of the squares.
inline constexpr size_t kRound = kRowChains * kLanes;

// The squares around `centre` of up to kChainColumns columns, lane by lane: vector i goes to chain
// i mod 4, and the chains are joined in pairs.
template <class T>
HWY_INLINE F32x16 square_chains(const T* x, size_t n, float centre, bool open = false) {
  const F32x16 centre16 = set16(centre);
  F32x16 acc[kRowChains];
  for (size_t c = 0; c < kRowChains; ++c) acc[c] = zero16();
  const auto square = [&](const F32x16& apart, size_t chain)
                          HWY_ATTR { acc[chain] = fma(apart, apart, acc[chain]); };
  const auto square_strip = [&](const Strip<T>& strip, size_t chain) HWY_ATTR {
    for (size_t i = 0; i < kStripVectors<T>; ++i) square(sub(strip.v[i], centre16), chain + i);
  };
  const auto square_first = [&](const Strip<T>& strip, size_t columns, size_t chain) HWY_ATTR {
    Strip<T> apart;
    for (size_t i = 0; i < kStripVectors<T>; ++i) apart.v[i] = sub(strip.v[i], centre16);
    apart = keep_first_columns<T>(apart, columns);
    with_vectors_of<T>(columns, [&](auto vectors) HWY_ATTR {
      for (size_t i = 0; i < vectors; ++i) square(apart.v[i], chain + i);
    });
  };
  size_t at = 0;
  for (; at + kRound <= n; at += kRound) {
    for (size_t c = 0; c < kRowChains; c += kStripVectors<T>) {
      square_strip(load_strip(x + at + c * kLanes), c);
    }
  }
  for (size_t c = 0; c < kRowChains; c += kStripVectors<T>) {  // less than a round is left
    const size_t here = at + c * kLanes;
    if (here + kStrip<T> <= n) {
      square_strip(load_strip(x + here), c);
    } else if (here < n) {
      square_first(load_last_strip(x + here, n - here, open), n - here, c);
    }
  }
  return add(add(acc[0], acc[1]), add(acc[2], acc[3]));
}

// What long panels are summed in, in one visit: the sum, and the squares around a number near the
// mean, vector i in chain i mod 2, from where they go to FP64 every kSquareColumns columns.
class LongSums {
 public:
  HWY_INLINE LongSums() {}
  HWY_INLINE explicit LongSums(float centre) : centre_(set16(centre)) {
    squares_[0] = squares_[1] = zero16();
  }
  template <class T>
  HWY_INLINE void add(const T* x) {
    if constexpr (kStripVectors<T> == 1) {
      sum_.add(x);
      square(load16(x), squares_[0]);
      square(load16(x + kLanes), squares_[1]);
    } else {
#if HWY_TARGET == HWY_AVX2
      // Part by part, so that all chains stay in registers, and both sums from one conversion (two
      // cores of Zen 1, with turns (passing-inl.h), times as fast: bf16 8192x4096 1.14, 2048x12288
      // 1.06).
      for_parts([&](auto part) ACLGRAD_INLINED {
        const StripPart<T> columns = load_strip_part(x, part);
        for_constants<2>([&](auto i) ACLGRAD_INLINED {
          const VecF32 apart = hn::Sub(columns.v[i], centre_.part[0]);
          VecF32& chain = squares_[i].part[part];
          chain = fused(apart, apart, chain);
          sum_.add_part(columns.v[i], i, part);
        });
      });
#else
      sum_.add(x);
      const Strip<T> strip = load_strip(x);
      square(strip.v[0], squares_[0]);
      square(strip.v[1], squares_[1]);
#endif
    }
  }
  // Fewer than two vectors, but some.
  template <class T>
  HWY_INLINE void add_last(const T* x, size_t count) {
    sum_.add_last(x, count);
    Strip<T> apart;
    size_t here = count;
    if constexpr (kStripVectors<T> == 1) {
      if (count >= kLanes) {
        square(load16(x), squares_[0]);
        here -= kLanes;
        if (here == 0) return;
        x += kLanes;
      }
    }
    const Strip<T> strip = load_strip_first(x, here);
    for (size_t i = 0; i < kStripVectors<T>; ++i) apart.v[i] = sub(strip.v[i], centre_);
    apart = keep_first_columns<T>(apart, here);
    if constexpr (kStripVectors<T> == 1) {
      F32x16& chain = squares_[here == count ? 0 : 1];
      chain = fma(apart.v[0], apart.v[0], chain);
    } else {
      for (size_t i = 0; i < 2; ++i) squares_[i] = fma(apart.v[i], apart.v[i], squares_[i]);
    }
  }
  // After kSquareColumns columns, and at the end.
  HWY_INLINE void carry(double* totals) {
    add_to(totals, aclgrad::HWY_NAMESPACE::add(squares_[0], squares_[1]));
    squares_[0] = squares_[1] = zero16();
  }
  HWY_INLINE void put(double* sums) const { sum_.put(sums); }

 private:
  HWY_INLINE void square(const F32x16& v, F32x16& chain) const {
    const F32x16 apart = sub(v, centre_);
    chain = fma(apart, apart, chain);
  }
  WideSum sum_;
  F32x16 centre_;
  F32x16 squares_[2];
};

// What LongSums leaves behind.
struct LongTotals {
  HWY_INLINE LongTotals() {}
  alignas(64) double sums[kWideSums];
  alignas(64) double squares[kLanes] = {};
  float centre;
};

// A number near the mean of most panels: that of their first sixteen columns.
template <class T>
HWY_INLINE float near_mean(const T* x) {
  alignas(64) float v[kLanes];
  store_raw(load16(x), v);
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) v[i] += v[i + half];
  }
  return v[0] * (1.0f / static_cast<float>(kLanes));
}

// The squares around the FP32 neighbour of the mean, less what the step between adds.
template <class T>
HWY_NOINLINE double squares_around(double mean, const T* x, size_t n) {
  const auto near = static_cast<float>(mean);
  alignas(64) double totals[kLanes] = {};
  for (size_t at = 0; at < n; at += kChainColumns) {
    add_to(totals, square_chains(x + at, std::min(kChainColumns, n - at), near));
  }
  const double step = mean - static_cast<double>(near);
  const double around = join16(totals) - step * step * static_cast<double>(n);
  return around < 0.0 ? 0.0 : around;
}

// The mean of `n` columns from their put_sums().
HWY_INLINE double mean_of(double* sums, size_t n) {
  for (size_t half = kWideSums / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0] / static_cast<double>(n);
}

// The moments of a panel from what one visit left. Where the number near the mean was not near
// enough, so that a difference of large squares would lose digits, the squares are taken again.
template <class T>
HWY_INLINE Moments moments_from(LongTotals& totals, const T* x, size_t n) {
  const double mean = mean_of(totals.sums, n);
  const double step = mean - static_cast<double>(totals.centre);
  const double squares = join16(totals.squares);
  const double added = step * step * static_cast<double>(n);
  if (HWY_LIKELY(added <= kMostAdded * squares)) return {mean, squares - added};
  return {mean, squares_around(mean, x, n)};
}

// The moments of a panel of any number of columns.
template <class T>
Moments moments(const T* x, int64_t columns) {
  const auto n = static_cast<size_t>(columns);
  LongTotals totals;
  if (n < kLanes) {  // no number near the mean
    put_sums(x, n, totals.sums);
    const double mean = mean_of(totals.sums, n);
    return {mean, squares_around(mean, x, n)};
  }
  totals.centre = near_mean(x);
  LongSums sums(totals.centre);
  for (size_t begin = 0; begin < n; begin += kSquareColumns) {
    const size_t end = std::min(n, begin + kSquareColumns);
    size_t at = begin;
    for (; at + kTwo <= end; at += kTwo) {
      for (size_t i = 0; i < kTwo; i += kStrip<T>) prefetch_to_l2(x + at + i, kAhead);
      sums.add(x + at);
    }
    if (at < end) sums.add_last(x + at, end - at);
    sums.carry(totals.squares);
  }
  sums.put(totals.sums);
  return moments_from(totals, x, n);
}

// An element is nearer to the mean than `reach`, but not on it.
template <class T>
bool any_near(const T* x, int64_t cols, float mean, float reach) {
  const TagF32 d;
  const F32x16 centre = set16(mean);
  auto found = hn::Ne(hn::Zero(d), hn::Zero(d));
  const auto look = [&](const F32x16& distance) HWY_ATTR {
    ACLGRAD_PARTS
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

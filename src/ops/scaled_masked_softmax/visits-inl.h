// SPDX-License-Identifier: Apache-2.0
// The three visits to a row of at least thirty-two elements: from memory, exp(), division.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_VISITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_VISITS_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_VISITS_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_VISITS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/half.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/scaled_masked_softmax/masked-inl.h"
#include "ops/scaled_masked_softmax/rows.h"
#include "ops/scaled_masked_softmax/unusual-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Whether the first vector of a row's last pair is empty, because the row has no more than half a
// pair there: it is -Inf in the buffer and not written. BF16 has elements in both.
template <class T>
HWY_INLINE bool ends_with_one_vector(size_t cols) {
  return !std::is_same_v<T, bfloat16_t> && cols % kPair - 1 < kLanes;
}

// The first visit to a row of at least thirty-two elements: sign * x, or -Inf where masked, to the
// buffer in pairs (see tree.h). Returns the largest of each lane; where there are NaNs it may be
// anything.
template <class T>
HWY_INLINE F32x16 load_row(const Job& job, const Row<T>& row, float* values) {
  // By its bit: the multipliers have enough to do.
  const VecF32 sign = hn::Set(TagF32(), std::copysign(0.0f, job.sign));
  const auto take = [&](size_t c) HWY_ATTR {
    Pair pair = load_pair(row.x + c);
    for (size_t i = 0; i < kParts; ++i) {
      pair.first.part[i] = hn::Xor(pair.first.part[i], sign);
      pair.second.part[i] = hn::Xor(pair.second.part[i], sign);
    }
    return unless(pair, row.mask + c, row.x);
  };
  const F32x16 nothing = set16(-std::numeric_limits<float>::infinity());
  F32x16 first = nothing;
  F32x16 second = nothing;
  const auto keep = [&](const Pair& pair, float* to) HWY_ATTR {
    first = max16(first, pair.first);
    second = max16(second, pair.second);
    store_raw(pair.first, to);
    store_raw(pair.second, to + kLanes);
  };
  size_t c = 0;
  for (; c + kPair <= job.cols; c += kPair) keep(take(c), values + c);
  if (c == job.cols) return max16(first, second);
  if (ends_with_one_vector<T>(job.cols)) {
    const size_t at = job.cols - kLanes;
    F32x16 last = load16(row.x + at);
    for (size_t i = 0; i < kParts; ++i) last.part[i] = hn::Xor(last.part[i], sign);
    last = only(unless(last, row.mask + at), c - at, kLanes);
    second = max16(second, last);
    store_raw(nothing, values + c);
    store_raw(last, values + c + kLanes);
  } else {
    keep(without_first(take(job.cols - kPair), c + kPair - job.cols, row.x), values + c);
  }
  return max16(first, second);
}

HWY_INLINE ExpTerms terms_of(const Job& job, VecF32 largest) {
  F32x16 highest;
  for (size_t i = 0; i < kParts; ++i) highest.part[i] = largest;
  return exp_terms(job.factor, highest);
}

// The second visit: exp() of what is in the buffer, and its sum.
template <class T>
double exp_row(const Job& job, VecF32 largest, const T* ahead, float* values) {
  const ExpTerms terms = terms_of(job, largest);
  double sums[1];
  row_sums<1>(job.padded, sums, [&](size_t i, size_t, F32x16(&acc)[1]) ACLGRAD_INLINED {
    hwy::Prefetch(ahead + i * kLanes);
    const F32x16 value = exp_below(load16(values + i * kLanes), terms);
    store_raw(value, values + i * kLanes);
    acc[0] = add(acc[0], value);
  });
  return sums[0];
}

// A row with a NaN, ready to be divided.
inline Quotient all_nan(const Job& job, float* values) {
  std::fill_n(values, job.padded, to_float(float16_t{kCanonicalNanF16}));
  return {1.0f, 0.0f};
}

// What is left of a row before it is divided. In a row with a NaN all are.
template <class T>
HWY_INLINE Quotient finish_row(const Job& job, const Row<T>& row, VecF32 largest, const T* ahead,
                               float* values) {
  const double sum = HWY_LIKELY(is_usual(job, hn::GetLane(largest)))
                         ? exp_row(job, largest, ahead, values)
                         : unusual_row(job, row, values);
  return HWY_LIKELY(!std::isnan(sum)) ? one_over(sum) : all_nan(job, values);
}

// Elements of y. FP32 is divided as if exactly; the other types round it away.
template <class T>
HWY_INLINE F32x16 divided(const F32x16& v, const Quotient& by, const T*) {
  if constexpr (std::is_same_v<T, float>) {
    return fma(v, set16(by.high), mul(v, set16(by.low)));
  } else {
    return mul(v, set16(by.high));
  }
}
template <class T>
HWY_INLINE void write_pair(const float* values, const Quotient& by, T* to, bool streaming) {
  Pair out;
  out.first = divided(load16(values), by, to);
  out.second = divided(load16(values + kLanes), by, to);
  store_clean_pair(out, to, streaming);
}

// The third visit to `count` >= 32 elements of the buffer. The last pair or vector may overlap the
// pair before it, with nothing in what it overlaps, so it is written first.
template <class T>
HWY_INLINE void write_pairs(const float* values, size_t count, const Quotient& by, T* to,
                            bool streaming) {
  const size_t whole = count / kPair * kPair;
  if (whole < count && ends_with_one_vector<T>(count)) {
    store16(divided(load16(values + whole + kLanes), by, to), to + count - kLanes);
  } else if (whole < count) {
    write_pair(values + whole, by, to + count - kPair, false);
  }
  for (size_t c = 0; c < whole; c += kPair) write_pair(values + c, by, to + c, streaming);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

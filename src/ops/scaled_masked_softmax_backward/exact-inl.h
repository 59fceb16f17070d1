// SPDX-License-Identifier: Apache-2.0
// Rows in FP64: where an intermediate falls below FP32's normal numbers and a large factor follows,
// what it loses there, up to 2^-150 (half of a subnormal's unit), would show. The bounds stand in
// tree.h; which rows it is follows from their numbers and the scale alone.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_EXACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_EXACT_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_EXACT_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_EXACT_INL_H_
#endif

#include <bit>
#include <cmath>
#include <type_traits>

#include "kernels/cpu/lanes-inl.h"
#include "ops/scaled_masked_softmax_backward/rows.h"
#include "ops/scaled_masked_softmax_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// A magnitude among the `cols` elements is over 1.
template <class T>
HWY_INLINE bool any_over_one(const T* y, size_t cols) {
  const TagF32 d;
  auto found = hn::Ne(hn::Zero(d), hn::Zero(d));
  const auto look = [&](const F32x16& v) HWY_ATTR {
    for (size_t i = 0; i < kParts; ++i) {
      found = hn::Or(found, hn::Gt(hn::Abs(v.part[i]), hn::Set(d, 1.0f)));
    }
  };
  size_t at = 0;
  for (; at + kLanes <= cols; at += kLanes) look(load16(y + at));
  if (at < cols) look(load_first(y + at, cols - at));
  return !hn::AllFalse(d, found);
}

// Whether a row with this sum takes FP64; the sum is outside [kLeastSum, kLargestSum). `split`: the
// scale's power went to dy.
template <class T>
HWY_INLINE bool unusual_sum_is_exact(const T* y, size_t cols, float sum, bool split) {
  if (!(std::abs(sum) < kLargestSum)) return split;
  if constexpr (std::is_same_v<T, float16_t>) {
    return false;  // products of two numbers over 2^-25 are no subnormals
  } else {
    return any_over_one(y, cols);
  }
}
// The row, rounded to FP32 and then to the dtype. dx may be dy or y.
template <class T>
HWY_INLINE void write_exact(const T* dy, const T* y, const uint8_t* mask, size_t cols, double scale,
                            T* dx) {
  const auto wide = [](T value) { return static_cast<double>(to_float(value)); };
  double sum = 0.0;
  for (size_t c = 0; c < cols; ++c) sum += wide(dy[c]) * wide(y[c]);
  for (size_t c = 0; c < cols; ++c) {
    const double product = wide(dy[c]) * wide(y[c]);
    const double exact = scale * (product - wide(y[c]) * sum);
    dx[c] = from_float<T>(mask[c] != 0 ? 0.0f : static_cast<float>(exact));
  }
}

// Not a row to be computed in FP64. One comparison: magnitudes compare as their bits do.
HWY_INLINE bool is_ordinary(const Job& job, float sum) {
  const uint32_t bits = std::bit_cast<uint32_t>(sum) & 0x7FFFFFFFu;
  return HWY_LIKELY(bits - std::bit_cast<uint32_t>(kLeastSum) < job.ordinary_sums);
}
// It may be one. Out of line, but not with the row, which would have to lie in memory for that.
template <class T>
HWY_NOINLINE bool is_exact(const Job& job, const T* y, float sum) {
  if (job.ordinary_sums == 0) return true;
  return unusual_sum_is_exact(y, job.cols, sum, job.factors.on_dy != 1.0f);
}
template <class T>
HWY_NOINLINE void write_exact(const Job& job, const T* dy, const T* y, const uint8_t* mask, T* to) {
  write_exact(dy, y, mask, job.cols, job.problem.scale, to);
}
template <class T>
HWY_INLINE bool is_exact(const Job& job, const Row<T>& row, float sum) {
  return is_exact(job, row.y, sum);
}
template <class T>
HWY_INLINE void write_exact(const Job& job, const Row<T>& row, T* to) {
  write_exact(job, row.dy, row.y, row.mask, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// The sums of a row, or of a part of it, that is one run in memory: its moments, and whether an
// element lies near the mean.

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

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm/statistics.h"

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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Sums that are a function of the shape alone: FP32 chains of at most 16 terms in each lane, joined
// in pairs, then carried in FP64 totals.

#if defined(ACLGRAD_KERNELS_CPU_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_SUMS_INL_H_
#undef ACLGRAD_KERNELS_CPU_SUMS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_SUMS_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

using TagF64 = hn::CappedTag<double, kLanes>;
using VecF64 = hn::Vec<TagF64>;
inline constexpr size_t kWideLanes = hn::MaxLanes(TagF64());

// Calls fn(first lane, FP64 vector) for the sixteen lanes in order.
template <class Fn>
HWY_INLINE void each_wide(const F32x16& v, Fn&& fn) {
  const TagF64 d64;
#if HWY_TARGET == HWY_SCALAR
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) fn(i, hn::PromoteTo(d64, v.part[i]));
#else
  const hn::Half<TagF32> half;
  for (size_t i = 0; i < kParts; ++i) {
    fn(i * kPartLanes, hn::PromoteTo(d64, hn::LowerHalf(half, v.part[i])));
    fn(i * kPartLanes + kWideLanes, hn::PromoteTo(d64, hn::UpperHalf(half, v.part[i])));
  }
#endif
}

// totals[0..16) += v, in FP64; of the first kSkipped parts nothing is read or written.
template <size_t kSkipped = 0>
ACLGRAD_SIXTEEN void add_to(double* totals, const F32x16& v) {
  const TagF64 d64;
  each_wide(v, [&](size_t lane, VecF64 wide) HWY_ATTR {
    if (lane < kSkipped * kPartLanes) return;
    hn::StoreU(hn::Add(hn::LoadU(d64, totals + lane), wide), d64, totals + lane);
  });
}

// totals[0..16) = v, in FP64.
ACLGRAD_SIXTEEN void set_to(double* totals, const F32x16& v) {
  const TagF64 d64;
  each_wide(v, [&](size_t lane, VecF64 wide) HWY_ATTR { hn::StoreU(wide, d64, totals + lane); });
}

// Sixteen FP64 numbers, aligned to a vector, rounded to FP32.
ACLGRAD_SIXTEEN F32x16 round16(const double* totals) {
#if HWY_TARGET == HWY_SCALAR  // DemoteTo would saturate
  return each_part([&](size_t i)
                       HWY_ATTR { return hn::Set(TagF32(), static_cast<float>(totals[i])); });
#else
  return each_part([&](size_t i) HWY_ATTR {
    const TagF64 d64;
    const hn::Half<TagF32> half;
    const double* from = totals + i * kPartLanes;
    return hn::Combine(TagF32(), hn::DemoteTo(half, hn::Load(d64, from + kWideLanes)),
                       hn::DemoteTo(half, hn::Load(d64, from)));
  });
#endif
}

// The sum of a vector's lanes, its upper half joined to its lower one until one lane is left.
template <class D>
HWY_INLINE double join_lanes([[maybe_unused]] D d, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return join_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

// Sixteen FP64 numbers joined in pairs: i and i + 8, then i and i + 4, and so on. The order is part
// of the result.
inline constexpr size_t kWideParts = kLanes / kWideLanes;
HWY_INLINE double join_wide(VecF64 (&wide)[kWideParts]) {
  for (size_t width = kWideParts / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) wide[i] = hn::Add(wide[i], wide[i + width]);
  }
  return join_lanes(TagF64(), wide[0]);
}
ACLGRAD_SIXTEEN double join16(const double* totals) {
  VecF64 wide[kWideParts];
  for (size_t i = 0; i < kWideParts; ++i) wide[i] = hn::LoadU(TagF64(), totals + i * kWideLanes);
  return join_wide(wide);
}
ACLGRAD_SIXTEEN double join16(const F32x16& v) {
  VecF64 wide[kWideParts];
  each_wide(v, [&](size_t lane, VecF64 part) HWY_ATTR { wide[lane / kWideLanes] = part; });
  return join_wide(wide);
}

// K sums over the elements of a row of n, taken together. term(i, count, acc) adds the terms of
// elements [16 i, 16 i + count) to the K vectors in acc with one fma or add each; when count < 16
// the other lanes must get +0.
//
// Tree: vector i goes to chain i mod 4; after 16 vectors a chain is full, the four are joined in
// pairs and added to the FP64 totals.
template <size_t K, class Term>
HWY_INLINE void row_sums(size_t n, double (&sums)[K], Term&& term) {
  constexpr size_t kChains = kRowChains;
  constexpr size_t kBlock = kChains * kChain * kLanes;
  alignas(64) double totals[K][kLanes];
  if (n > kBlock || n == 0) {  // else there is nothing to carry
    for (size_t k = 0; k < K; ++k) set_to(totals[k], zero16());
  }
  const size_t full = n / kLanes;
  const size_t rest = n % kLanes;
  for (size_t begin = 0; begin * kLanes < n; begin += kChains * kChain) {
    // Constant indices only, else the chains live in memory.
    F32x16 acc[kChains][K];
    for (size_t c = 0; c < kChains; ++c) {
      for (size_t k = 0; k < K; ++k) acc[c][k] = zero16();
    }
    const size_t limit = begin + kChains * kChain;
    const size_t end = HWY_MIN(full, limit);
    size_t i = begin;
    for (; i + kChains <= end; i += kChains) {
      term(i, kLanes, acc[0]);
      term(i + 1, kLanes, acc[1]);
      term(i + 2, kLanes, acc[2]);
      term(i + 3, kLanes, acc[3]);
    }
    const auto finish = [&](size_t vector, F32x16(&chain)[K]) HWY_ATTR {
      if (vector < end) {
        term(vector, kLanes, chain);
      } else if (vector == full && rest != 0 && full < limit) {
        term(full, rest, chain);
      }
    };
    finish(i, acc[0]);
    finish(i + 1, acc[1]);
    finish(i + 2, acc[2]);
    finish(i + 3, acc[3]);
    if (n <= kBlock) {
      for (size_t k = 0; k < K; ++k) {
        sums[k] = join16(add(add(acc[0][k], acc[1][k]), add(acc[2][k], acc[3][k])));
      }
      return;
    }
    for (size_t k = 0; k < K; ++k) {
      add_to(totals[k], add(add(acc[0][k], acc[1][k]), add(acc[2][k], acc[3][k])));
    }
  }
  for (size_t k = 0; k < K; ++k) sums[k] = join16(totals[k]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// exp() of numbers that are not above the highest of them, in sixteen lanes, the same bits on every
// instruction set: FP32 fused multiply-adds only.

#if defined(ACLGRAD_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_EXP_INL_H_
#undef ACLGRAD_KERNELS_CPU_EXP_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_EXP_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"
#include "kernels/exp_numbers.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// exp(scale * (x - highest)) is 2^(factor * x - whole - rest), where factor = scale / log(2) has
// two parts, and whole + rest is factor * highest, rounded as factor * x will be: the highest gives
// exactly 1.
struct ExpTerms {
  HWY_INLINE ExpTerms() {}
  F32x16 factor, factor_low;
  F32x16 rounder;  // less `whole`
  F32x16 rest;
};

// factor: from 2^-100 to 2^100; factor * highest: up to 2^17 in magnitude.
HWY_INLINE ExpTerms exp_terms(double factor, const F32x16& highest) {
  ExpTerms out;
  const auto high = static_cast<float>(factor);
  out.factor = set16(high);
  out.factor_low = set16(static_cast<float>(factor - static_cast<double>(high)));
  const F32x16 rounder = set16(kExpRounder);
  const F32x16 whole = sub(add(mul(out.factor, highest), rounder), rounder);
  out.rounder = sub(rounder, whole);
  out.rest = fma(out.factor_low, highest, fms(out.factor, highest, whole));
  return out;
}

// 2^(n + fraction) * kExpGain for `shifted` = kExpRounder + n and a fraction of at most 0.505 in
// magnitude; +0 where n is below -150.
HWY_INLINE F32x16 exp2_split(const F32x16& shifted, const F32x16& fraction) {
  F32x16 power = set16(kExp6);
  power = fma(power, fraction, set16(kExp5));
  power = fma(power, fraction, set16(kExp4));
  power = fma(power, fraction, set16(kExp3));
  power = fma(power, fraction, set16(kExp2));
  power = fma(power, fraction, set16(kExp1));
  power = fma(power, fraction, set16(1.0f));
  return each_part([&](size_t i) HWY_ATTR {
    const TagF32 d;
    const VecU32 bits = hn::ShiftLeft<23>(hn::BitCast(TagU32(), shifted.part[i]));
    const VecF32 value = hn::Mul(power.part[i], hn::BitCast(d, bits));
    // A NaN is not below: it stays in the value.
    return hn::IfThenZeroElse(hn::Lt(shifted.part[i], hn::Set(d, kExpLeast)), value);
  });
}

// kExpGain * exp(scale * (x - highest)) for x up to `highest`; off by at most 2 units of 2^-24 of
// it. -Inf gives +0, NaN gives NaN.
HWY_INLINE F32x16 exp_below(const F32x16& x, const ExpTerms& terms) {
  // Rounded after `rest` is taken off, so that the fraction is small; taken off the exact product
  // last, so that nothing is lost.
  const F32x16 shifted = add(fms(x, terms.factor, terms.rest), terms.rounder);
  const F32x16 n = sub(shifted, terms.rounder);
  const F32x16 product = fma(terms.factor_low, x, fms(terms.factor, x, n));
  return exp2_split(shifted, sub(product, terms.rest));
}

// kExpGain * 2^exponent for sixteen exponents in FP64, none above 0.
HWY_INLINE F32x16 exp2_below(const double* exponents) {
  alignas(64) float high[kLanes], low[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    const double kept = exponents[i] < kExpLeastWide ? kExpLeastWide : exponents[i];
    high[i] = static_cast<float>(kept);
    low[i] = static_cast<float>(kept - static_cast<double>(high[i]));
  }
  const F32x16 rounder = set16(kExpRounder);
  const F32x16 shifted = add(load16(high), rounder);
  const F32x16 n = sub(shifted, rounder);
  return exp2_split(shifted, add(sub(load16(high), n), load16(low)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

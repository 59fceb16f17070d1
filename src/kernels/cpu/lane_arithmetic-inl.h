// SPDX-License-Identifier: Apache-2.0
// Sixteen logical FP32 lanes, the same on every instruction set: one AVX-512 register, two of AVX2,
// four of SSE4 or NEON, sixteen scalars. Element-wise IEEE operations in lane order, so whatever is
// built from them gives the same bits everywhere.

#if defined(ACLGRAD_KERNELS_CPU_LANE_ARITHMETIC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_LANE_ARITHMETIC_INL_H_
#undef ACLGRAD_KERNELS_CPU_LANE_ARITHMETIC_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_LANE_ARITHMETIC_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_count.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using TagF32 = hn::CappedTag<float, kLanes>;
using VecF32 = hn::Vec<TagF32>;
using TagU32 = hn::RebindToUnsigned<TagF32>;
using VecU32 = hn::Vec<TagU32>;
using TagU16 = hn::Rebind<uint16_t, TagF32>;
inline constexpr size_t kPartLanes = hn::MaxLanes(TagF32());
inline constexpr size_t kParts = kLanes / kPartLanes;

// The explicit constructor is for NEON, whose vector types are not aggregates inside arrays. The
// parts are mutable for g++ 12 alone, which keeps const objects of several registers in memory (its
// scalar replacement of aggregates refuses to write to what is const): a fifth of the time of
// LayerNorm's short rows went to stores that nobody read.
struct F32x16 {
  HWY_INLINE F32x16() {}
  mutable VecF32 part[kParts];
};

// SCALAR's sixteen parts are taken by a loop that stays one: unrolled, this last resort took as
// long to compile as all the vectors' code (LayerNorm: 62 s, and 35 so).
#undef ACLGRAD_PARTS
#if HWY_TARGET != HWY_SCALAR
#define ACLGRAD_PARTS
#elif defined(__clang__)
#define ACLGRAD_PARTS _Pragma("clang loop unroll(disable)")
#else
#define ACLGRAD_PARTS _Pragma("GCC unroll 1")
#endif

// And what works on sixteen lanes is called there: put in place, SCALAR's part took 40 % of the
// minutes of compiling an operator.
#undef ACLGRAD_SIXTEEN
#if HWY_TARGET == HWY_SCALAR
#define ACLGRAD_SIXTEEN HWY_NOINLINE HWY_MAYBE_UNUSED
#else
#define ACLGRAD_SIXTEEN HWY_INLINE
#endif

template <class Fn>
HWY_INLINE F32x16 each_part(Fn&& fn) {
  F32x16 out;
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) out.part[i] = fn(i);
  return out;
}

ACLGRAD_SIXTEEN F32x16 zero16() {
  return each_part([](size_t) HWY_ATTR { return hn::Zero(TagF32()); });
}
ACLGRAD_SIXTEEN F32x16 set16(float value) {
  return each_part([&](size_t) HWY_ATTR { return hn::Set(TagF32(), value); });
}
ACLGRAD_SIXTEEN F32x16 add(const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Add(a.part[i], b.part[i]); });
}
ACLGRAD_SIXTEEN F32x16 sub(const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Sub(a.part[i], b.part[i]); });
}
ACLGRAD_SIXTEEN F32x16 mul(const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Mul(a.part[i], b.part[i]); });
}

// What takes an instruction set without fused multiply-adds and half precision twenty instructions
// is called there, not put in place: SSE4's part of LayerNorm takes 30 s to compile instead of 43.
#undef ACLGRAD_ONE_INSTRUCTION
#if HWY_NATIVE_FMA
#define ACLGRAD_ONE_INSTRUCTION HWY_INLINE
#else
#define ACLGRAD_ONE_INSTRUCTION HWY_NOINLINE HWY_MAYBE_UNUSED
#endif

// One rounding on every target. SSE4 has no fused multiply-add: the product is exact in
// double, the sum is rounded to odd there (its error term tells which way), and a double rounded to
// odd keeps enough bits for the rounding to float to come out as if it were the only one.
ACLGRAD_ONE_INSTRUCTION VecF32 fused(VecF32 a, VecF32 b, VecF32 c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  alignas(64) float x[kPartLanes], y[kPartLanes], z[kPartLanes];
  const TagF32 d;
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < kPartLanes; ++i) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
  return hn::Load(d, z);
#else
  const hn::Half<TagF32> half;
  const hn::RebindToSigned<hn::Repartition<double, TagF32>> bits;
  const hn::Repartition<double, TagF32> wide;
  const auto one_half = [&](auto x, auto y, auto z) HWY_ATTR {
    const auto product = hn::Mul(hn::PromoteTo(wide, x), hn::PromoteTo(wide, y));
    const auto addend = hn::PromoteTo(wide, z);
    const auto sum = hn::Add(product, addend);
    const auto back = hn::Sub(sum, product);
    const auto error = hn::Add(hn::Sub(product, hn::Sub(sum, back)), hn::Sub(addend, back));
    const auto sum_bits = hn::BitCast(bits, sum);
    const auto one = hn::Set(bits, 1);
    // Even and inexact (an error that is NaN comes from Inf or NaN and is left alone).
    const auto zero = hn::Zero(wide);
    const auto inexact = hn::Or(hn::Lt(error, zero), hn::Gt(error, zero));
    const auto even = hn::RebindMask(wide, hn::Eq(hn::And(sum_bits, one), hn::Zero(bits)));
    // Away from zero when error and sum have the same sign, else toward zero.
    const auto sign_difference = hn::Xor(hn::BitCast(bits, error), sum_bits);
    const auto step =
        hn::IfThenElse(hn::Lt(sign_difference, hn::Zero(bits)), hn::Set(bits, -1), one);
    const auto odd = hn::BitCast(wide, hn::Add(sum_bits, step));
    return hn::DemoteTo(half, hn::IfThenElse(hn::And(inexact, even), odd, sum));
  };
  const TagF32 d;
  return hn::Combine(
      d, one_half(hn::UpperHalf(half, a), hn::UpperHalf(half, b), hn::UpperHalf(half, c)),
      one_half(hn::LowerHalf(a), hn::LowerHalf(b), hn::LowerHalf(c)));
#endif
}

// a * b - c
HWY_INLINE VecF32 fused_minus(VecF32 a, VecF32 b, VecF32 c) {
#if HWY_NATIVE_FMA
  return hn::MulSub(a, b, c);
#else
  return fused(a, b, hn::Neg(c));
#endif
}
// c - a * b
HWY_INLINE VecF32 minus_fused(VecF32 a, VecF32 b, VecF32 c) {
#if HWY_NATIVE_FMA
  return hn::NegMulAdd(a, b, c);
#else
  return fused(hn::Neg(a), b, c);
#endif
}

// a * b + c
ACLGRAD_SIXTEEN F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_part([&](size_t i) HWY_ATTR { return fused(a.part[i], b.part[i], c.part[i]); });
}
// c - a * b
ACLGRAD_SIXTEEN F32x16 fnma(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_part([&](size_t i) HWY_ATTR { return minus_fused(a.part[i], b.part[i], c.part[i]); });
}
// a * b - c
ACLGRAD_SIXTEEN F32x16 fms(const F32x16& a, const F32x16& b, const F32x16& c) {
  return each_part([&](size_t i) HWY_ATTR { return fused_minus(a.part[i], b.part[i], c.part[i]); });
}

// Lanes from `count` on become +0, whatever stands in them.
ACLGRAD_SIXTEEN F32x16 keep_first(const F32x16& a, size_t count) {
  return each_part([&](size_t i) ACLGRAD_INLINED {
    const size_t begin = i * kPartLanes;
    const size_t kept = count > begin ? count - begin : 0;
    return hn::IfThenElseZero(hn::FirstN(TagF32(), HWY_MIN(kept, kPartLanes)), a.part[i]);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

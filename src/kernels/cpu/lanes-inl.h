// SPDX-License-Identifier: Apache-2.0
// Sixteen logical FP32 lanes, the same on every instruction set: one AVX-512 register, two of AVX2,
// four of SSE4 or NEON, sixteen scalars. Element-wise IEEE operations in lane order, so whatever is
// built from them gives the same bits everywhere. Memory is FP32, FP16 or BF16; arithmetic is FP32.

#if defined(ACLGRAD_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_LANES_INL_H_
#undef ACLGRAD_KERNELS_CPU_LANES_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_LANES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/half.h"
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

// Numbers of sixteen bits as FP32, exactly.
using VecU16 = hn::Vec<TagU16>;
HWY_INLINE VecF32 widened(VecU16 bits, bfloat16_t) {
  return hn::BitCast(TagF32(), hn::ShiftLeft<16>(hn::PromoteTo(TagU32(), bits)));
}

ACLGRAD_ONE_INSTRUCTION VecF32 widened(VecU16 bits, float16_t) {
#if HWY_NATIVE_FMA && (HWY_ARCH_X86 || HWY_ARCH_ARM_A64)  // F16C and NEON convert exactly
  return hn::PromoteTo(TagF32(), hn::BitCast(hn::Rebind<hwy::float16_t, TagF32>(), bits));
#else
  const TagU32 du;
  const VecU32 h = hn::PromoteTo(du, bits);
  const VecU32 sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
  const VecU32 magnitude = hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7FFFu)));
  const VecU32 rebias = hn::Set(du, 112u << 23);
  const VecU32 normal = hn::Add(magnitude, rebias);
  const VecU32 special = hn::Add(normal, rebias);
  // A subnormal m * 2^-24 becomes (2^-14 + m * 2^-24) - 2^-14: exact.
  const VecF32 base = hn::BitCast(TagF32(), hn::Set(du, 113u << 23));
  const VecU32 subnormal = hn::BitCast(
      du, hn::Sub(hn::BitCast(TagF32(), hn::Add(magnitude, hn::Set(du, 113u << 23))), base));
  const hn::RebindToSigned<TagF32> di;
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto is_special = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x0F7FFFFF)));
  const auto is_subnormal = hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, 0x00800000)));
  const VecU32 unsigned_bits =
      hn::IfThenElse(is_special, special, hn::IfThenElse(is_subnormal, subnormal, normal));
  return hn::BitCast(TagF32(), hn::Or(unsigned_bits, sign));
#endif
}

// Loads of sixteen elements, any alignment.
HWY_INLINE VecF32 load_part(const float* p) { return hn::LoadU(TagF32(), p); }
template <class T>
HWY_INLINE VecF32 load_part(const T* p) {
  return widened(hn::LoadU(TagU16(), reinterpret_cast<const uint16_t*>(p)), T());
}
template <class T>
ACLGRAD_SIXTEEN F32x16 load16(const T* p) {
  return each_part([&](size_t i) HWY_ATTR { return load_part(p + i * kPartLanes); });
}

// Copies bytes, at most 2 kMost - 1, without a call of memcpy(), which would take longer than the
// rest. kMost: a power of two.
template <size_t kMost>
HWY_INLINE void copy_few(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  if ((bytes & kMost) != 0) {
    std::memcpy(out, in, kMost);
    out += kMost;
    in += kMost;
  }
  if constexpr (kMost > 1) copy_few<kMost / 2>(out, in, bytes);
}

#if HWY_TARGET == HWY_AVX2
// The first `count` of sixteen numbers of sixteen bits, zeros behind them; nothing else is read.
// Masked loads are of 32 bits here.
HWY_INLINE VecU32 load_pairs_first(const uint16_t* p, size_t count) {
  const TagU32 d;
  const size_t pairs = count / 2;
  const VecU32 whole =
      hn::MaskedLoad(hn::FirstN(d, pairs), d, reinterpret_cast<const uint32_t*>(p));
  if (count % 2 == 0) return whole;
  const auto last = hn::Eq(hn::Iota(d, 0), hn::Set(d, static_cast<uint32_t>(pairs)));
  return hn::IfThenElse(last, hn::Set(d, uint32_t{p[count - 1]}), whole);
}
#endif

// The first `count` elements, 16 at most; the lanes above are +0 and nothing above is read.
template <class T>
ACLGRAD_SIXTEEN F32x16 load_first(const T* p, size_t count) {
#if HWY_TARGET <= HWY_AVX2  // masked loads never touch what they leave out
  if constexpr (std::is_same_v<T, float>) {
    return each_part([&](size_t i) ACLGRAD_INLINED {
      const size_t begin = i * kPartLanes;
      const size_t here = HWY_MIN(count > begin ? count - begin : 0, kPartLanes);
      return hn::MaskedLoad(hn::FirstN(TagF32(), here), TagF32(), p + begin);
    });
  } else {
    const auto* bits = reinterpret_cast<const uint16_t*>(p);
    F32x16 out;
#if HWY_TARGET == HWY_AVX2
    const auto both =
        hn::BitCast(hn::Repartition<uint16_t, TagU32>(), load_pairs_first(bits, count));
    out.part[0] = widened(hn::LowerHalf(both), T());
    out.part[1] = widened(hn::UpperHalf(TagU16(), both), T());
#else
    out.part[0] = widened(hn::MaskedLoad(hn::FirstN(TagU16(), count), TagU16(), bits), T());
#endif
    return out;
  }
#else
  if (count >= kLanes) return load16(p);
  alignas(64) T buffer[kLanes] = {};
  copy_few<sizeof(buffer) / 2>(buffer, p, count * sizeof(T));
  return load16(buffer);
#endif
}

// Stores round to nearest even and write the canonical NaN; kClean: v is none.
HWY_INLINE VecF32 canonical(VecF32 v) {
  const VecF32 nan = hn::BitCast(TagF32(), hn::Set(TagU32(), kCanonicalNanF32));
  return hn::IfThenElse(hn::Eq(v, v), v, nan);
}

template <bool kClean = false>
HWY_INLINE hn::Vec<TagU16> to_bits16(VecF32 v, bfloat16_t) {
  const TagU32 du;
  const VecU32 bits = hn::BitCast(du, kClean ? v : canonical(v));
  const VecU32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const VecU32 rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  // The canonical NaN 0x7FC00000 rounds to 0x7FC0 by itself.
  const hn::RebindToSigned<TagU32> di;
  return hn::DemoteTo(TagU16(), hn::BitCast(di, hn::ShiftRight<16>(rounded)));
}

template <bool kClean = false>
ACLGRAD_ONE_INSTRUCTION hn::Vec<TagU16> to_bits16(VecF32 v, float16_t) {
#if HWY_NATIVE_FMA && (HWY_ARCH_X86 || HWY_ARCH_ARM_A64)
  const hn::Rebind<hwy::float16_t, TagF32> d16;
  return hn::BitCast(TagU16(), hn::DemoteTo(d16, kClean ? v : canonical(v)));
#else
  const TagF32 df;
  const TagU32 du;
  const hn::RebindToSigned<TagU32> di;
  const VecU32 bits = hn::BitCast(du, canonical(v));
  const VecU32 sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  const VecU32 magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const VecU32 odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const VecU32 normal = hn::ShiftRight<13>(
      hn::Sub(hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xFFFu))), hn::Set(du, 0x38000000u)));
  // Below 2^-14: adding 1/2 leaves m * 2^-24, rounded to nearest even, in the low bits.
  const VecF32 half = hn::Set(df, 0.5f);
  const VecU32 subnormal =
      hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(du, half));
  const auto compare = hn::BitCast(di, magnitude);
  const auto is_nan = hn::RebindMask(du, hn::Gt(compare, hn::Set(di, 0x7F800000)));
  const auto is_large = hn::RebindMask(du, hn::Gt(compare, hn::Set(di, 0x477FFFFF)));
  const auto is_small = hn::RebindMask(du, hn::Lt(compare, hn::Set(di, 0x38800000)));
  VecU32 out = hn::IfThenElse(is_small, subnormal, normal);
  out = hn::IfThenElse(is_large, hn::Set(du, 0x7C00u), out);
  out = hn::IfThenElse(is_nan, hn::Set(du, uint32_t{kCanonicalNanF16}), hn::Or(out, sign));
  return hn::DemoteTo(TagU16(), hn::BitCast(di, out));
#endif
}

ACLGRAD_SIXTEEN void store16(const F32x16& v, float* p) {
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) {
    hn::StoreU(canonical(v.part[i]), TagF32(), p + i * kPartLanes);
  }
}
template <class T>
ACLGRAD_SIXTEEN void store16(const F32x16& v, T* p) {
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) {
    hn::StoreU(to_bits16(v.part[i], T{}), TagU16(),
               reinterpret_cast<uint16_t*>(p) + i * kPartLanes);
  }
}

// Scratch of the kernels themselves: no NaN is canonicalised, so reading back gives the same bits.
ACLGRAD_SIXTEEN void store_raw(const F32x16& v, float* p) {
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) hn::StoreU(v.part[i], TagF32(), p + i * kPartLanes);
}

template <class T>
ACLGRAD_SIXTEEN void store_first(const F32x16& v, T* p, size_t count) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    hn::BlendedStore(canonical(v.part[0]), hn::FirstN(TagF32(), count), TagF32(), p);
  } else {
    hn::BlendedStore(to_bits16(v.part[0], T{}), hn::FirstN(TagU16(), count), TagU16(),
                     reinterpret_cast<uint16_t*>(p));
  }
#else
  if (count >= kLanes) return store16(v, p);
  alignas(64) T buffer[kLanes];
  store16(v, buffer);
  copy_few<sizeof(buffer) / 2>(p, buffer, count * sizeof(T));
#endif
}

// Streaming stores bypass the caches; p must be aligned to sixteen elements. A kernel that used
// them ends its block with hwy::FlushStream().
ACLGRAD_SIXTEEN void stream16(const F32x16& v, float* p) {
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) {
    hn::Stream(canonical(v.part[i]), TagF32(), p + i * kPartLanes);
  }
}
template <class T>
ACLGRAD_SIXTEEN void stream16(const F32x16& v, T* p) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SCALAR
  store16(v, p);  // a part is half a register there
#else
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) {
    hn::Stream(to_bits16(v.part[i], T{}), TagU16(),
               reinterpret_cast<uint16_t*>(p) + i * kPartLanes);
  }
#endif
}
template <class T>
HWY_INLINE bool can_stream(const T* p) {
  return reinterpret_cast<uintptr_t>(p) % (kLanes * sizeof(T)) == 0;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// The sixteen lanes in memory: FP32, FP16 or BF16. What is loaded is exact in FP32, what is stored
// is rounded to nearest even.

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
#include "kernels/cpu/few_bytes-inl.h"
#include "kernels/cpu/lane_arithmetic-inl.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/masked_loads.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

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

// Loads of a part's elements, and of sixteen, any alignment.
HWY_INLINE VecF32 load_part(const float* p) { return hn::LoadU(TagF32(), p); }
#if HWY_TARGET == HWY_AVX2
// Loaded twice over by the load itself and put in place by one shuffle, which takes half the time
// of a widening and a shift (Zen 1: 2 and 4 cycles).
HWY_INLINE VecF32 load_part(const bfloat16_t* p) {
  alignas(32) static constexpr uint8_t kUpperHalves[32] = {
      128, 128, 0, 1, 128, 128, 2,  3,  128, 128, 4,  5,  128, 128, 6,  7,
      128, 128, 8, 9, 128, 128, 10, 11, 128, 128, 12, 13, 128, 128, 14, 15};
  const hn::Repartition<uint8_t, TagF32> d8;
  const auto both = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(p));
  return hn::BitCast(TagF32(), hn::TableLookupBytesOr0(both, hn::Load(d8, kUpperHalves)));
}
// Written down, so that g++ neither lets the conversion read memory, which takes half as long again
// (Zen 1: 3 and 2 cycles), nor converts once more what is used of one half.
HWY_INLINE VecF32 load_part(const float16_t* p) {
  const VecU16 bits = hn::LoadU(TagU16(), reinterpret_cast<const uint16_t*>(p));
  VecF32 out;
  asm("vcvtph2ps %1, %0" : "=x"(out.raw) : "x"(bits.raw));
  return out;
}
#else
template <class T>
HWY_INLINE VecF32 load_part(const T* p) {
  return widened(hn::LoadU(TagU16(), reinterpret_cast<const uint16_t*>(p)), T());
}
#endif
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
  if (kMasksLoadsSlowly) return load_few_bytes(p, count * sizeof(uint16_t));
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
#if HWY_TARGET == HWY_AVX2
      if (kMasksLoadsSlowly) {
        return hn::BitCast(TagF32(), load_few_bytes(p + begin, here * sizeof(float)));
      }
#endif
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

// The same without touching a line that holds none of the elements, for rows that come from memory
// one by one: a masked load waits for the lines of what it leaves out, too.
template <class T>
ACLGRAD_SIXTEEN F32x16 load_alone(const T* p, size_t count) {
#if HWY_TARGET <= HWY_AVX2
  F32x16 out;
  if constexpr (std::is_same_v<T, float>) {
    constexpr size_t kHalf = kLanes / 2;
    const size_t above = count > kHalf ? count - kHalf : 0;
    const auto lower = load_few_bytes(p, (count - above) * sizeof(float));
    const auto upper = load_few_bytes(p + kHalf, above * sizeof(float));
#if HWY_TARGET == HWY_AVX2
    out.part[0] = hn::BitCast(TagF32(), lower);
    out.part[1] = hn::BitCast(TagF32(), upper);
#else
    out.part[0] = hn::BitCast(TagF32(), hn::Combine(TagU32(), upper, lower));
#endif
  } else {
    const auto both = hn::BitCast(hn::Full256<uint16_t>(), load_few_bytes(p, count * sizeof(T)));
#if HWY_TARGET == HWY_AVX2
    out.part[0] = widened(hn::LowerHalf(both), T());
    out.part[1] = widened(hn::UpperHalf(TagU16(), both), T());
#else
    out.part[0] = widened(both, T());
#endif
  }
  return out;
#else
  return load_first(p, count);
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

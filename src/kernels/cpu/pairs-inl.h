// SPDX-License-Identifier: Apache-2.0
// Thirty-two sixteen-bit elements as two logical vectors, for kernels that are bound by
// conversions. Which element stands in which lane depends on the dtype alone: BF16 has the even
// elements in `first` and the odd ones in `second`, because then a shift or a mask is all that
// loading and storing take; FP16 has the first sixteen and the second sixteen.

#if defined(ACLGRAD_KERNELS_CPU_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_PAIRS_INL_H_
#undef ACLGRAD_KERNELS_CPU_PAIRS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_PAIRS_INL_H_
#endif

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// Copied member by member: g++ 12 keeps what is copied as a whole in memory as well, in stores that
// nobody reads (half of the time of NsaCompressGrad of a few hundred tokens).
struct Pair {
  HWY_INLINE Pair() {}
  HWY_INLINE Pair(const Pair& other) : first(other.first), second(other.second) {}
  HWY_INLINE Pair& operator=(const Pair& other) {
    first = other.first;
    second = other.second;
    return *this;
  }
  F32x16 first, second;
};

ACLGRAD_SIXTEEN Pair load_pair(const float16_t* p) {
  Pair out;
  out.first = load16(p);
  out.second = load16(p + kLanes);
  return out;
}

#if HWY_TARGET != HWY_SCALAR
// BF16 numbers that 32-bit lanes hold two by two, as FP32 ones, whose upper halves they are: those
// of even places and of odd ones.
template <class V>
HWY_INLINE auto even_numbers(V both) {
  return hn::BitCast(hn::RebindToFloat<hn::DFromV<V>>(), hn::ShiftLeft<16>(both));
}
template <class V>
HWY_INLINE auto odd_numbers(V both) {
  const hn::DFromV<V> d;
  return hn::BitCast(hn::RebindToFloat<decltype(d)>(), hn::And(both, hn::Set(d, 0xFFFF0000u)));
}
#endif

// One register of each half of a pair: the even elements of a load and the odd ones.
struct PairRegisters {
  VecF32 first, second;
};
HWY_INLINE PairRegisters load_pair_registers(const bfloat16_t* p) {
#if HWY_TARGET == HWY_SCALAR
  return {load_part(p), load_part(p + 1)};
#else
  const hn::Repartition<uint16_t, TagU32> d16;
  const VecU32 both = hn::BitCast(TagU32(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  return {even_numbers(both), odd_numbers(both)};
#endif
}

ACLGRAD_SIXTEEN Pair load_pair(const bfloat16_t* p) {
  Pair out;
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) {
    const PairRegisters both = load_pair_registers(p + 2 * i * kPartLanes);
    out.first.part[i] = both.first;
    out.second.part[i] = both.second;
  }
  return out;
}

// False when no lane is a NaN. One sum stands for all lanes of its column: a NaN always shows in
// it, and where it comes from opposite infinities the caller only takes a detour.
template <size_t V>
ACLGRAD_SIXTEEN bool may_have_nan(const Pair (&pairs)[V]) {
  VecF32 sum = hn::Add(pairs[0].first.part[0], pairs[0].second.part[0]);
  for_constants<V>([&](auto v) ACLGRAD_INLINED {
    ACLGRAD_PARTS
    for (size_t i = v == 0 ? 1 : 0; i < kParts; ++i) {
      sum = hn::Add(sum, hn::Add(pairs[v].first.part[i], pairs[v].second.part[i]));
    }
  });
  return !hn::AllTrue(TagF32(), hn::Eq(sum, sum));
}

ACLGRAD_SIXTEEN void make_nans_canonical(Pair& pair) {
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) {
    pair.first.part[i] = canonical(pair.first.part[i]);
    pair.second.part[i] = canonical(pair.second.part[i]);
  }
}

// One register of each half of a pair without NaNs, other than the canonical one, as BF16 (the
// nearest, ties to even) in the order of memory.
#if HWY_TARGET <= HWY_AVX3
// Seven instructions for both halves, and a copy of a register, which takes no port. With an odd
// upper half's lowest bit put into the lower half, that one is above 0x8000 wherever the next
// number is the nearest.
HWY_INLINE auto packed(VecF32 first, VecF32 second, bfloat16_t) {
  const TagU32 du;
  const hn::Repartition<uint16_t, TagU32> d16;
  const VecU32 even = hn::BitCast(du, first), odd = hn::BitCast(du, second);
  const VecU32 upper = hn::OrAnd(hn::ShiftRight<16>(even), odd, hn::Set(du, 0xFFFF0000u));
  const VecU32 lower = hn::OrAnd(hn::ShiftLeft<16>(odd), even, hn::Set(du, 0xFFFFu));
  const auto rest = hn::BitCast(d16, hn::OrAnd(lower, upper, hn::Set(du, 0x10001u)));
  const auto down = hn::BitCast(d16, upper);
  return hn::IfThenElse(hn::Gt(rest, hn::Set(d16, 0x8000u)), hn::Add(down, hn::Set(d16, 1u)), down);
}
#elif HWY_TARGET != HWY_SCALAR
// Bits whose upper half is the nearest BF16.
HWY_INLINE VecU32 rounded_to_upper_half(VecF32 v) {
  const TagU32 du;
  const VecU32 bits = hn::BitCast(du, v);
  const VecU32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  return hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
}
HWY_INLINE auto packed(VecF32 first, VecF32 second, bfloat16_t) {
  const hn::Repartition<uint16_t, TagU32> d16;
  const VecU32 even = hn::ShiftRight<16>(rounded_to_upper_half(first));
  const VecU32 odd = rounded_to_upper_half(second);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4  // one instruction instead of two
  return hn::OddEven(hn::BitCast(d16, odd), hn::BitCast(d16, even));
#else
  return hn::BitCast(d16, hn::OrAnd(even, odd, hn::Set(TagU32(), 0xFFFF0000u)));
#endif
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE auto packed(VecF32 first, VecF32 second, float16_t) {
  const hn::Rebind<hwy::float16_t, TagF32> half;
  return hn::Combine(hn::Repartition<uint16_t, TagU32>(),
                     hn::BitCast(TagU16(), hn::DemoteTo(half, second)),
                     hn::BitCast(TagU16(), hn::DemoteTo(half, first)));
}
#endif

// Stores thirty-two elements, none of which is a NaN other than the canonical one; `streaming`:
// past the caches, p must be aligned to thirty-two elements then.
ACLGRAD_SIXTEEN void store_clean_pair(const Pair& pair, bfloat16_t* p, bool streaming) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(streaming);
  for (size_t i = 0; i < kLanes; ++i) {
    p[2 * i] = from_float<bfloat16_t>(hn::GetLane(pair.first.part[i]));
    p[2 * i + 1] = from_float<bfloat16_t>(hn::GetLane(pair.second.part[i]));
  }
#else
  const hn::Repartition<uint16_t, TagU32> d16;
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) {
    auto* at = reinterpret_cast<uint16_t*>(p) + 2 * i * kPartLanes;
    const auto both = packed(pair.first.part[i], pair.second.part[i], bfloat16_t());
    if (streaming) {
      hn::Stream(both, d16, at);
    } else {
      hn::StoreU(both, d16, at);
    }
  }
#endif
}

ACLGRAD_SIXTEEN void store_clean_pair(const Pair& pair, float16_t* p, bool streaming) {
#if HWY_NATIVE_FMA && (HWY_ARCH_X86 || HWY_ARCH_ARM_A64)
  const hn::Rebind<hwy::float16_t, TagF32> d16;
  const auto put = [&](VecF32 v, float16_t* at) HWY_ATTR {
    auto* bits = reinterpret_cast<uint16_t*>(at);
    const auto half = hn::BitCast(TagU16(), hn::DemoteTo(d16, v));
    if (streaming) {
      hn::Stream(half, TagU16(), bits);
    } else {
      hn::StoreU(half, TagU16(), bits);
    }
  };
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) put(pair.first.part[i], p + i * kPartLanes);
  ACLGRAD_PARTS
  for (size_t i = 0; i < kParts; ++i) put(pair.second.part[i], p + kLanes + i * kPartLanes);
#else
  static_cast<void>(streaming);
  store16(pair.first, p);
  store16(pair.second, p + kLanes);
#endif
}

// The same for V pairs of any elements: as store16 would store each of them.
template <size_t V, class T>
HWY_INLINE void store_pairs(Pair (&pairs)[V], T* p, bool streaming) {
  if (HWY_UNLIKELY(may_have_nan(pairs))) {
    for_constants<V>([&](auto v) ACLGRAD_INLINED { make_nans_canonical(pairs[v]); });
  }
  for_constants<V>([&](auto v)
                       ACLGRAD_INLINED { store_clean_pair(pairs[v], p + v * kPair, streaming); });
}

template <class T>
HWY_INLINE void store_pair(const Pair& pair, T* p, bool streaming) {
  Pair pairs[] = {pair};
  store_pairs(pairs, p, streaming);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

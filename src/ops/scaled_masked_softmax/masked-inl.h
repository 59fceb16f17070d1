// SPDX-License-Identifier: Apache-2.0
// Thirty-two elements of a row in registers: FP32 as pairs, too; -Inf, whose exp() is +0, where the
// mask says so or where another pair has the element; the largest of them.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MASKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MASKED_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MASKED_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MASKED_INL_H_
#endif

#include <limits>
#include <type_traits>

#include "kernels/cpu/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

using aclgrad::HWY_NAMESPACE::load_pair;
using aclgrad::HWY_NAMESPACE::store_clean_pair;

// FP32 in pairs, too, in the order of FP16.
HWY_INLINE Pair load_pair(const float* p) {
  Pair out;
  out.first = load16(p);
  out.second = load16(p + kLanes);
  return out;
}

HWY_INLINE void store_clean_pair(const Pair& pair, float* p, bool streaming) {
  for (size_t i = 0; i < kParts; ++i) {
    if (streaming) {
      hn::Stream(pair.first.part[i], TagF32(), p + i * kPartLanes);
      hn::Stream(pair.second.part[i], TagF32(), p + kLanes + i * kPartLanes);
    } else {
      hn::StoreU(pair.first.part[i], TagF32(), p + i * kPartLanes);
      hn::StoreU(pair.second.part[i], TagF32(), p + kLanes + i * kPartLanes);
    }
  }
}

// `instead` where the mask's byte is not 0.
HWY_INLINE F32x16 where_masked(const F32x16& v, const uint8_t* mask, float instead) {
  const TagU32 du;
  const hn::Rebind<uint8_t, TagF32> d8;
  const VecF32 nothing = hn::Set(TagF32(), instead);
  return each_part([&](size_t i) HWY_ATTR {
    const VecU32 bytes = hn::PromoteTo(du, hn::LoadU(d8, mask + i * kPartLanes));
    const auto keep = hn::RebindMask(TagF32(), hn::Eq(bytes, hn::Zero(du)));
    return hn::IfThenElse(keep, v.part[i], nothing);
  });
}
// -Inf, whose exp() is +0, where the mask's byte is not 0.
HWY_INLINE F32x16 unless(const F32x16& v, const uint8_t* mask) {
  return where_masked(v, mask, -std::numeric_limits<float>::infinity());
}
template <class T>
HWY_INLINE Pair unless(const Pair& pair, const uint8_t* mask, const T*) {
  Pair out;
  out.first = unless(pair.first, mask);
  out.second = unless(pair.second, mask + kLanes);
  return out;
}
// The even elements stand in the first vector, the odd ones in the second.
HWY_INLINE Pair unless(const Pair& pair, const uint8_t* mask, const bfloat16_t*) {
  const TagF32 d;
  const TagU32 du;
  const VecF32 nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  Pair out;
  for (size_t i = 0; i < kParts; ++i) {
    const uint8_t* at = mask + 2 * i * kPartLanes;
#if HWY_TARGET == HWY_SCALAR
    const VecU32 both = hn::Set(du, at[0] | uint32_t{at[1]} << 8);
#else
    const hn::Repartition<uint8_t, TagU16> d8;
    const VecU32 both = hn::PromoteTo(du, hn::BitCast(TagU16(), hn::LoadU(d8, at)));
#endif
    const auto even = hn::Eq(hn::And(both, hn::Set(du, 0xFFu)), hn::Zero(du));
    const auto odd = hn::Eq(hn::And(both, hn::Set(du, 0xFF00u)), hn::Zero(du));
    out.first.part[i] = hn::IfThenElse(hn::RebindMask(d, even), pair.first.part[i], nothing);
    out.second.part[i] = hn::IfThenElse(hn::RebindMask(d, odd), pair.second.part[i], nothing);
  }
  return out;
}

HWY_INLINE F32x16 max16(const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Max(a.part[i], b.part[i]); });
}
HWY_INLINE VecF32 max_of_lanes(const F32x16& v) {
  VecF32 largest = v.part[0];
  for (size_t i = 1; i < kParts; ++i) largest = hn::Max(largest, v.part[i]);
  return hn::MaxOfLanes(TagF32(), largest);
}

// Lanes outside [begin, end) become -Inf.
HWY_INLINE F32x16 only(const F32x16& v, size_t begin, size_t end) {
  const TagF32 d;
  const VecF32 nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  return each_part([&](size_t i) HWY_ATTR {
    const auto below = [&](size_t lane) HWY_ATTR {
      const size_t here = i * kPartLanes;
      return hn::FirstN(d, lane > here ? HWY_MIN(lane - here, kPartLanes) : 0);
    };
    const VecF32 kept = hn::IfThenElse(below(end), v.part[i], nothing);
    return hn::IfThenElse(below(begin), nothing, kept);
  });
}
// The first `count` of thirty-two elements become -Inf.
template <class T>
HWY_INLINE Pair without_first(const Pair& pair, size_t count, const T*) {
  constexpr bool kInterleaved = std::is_same_v<T, bfloat16_t>;
  Pair out;
  out.first = only(pair.first, kInterleaved ? (count + 1) / 2 : HWY_MIN(count, kLanes), kLanes);
  const size_t beyond = count > kLanes ? count - kLanes : 0;
  out.second = only(pair.second, kInterleaved ? count / 2 : beyond, kLanes);
  return out;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// The two visits to a row: its sum, and dx from it.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_VISITS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_VISITS_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_VISITS_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_VISITS_INL_H_
#endif

#include <hwy/cache_control.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/scaled_masked_softmax_backward/rows.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// +0 where the mask's byte is not 0, whatever stands there.
HWY_INLINE F32x16 masked(const F32x16& v, const uint8_t* mask) {
  const TagU32 du;
  const hn::Rebind<uint8_t, TagF32> d8;
  return each_part([&](size_t i) HWY_ATTR {
    const VecU32 bytes = hn::PromoteTo(du, hn::LoadU(d8, mask + i * kPartLanes));
    const auto keep = hn::RebindMask(TagF32(), hn::Eq(bytes, hn::Zero(du)));
    return hn::IfThenElseZero(keep, v.part[i]);
  });
}

// The lanes below `count` from a, the others from b.
HWY_INLINE F32x16 first_from(size_t count, const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) ACLGRAD_INLINED {
    const size_t begin = i * kPartLanes;
    const size_t taken = count > begin ? count - begin : 0;
    return hn::IfThenElse(hn::FirstN(TagF32(), HWY_MIN(taken, kPartLanes)), a.part[i], b.part[i]);
  });
}

// The sum of a row of more than 32 elements. kScaled: on_dy is not 1.
template <bool kScaled, class T>
float row_sum(const T* dy_row, const T* y_row, size_t cols, float on_dy) {
  const F32x16 factor = set16(on_dy);
  double sums[1];
  row_sums<1>(cols, sums, [&](size_t i, size_t count, F32x16(&acc)[1]) ACLGRAD_INLINED {
    const size_t at = count == kLanes ? i * kLanes : cols - kLanes;
    const F32x16 dy = load16(dy_row + at);
    const F32x16 sum = fma(kScaled ? mul(dy, factor) : dy, load16(y_row + at), acc[0]);
    acc[0] = count == kLanes ? sum : first_from(kLanes - count, acc[0], sum);
  });
  return static_cast<float>(sums[0]);
}

// What the second visit needs: dx = on_dx * (dy * on_dy * y - y * sum).
struct Terms {
  F32x16 on_dy, on_dx, minus_sum;
};
HWY_INLINE Terms terms_of(const Factors& factors, float sum) {
  return {set16(factors.on_dy), set16(factors.on_dx), set16(-sum)};
}
HWY_INLINE F32x16 dx16(const F32x16& dy, const F32x16& y, const Terms& terms) {
  const F32x16 product = mul(y, terms.minus_sum);
  return mul(fma(mul(dy, terms.on_dy), y, product), terms.on_dx);
}
template <class T>
HWY_INLINE F32x16 dx16(const Row<T>& row, size_t at, const Terms& terms) {
  return masked(dx16(load16(row.dy + at), load16(row.y + at), terms), row.mask + at);
}

template <class T>
HWY_INLINE F32x16 clean16(const Row<T>& row, size_t at, const Terms& terms) {
  const F32x16 y = load16(row.y + at);
  const F32x16 dx = fma(load16(row.dy + at), y, mul(y, terms.minus_sum));
  return masked(mul(dx, terms.on_dx), row.mask + at);
}

// Elements without a NaN, past the caches if told so.
HWY_INLINE void store_clean16(const F32x16& v, float* to, bool streaming) {
  if (!streaming) return store_raw(v, to);
  const TagF32 d;
  for (size_t i = 0; i < kParts; ++i) hn::Stream(v.part[i], d, to + i * kPartLanes);
}
template <class T>
HWY_INLINE void store_clean16(const F32x16& v, T* to, bool streaming) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SCALAR
  streaming ? stream16(v, to) : store16(v, to);
#else
  auto* bits = reinterpret_cast<uint16_t*>(to);
  for (size_t i = 0; i < kParts; ++i) {
    const auto part = to_bits16<true>(v.part[i], T());
    if (streaming) {
      hn::Stream(part, TagU16(), bits + i * kPartLanes);
    } else {
      hn::StoreU(part, TagU16(), bits + i * kPartLanes);
    }
  }
#endif
}

// The lines of dy and y that a later row has at these elements.
template <class T>
HWY_INLINE void prefetch_ahead(const Row<T>& row, size_t at) {
  hwy::Prefetch(row.dy + at + row.dy_ahead);
  hwy::Prefetch(row.y + at + row.y_ahead);
}

template <bool kStream, class D, class V, class L>
HWY_INLINE void put(V v, D d, L* to) {
  if constexpr (kStream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

// Thirty-two elements of a clean row (see Job): no NaN to look for. kStream: `to` begins a line.
template <bool kStream>
HWY_INLINE void write32(const Row<float>& row, size_t at, const Terms& terms, float* to) {
  for (size_t half = 0; half < 2 * kLanes; half += kLanes) {
    const F32x16 dx = clean16(row, at + half, terms);
    for (size_t i = 0; i < kParts; ++i) {
      put<kStream>(dx.part[i], TagF32(), to + half + i * kPartLanes);
    }
  }
}
template <bool kStream>
HWY_INLINE void write32(const Row<float16_t>& row, size_t at, const Terms& terms, float16_t* to) {
  for (size_t half = 0; half < 2 * kLanes; half += kLanes) {
    const F32x16 dx = clean16(row, at + half, terms);
#if HWY_NATIVE_FMA && (HWY_ARCH_X86 || HWY_ARCH_ARM_A64)  // F16C and NEON convert exactly
    const hn::Rebind<hwy::float16_t, TagF32> d16;
    for (size_t i = 0; i < kParts; ++i) {
      put<kStream>(hn::BitCast(TagU16(), hn::DemoteTo(d16, dx.part[i])), TagU16(),
                   reinterpret_cast<uint16_t*>(to) + half + i * kPartLanes);
    }
#else
    kStream ? stream16(dx, to + half) : store16(dx, to + half);
#endif
  }
}
// A BF16 number is the upper half of an FP32 one: elements 2 i and 2 i + 1 are taken from lane i of
// a vector of pairs by a shift and a mask, and put back so, without a conversion between widths.
template <bool kStream>
HWY_INLINE void write32(const Row<bfloat16_t>& row, size_t at, const Terms& terms, bfloat16_t* to) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t half = 0; half < 2 * kLanes; half += kLanes) {
    store16(clean16(row, at + half, terms), to + half);
  }
#else
  const TagU32 du;
  const hn::Repartition<uint16_t, TagU32> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const auto dx_bits = [&](size_t i, VecF32 dy, VecF32 y) HWY_ATTR {
    const VecF32 product = hn::Mul(y, terms.minus_sum.part[i]);
    const VecF32 dx = fused(dy, y, product);
    const VecU32 bits = hn::BitCast(du, hn::Mul(dx, terms.on_dx.part[i]));
    const VecU32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd);  // rounded to nearest even
  };
  for (size_t i = 0; i < kParts; ++i) {
    const size_t begin = 2 * i * kPartLanes;
    const VecU32 dy = hn::LoadU(du, reinterpret_cast<const uint32_t*>(row.dy + at + begin));
    const VecU32 y = hn::LoadU(du, reinterpret_cast<const uint32_t*>(row.y + at + begin));
    const VecU32 even = dx_bits(i, even_numbers(dy), even_numbers(y));
    const VecU32 odd = dx_bits(i, odd_numbers(dy), odd_numbers(y));
    const VecU32 both = hn::OrAnd(hn::ShiftRight<16>(even), odd, hn::Set(du, 0xFFFF0000u));
    const auto mask = hn::PromoteTo(d16, hn::LoadU(d8, row.mask + at + begin));
    const auto kept = hn::IfThenElseZero(hn::Eq(mask, hn::Zero(d16)), hn::BitCast(d16, both));
    put<kStream>(kept, d16, reinterpret_cast<uint16_t*>(to) + begin);
  }
#endif
}

// The second visit to a row of more than 32 elements, through the caches. Row and terms are copies,
// which stores to dx cannot change; inline, or loads of the fresh row, several numbers at a time,
// would wait until its stores have left for L1, behind the streaming stores before them. dx may be
// dy or y: the last vector overlaps the one before it, so it is computed before that is written.
// `clean`: dx holds no NaN.
template <class T>
HWY_INLINE void write_dx(Row<T> row, size_t cols, Terms terms, bool clean, T* to) {
  const F32x16 last = dx16(row, cols - kLanes, terms);
  size_t at = 0;
  if (clean) {
    for (; at + 2 * kLanes <= cols; at += 2 * kLanes) {
      prefetch_ahead(row, at);
      if constexpr (sizeof(T) == 4) prefetch_ahead(row, at + kLanes);
      write32<false>(row, at, terms, to + at);
    }
  }
  for (; at + kLanes <= cols; at += kLanes) store16(dx16(row, at, terms), to + at);
  if (at != cols) store16(last, to + cols - kLanes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

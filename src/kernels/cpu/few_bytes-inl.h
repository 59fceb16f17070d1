// SPDX-License-Identifier: Apache-2.0
// The first bytes of 32 without a masked load: two loads of as many bytes that overlap, one of
// which is shifted.

#if defined(ACLGRAD_KERNELS_CPU_FEW_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_FEW_BYTES_INL_H_
#undef ACLGRAD_KERNELS_CPU_FEW_BYTES_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_FEW_BYTES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/lane_arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX2
using Bytes16 = hn::Vec<hn::Full128<uint8_t>>;

// The bytes of `v` so many places further up, -16 to 16; zeros come in.
HWY_INLINE Bytes16 moved_up(Bytes16 v, int64_t places) {
  alignas(16) static constexpr uint8_t kPlaces[48] = {
      128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
      0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,
      128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128};
  return hn::TableLookupBytesOr0(v, hn::LoadU(hn::Full128<uint8_t>(), kPlaces + 16 - places));
}

// The first `count` bytes of sixteen, kBytes to twice as many.
template <size_t kBytes>
HWY_INLINE Bytes16 load_twice(const uint8_t* p, size_t count) {
  const hn::CappedTag<uint8_t, kBytes> d;
  const Bytes16 first{hn::LoadU(d, p).raw};  // zeros behind them
  const Bytes16 last{hn::LoadU(d, p + count - kBytes).raw};
  return hn::Or(first, moved_up(last, static_cast<int64_t>(count - kBytes)));
}

// The first `count` bytes of 32, an even number of them, zeros behind; nothing else is read.
HWY_INLINE hn::Vec<hn::Full256<uint32_t>> load_few_bytes(const void* from, size_t count) {
  const hn::Full128<uint8_t> d;
  const auto* const p = static_cast<const uint8_t*>(from);
  Bytes16 lower = hn::Zero(d), upper = hn::Zero(d);
  if (count >= 16) {
    lower = hn::LoadU(d, p);
    upper = moved_up(hn::LoadU(d, p + count - 16), static_cast<int64_t>(count) - 32);
  } else if (count >= 8) {
    lower = load_twice<8>(p, count);
  } else if (count >= 4) {
    lower = load_twice<4>(p, count);
  } else if (count >= 2) {
    lower = load_twice<2>(p, count);
  }
  return hn::BitCast(hn::Full256<uint32_t>(), hn::Combine(hn::Full256<uint8_t>(), upper, lower));
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

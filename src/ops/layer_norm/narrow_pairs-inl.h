// SPDX-License-Identifier: Apache-2.0
// Numbers of sixteen bits as FP32, as many of them as an FP64 register holds.

#if defined(ACLGRAD_OPS_LAYER_NORM_NARROW_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_NARROW_PAIRS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_NARROW_PAIRS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_NARROW_PAIRS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/wide_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Two vectors of sixteen bits go to FP64 register by register on the way from memory, so that no
// half of a vector has to be moved down first (bf16 32768x768 on two cores of Zen 4: 2.98 -> 2.82
// ms). Not below AVX2, whose registers would take two of them.
#if HWY_TARGET <= HWY_AVX2
using Narrow = hn::Rebind<float, TagF64>;
using Narrow16 = hn::Rebind<uint16_t, Narrow>;
struct NarrowPair {
  hn::Vec<Narrow> first, second;
};

// What stands from place `at` on in the two vectors that load_pair() makes; load(d, i) gives the
// bits of elements i and behind it.
template <class Load>
HWY_INLINE NarrowPair narrow_pair(bfloat16_t, size_t at, Load&& load) {
  const hn::Repartition<uint32_t, Narrow> du;
  const auto both = hn::BitCast(du, load(hn::Repartition<uint16_t, Narrow>(), 2 * at));
  return {even_numbers(both), odd_numbers(both)};
}
template <class Load>
HWY_INLINE NarrowPair narrow_pair(float16_t, size_t at, Load&& load) {
  const hn::Rebind<hwy::float16_t, Narrow> half;
  return {hn::PromoteTo(Narrow(), hn::BitCast(half, load(Narrow16(), at))),
          hn::PromoteTo(Narrow(), hn::BitCast(half, load(Narrow16(), kLanes + at)))};
}
template <class T>
HWY_INLINE NarrowPair load_narrow_pair(const T* x, size_t at) {
  const auto* bits = reinterpret_cast<const uint16_t*>(x);
  return narrow_pair(T(), at,
                     [&](auto d, size_t i) ACLGRAD_INLINED { return hn::LoadU(d, bits + i); });
}
#if HWY_TARGET <= HWY_AVX3
// The same of `count` numbers, two vectors at most; the others are +0, and nothing of them is read.
template <class T>
HWY_INLINE NarrowPair load_narrow_pair_first(const T* x, size_t at, size_t count) {
  const auto* bits = reinterpret_cast<const uint16_t*>(x);
  return narrow_pair(T(), at, [&](auto d, size_t i) ACLGRAD_INLINED {
    return hn::MaskedLoad(hn::FirstN(d, count > i ? count - i : 0), d, bits + i);
  });
}
#endif
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

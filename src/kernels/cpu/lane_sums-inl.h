// SPDX-License-Identifier: Apache-2.0
// Sixteen vectors summed over their lanes at once: the sums come out as one vector, and cost a few
// shuffles each.

#if defined(ACLGRAD_KERNELS_CPU_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_LANE_SUMS_INL_H_
#undef ACLGRAD_KERNELS_CPU_LANE_SUMS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_LANE_SUMS_INL_H_
#endif

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// Lane k of the result is the sum of the sixteen floats from p + 16 k, joined in pairs: lanes i and
// i + 8, then i + 4, i + 2, i + 1. Vectors k and k + 8 (then + 4, + 2, + 1) share a register from
// the level on at which both have shrunk to half of it.
#if HWY_TARGET == HWY_SCALAR
ACLGRAD_SIXTEEN F32x16 lane_sums(const float* p) {
  alignas(64) float sums[kLanes];
  for (size_t k = 0; k < kLanes; ++k) {
    float v[kLanes];
    std::memcpy(v, p + k * kLanes, sizeof(v));
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) v[i] += v[i + half];
    }
    sums[k] = v[0];
  }
  return load16(sums);
}
#else
// Two registers whose halves, 128-bit blocks, pairs or lanes are to be added: the sums of `a` stand
// in the even places, those of `b` in the odd ones (halves: a below b).
HWY_INLINE VecF32 join_halves(VecF32 a, VecF32 b) {
  const TagF32 d;
  return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
}
HWY_INLINE VecF32 join_blocks(VecF32 a, VecF32 b) {
  return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a),
                 hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
}
HWY_INLINE VecF32 join_pairs(VecF32 a, VecF32 b) {
  const TagF32 d;
  const hn::Repartition<double, TagF32> pairs;
  const auto a2 = hn::BitCast(pairs, a);
  const auto b2 = hn::BitCast(pairs, b);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, a2, b2)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, a2, b2)));
}
HWY_INLINE VecF32 join_lanes(VecF32 a, VecF32 b) {
  return hn::Add(hn::OddEven(hn::Shuffle2301(b), a), hn::OddEven(b, hn::Shuffle2301(a)));
}

// One register of the sums over the lanes of as many registers as it has lanes.
template <size_t kRegister>
HWY_INLINE VecF32 joined_lanes(VecF32 (&v)[kRegister]) {
  if constexpr (kRegister == 16) {
    for_constants<8>([&](auto k) ACLGRAD_INLINED { v[k] = join_halves(v[k], v[k + 8]); });
    for_constants<4>([&](auto k) ACLGRAD_INLINED { v[k] = join_blocks(v[k], v[k + 4]); });
  } else if constexpr (kRegister == 8) {
    for_constants<4>([&](auto k) ACLGRAD_INLINED { v[k] = join_halves(v[k], v[k + 4]); });
  }
  for_constants<2>([&](auto k) ACLGRAD_INLINED { v[k] = join_pairs(v[k], v[k + 2]); });
  return join_lanes(v[0], v[1]);
}

// Those of kPartLanes vectors, load(0) and so on.
template <size_t kRegister, class Load>
HWY_INLINE VecF32 register_of_sums(Load&& load) {
  VecF32 v[kRegister];
  for_constants<kRegister>([&](auto k) ACLGRAD_INLINED {
    const F32x16 all = load(k);
    if constexpr (kRegister == 16) {
      v[k] = all.part[0];
    } else if constexpr (kRegister == 8) {
      v[k] = hn::Add(all.part[0], all.part[1]);
    } else {
      v[k] = hn::Add(hn::Add(all.part[0], all.part[2]), hn::Add(all.part[1], all.part[3]));
    }
  });
  return joined_lanes(v);
}

// The same of vectors that need not be in memory: load(k) is vector k, asked for in this order.
template <class Load>
HWY_INLINE F32x16 lane_sums_of(Load&& load) {
  F32x16 out;
  for_constants<kParts>([&](auto i) ACLGRAD_INLINED {
    out.part[i] = register_of_sums<kPartLanes>(
        [&](auto k) ACLGRAD_INLINED { return load(i * kPartLanes + k); });
  });
  return out;
}
HWY_INLINE F32x16 lane_sums(const float* p) {
  return lane_sums_of([&](size_t k) ACLGRAD_INLINED { return load16(p + k * kLanes); });
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Sixteen short rows turned into columns, a lane for each row: what would be joined over the lanes
// of each row is then done in whole vectors. Only where a vector is one register: the shuffles of
// smaller ones cost more than they save.

#if defined(ACLGRAD_KERNELS_CPU_TURNED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_TURNED_ROWS_INL_H_
#undef ACLGRAD_KERNELS_CPU_TURNED_ROWS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_TURNED_ROWS_INL_H_
#endif

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// Columns that are turned together.
inline constexpr size_t kEight = 8;

#if HWY_TARGET <= HWY_AVX3
inline constexpr bool kTurnsRows = true;

using HalfF32 = hn::Half<TagF32>;

// Eight columns of sixteen rows to out[column][row]; load(row) has those of one row. Numbers are
// only moved, so they may be any of 32 bits.
template <class Load>
HWY_INLINE void turn_eight(Load&& load, float* out) {
  const TagF32 d;
  const hn::Repartition<double, TagF32> pairs;
  VecF32 v[kEight];  // row k below row k + 8; then, of four rows, columns i and i + 4
  for_constants<kEight>([&](auto k) HWY_ATTR { v[k] = hn::Combine(d, load(k + 8), load(k)); });
  for_constants<2>([&](auto fours) HWY_ATTR {
    constexpr size_t kAt = 4 * decltype(fours)::value;
    const auto low = [&](size_t k) HWY_ATTR {
      return hn::BitCast(pairs, hn::InterleaveLower(d, v[kAt + k], v[kAt + k + 1]));
    };
    const auto high = [&](size_t k) HWY_ATTR {
      return hn::BitCast(pairs, hn::InterleaveUpper(d, v[kAt + k], v[kAt + k + 1]));
    };
    const auto low0 = low(0), low2 = low(2), high0 = high(0), high2 = high(2);
    v[kAt] = hn::BitCast(d, hn::InterleaveLower(pairs, low0, low2));
    v[kAt + 1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low0, low2));
    v[kAt + 2] = hn::BitCast(d, hn::InterleaveLower(pairs, high0, high2));
    v[kAt + 3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high0, high2));
  });
  for_constants<4>([&](auto i) HWY_ATTR {
    const VecF32 a = v[i], b = v[i + 4];
    float* to = out + i * kLanes;
    hn::Store(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a), d, to);
    hn::Store(hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)), d, to + 4 * kLanes);
  });
}

// The sum over columns in the order in which lane_sums() joins lanes: i and i + 8 are added
// already.
template <size_t N>
HWY_INLINE F32x16 joined_columns(F32x16 (&sum)[N]) {
  for_constants<4>([&](auto i) HWY_ATTR { sum[i] = add(sum[i], sum[i + 4]); });
  return add(add(sum[0], sum[2]), add(sum[1], sum[3]));
}
#else
inline constexpr bool kTurnsRows = false;
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

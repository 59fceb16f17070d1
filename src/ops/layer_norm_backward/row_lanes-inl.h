// SPDX-License-Identifier: Apache-2.0
// The lanes of the first visit's sums, of several rows of up to kChainColumns columns at once, and
// the means that they give.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_LANES_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_LANES_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_LANES_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm_backward/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Eight lanes to each place.
HWY_INLINE void store_halves(const F32x16& v, float* lower, float* upper) {
#if HWY_TARGET <= HWY_AVX3
  const hn::Half<TagF32> half;
  hn::StoreU(hn::LowerHalf(half, v.part[0]), half, lower);
  hn::StoreU(hn::UpperHalf(half, v.part[0]), half, upper);
#else
  for (size_t i = 0; i < kParts / 2; ++i) {
    hn::StoreU(v.part[i], TagF32(), lower + i * kPartLanes);
    hn::StoreU(v.part[kParts / 2 + i], TagF32(), upper + i * kPartLanes);
  }
#endif
}

// The sums of up to eight rows lane by lane, whose lanes are joined at once.
struct RowLanes {
  static constexpr size_t kMost = kLanes / 2;

  HWY_INLINE void put(size_t row, const F32x16 (&sums)[2]) {
    store_raw(sums[0], lanes + row * kLanes);
    store_raw(sums[1], lanes + (kMost + row) * kLanes);
  }
  // mean_g and mean_gx of rows [first, first + count); nobody reads those behind them.
  template <class T>
  HWY_INLINE void join(Rows<T>& rows, size_t first, size_t count, double reciprocal_cols) {
    // A row's sums fill the other places, too: of zeros g++ makes `rep stos`.
    const F32x16 sums[2] = {load16(lanes), load16(lanes + kMost * kLanes)};
    for (size_t row = count; row < kMost; ++row) put(row, sums);
    alignas(64) double totals[kLanes];
    set_to(totals, lane_sums(lanes));
    // In vectors by hand: of loops g++ makes scalar instructions in some rows' kernels.
    const TagF64 d;
    const hn::Rebind<float, TagF64> narrow;
    const VecF64 reciprocal = hn::Set(d, reciprocal_cols);
    for (size_t i = 0; i < kMost; i += kWideLanes) {
      // 0 makes +0 of -0: a chain that begins with a term, or with a product that underflows.
      const VecF64 g = hn::Add(hn::Load(d, totals + i), hn::Zero(d));
      const VecF64 gx = hn::Add(hn::Load(d, totals + kMost + i), hn::Zero(d));
      const VecF64 rstd = hn::PromoteTo(d, hn::LoadU(narrow, rows.rstd + first + i));
      hn::Store(hn::Mul(g, reciprocal), d, totals + i);
      hn::Store(hn::Mul(hn::Mul(gx, rstd), reciprocal), d, totals + kMost + i);  // mean_gx_of()
    }
    store_halves(round16(totals), rows.mean_g + first, rows.mean_gx + first);
  }

  alignas(64) float lanes[kLanes * kLanes];
};

// mean_g and mean_gx of every row from its sums lane by lane, which sum_one(r, sums) finds. Behind
// row r between(r) is called.
template <class T, class SumOne, class Between>
HWY_INLINE void join_rows(Rows<T>& rows, double reciprocal_cols, SumOne&& sum_one,
                          Between&& between) {
  RowLanes lanes;
  for (size_t first = 0; first < rows.count; first += RowLanes::kMost) {
    const size_t count = std::min(RowLanes::kMost, rows.count - first);
    for (size_t i = 0; i < count; ++i) {
      F32x16 sums[2];
      sum_one(first + i, sums);
      lanes.put(i, sums);
      between(first + i);
    }
    lanes.join(rows, first, count, reciprocal_cols);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

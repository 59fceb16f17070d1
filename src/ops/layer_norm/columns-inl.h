// SPDX-License-Identifier: Apache-2.0
// Sixteen short FP32 rows turned into columns: a lane for each row. The moments of all sixteen are
// then sums of whole vectors, in the order in which block_moments-inl.h joins the lanes of each.
// Only where a vector is one register: the shuffles of smaller ones cost more than they save.

#if defined(ACLGRAD_OPS_LAYER_NORM_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_COLUMNS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_COLUMNS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/turned_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows of more columns gain nothing: transposing them takes what joining their lanes would.
inline constexpr size_t kMostColumns = kLanes;

#if HWY_TARGET <= HWY_AVX3
// Columns [0, n) of sixteen rows, `stride` elements apart, to out[column][row]; in eights, so up to
// seven more are read and written.
HWY_INLINE void load_columns(const float* first, int64_t stride, size_t n, float* out) {
  for (size_t col = 0; col < n; col += kEight) {
    turn_eight(
        [&](size_t row) HWY_ATTR {
          return hn::LoadU(HalfF32(), first + col + static_cast<int64_t>(row) * stride);
        },
        out + col * kLanes);
  }
}

// The FP64 sums of 8 or 16 columns. The lanes of such a row get a +0 each from a second vector that
// it does not have, which makes +0 of a sum of nothing but -0.
template <size_t kColumns>
HWY_INLINE void sum_columns(const float* columns, double* sums) {
  const TagF64 d;
  const hn::Rebind<float, TagF64> narrow;
  for (size_t row = 0; row < kLanes; row += kWideLanes) {
    const auto column = [&](size_t c) HWY_ATTR {
      return hn::PromoteTo(d, hn::Load(narrow, columns + c * kLanes + row));
    };
    VecF64 sum[kEight];
    for_constants<kEight>([&](auto i) HWY_ATTR {
      sum[i] = column(i);
      if constexpr (kColumns > kEight) sum[i] = hn::Add(sum[i], column(i + kEight));
    });
    for_constants<4>([&](auto i) HWY_ATTR { sum[i] = hn::Add(sum[i], sum[i + 4]); });
    sum[0] = hn::Add(hn::Add(sum[0], sum[2]), hn::Add(sum[1], sum[3]));
    hn::Store(hn::Add(sum[0], hn::Zero(d)), d, sums + row);
  }
}

// The squares of 8 or 16 columns around the rows' `centres`.
template <size_t kColumns>
HWY_INLINE F32x16 square_columns(const float* columns, const F32x16& centres) {
  F32x16 sum[kColumns];
  for_constants<kColumns>([&](auto i) HWY_ATTR {
    const F32x16 apart = sub(load16(columns + i * kLanes), centres);
    sum[i] = mul(apart, apart);
  });
  if constexpr (kColumns > kEight) {
    for_constants<kEight>([&](auto i) HWY_ATTR { sum[i] = add(sum[i], sum[i + kEight]); });
  }
  return joined_columns(sum);
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

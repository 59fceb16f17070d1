// SPDX-License-Identifier: Apache-2.0
// Many equal groups of a single column whose elements all follow each other: the sums that every
// group would get by itself, without what it costs to go to each ([1000000, 17, 1] in FP32 on one
// core of Zen 4: 21 ns a group, 4 ns here).

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_COLUMNS_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_COLUMNS_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_COLUMNS_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Groups that are done together.
inline constexpr int64_t kTogether = static_cast<int64_t>(kLanes);

// Sixteen groups of at most kChain rows: group g in lane g, all adding their rows in order.
template <class T>
HWY_INLINE F32x16 sum_few_rows(const T* from, int64_t rows) {
  alignas(64) float values[kChain * kLanes];
  for (int64_t at = 0; at < rows * kTogether; at += kTogether) {
    store_raw(load16(from + at), values + at);
  }
  const hn::RebindToSigned<TagF32> di;
  const auto stride = static_cast<int32_t>(rows);
  F32x16 sum = zero16();
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < kParts; ++i) {
      const auto lane = hn::Iota(di, static_cast<int32_t>(i * kPartLanes));
      const auto index = hn::Mul(lane, hn::Set(di, stride));
      sum.part[i] = hn::Add(sum.part[i], hn::GatherIndex(TagF32(), values + row, index));
    }
  }
  return sum;
}

// The total of one group of more rows than that, and no more than kColumnRows.
template <class T>
HWY_INLINE double sum_vectors(const T* from, int64_t rows) {
  const int64_t whole = rows / kTogether * kTogether;
  F32x16 sum = zero16();
  for (int64_t at = 0; at < whole; at += kTogether) sum = add(sum, load16(from + at));
  if (whole < rows) sum = add(sum, load_first(from + whole, static_cast<size_t>(rows - whole)));
  return join16(sum);
}

// Sixteen groups of `rows` rows from `from` on.
template <class T>
HWY_INLINE F32x16 sum_columns(const T* from, int64_t rows) {
  if (rows <= static_cast<int64_t>(kChain)) return sum_few_rows(from, rows);
  alignas(64) float totals[kLanes];
  for (int64_t group = 0; group < kTogether; ++group) {
    totals[group] = static_cast<float>(sum_vectors(from + group * rows, rows));
  }
  return load16(totals);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

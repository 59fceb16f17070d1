// SPDX-License-Identifier: Apache-2.0
// Rows of 32 to kMediumCols elements, sixteen at a time: what every row has once - its largest
// element, the terms of exp(), its sum - is found for all of them together. The bits are those of
// the rows taken one by one.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MEDIUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MEDIUM_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MEDIUM_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_MEDIUM_INL_H_
#endif

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <utility>

#include "kernels/cpu/row_joins-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/wide_sums-inl.h"
#include "ops/scaled_masked_softmax/visits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Sixteen rows of so many elements are 10 KiB of FP32, a third of a small L1 (one Zen 4 core, times
// as fast as row by row: 129 to 160 elements from the caches 1.08 to 1.36, 192 0.98, 197 1.0 to
// 1.17, 256 0.86 to 1.14).
inline constexpr size_t kMediumCols = 160;

// The next rows of a block, at most sixteen.
template <class T>
struct MediumRows {
  Row<T> row[kLanes];
  size_t count = 0;

  void take(const Job& job, Walk& walk, int64_t left) {
    count = static_cast<size_t>(std::min(left, static_cast<int64_t>(kLanes)));
    for (size_t r = 0; r < count; ++r) {
      row[r] = row_at<T>(job, walk.here());
      walk.advance();
    }
  }
};

// exp() of a row in the buffer, and what is left of its sum (wide_sums-inl.h).
template <class T>
HWY_INLINE void exp_medium(const Job& job, const ExpTerms& terms, const T* ahead, float* values,
                           double* sum) {
  constexpr size_t kChains = kRowChains;
  F32x16 acc[kChains];
  for (F32x16& chain : acc) chain = zero16();
  const bool one_vector = ends_with_one_vector<T>(job.cols);
  const size_t vectors = job.padded / kLanes - (one_vector ? 2 : 0);
  const auto visit = [&](size_t i, size_t chain) ACLGRAD_INLINED {
    hwy::Prefetch(ahead + i * kLanes);
    const F32x16 value = exp_below(load16(values + i * kLanes), terms);
    store_raw(value, values + i * kLanes);
    acc[chain] = add(acc[chain], value);
  };
  size_t i = 0;
  for (; i + kChains <= vectors; i += kChains) {
    for_constants<kChains>([&](auto chain) ACLGRAD_INLINED { visit(i + chain, chain); });
  }
  const bool odd_pairs = i < vectors;  // rows are whole pairs
  if (odd_pairs) {
    visit(i, 0);
    visit(i + 1, 1);
  }
  if (one_vector) {
    if (odd_pairs) {
      visit(vectors + 1, 3);
    } else {
      visit(vectors + 1, 1);
    }
  }
  put_wide(add(add(acc[0], acc[1]), add(acc[2], acc[3])), sum);
}

template <class T>
HWY_INLINE void write_medium(const Job& job, const float* values, const Quotient& by, T* y,
                             Stage<T>* stage) {
  T* to = stage != nullptr ? stage->room(y, job.cols) : y;
  write_pairs(values, job.cols, by, to, stage == nullptr && job.streaming);
}

// Rows of which one is not usual.
template <class T>
HWY_NOINLINE void unusual_medium_rows(const Job& job, const MediumRows<T>& rows,
                                      const float* largest, float* values, Stage<T>* stage) {
  for (size_t r = 0; r < rows.count; ++r) {
    const Row<T>& row = rows.row[r];
    float* here = values + r * job.padded;
    const Quotient by = finish_row(job, row, hn::Set(TagF32(), largest[r]), row.x, here);
    write_medium(job, here, by, row.y, stage);
  }
}

template <class T>
HWY_INLINE void medium_group(const Job& job, const MediumRows<T>& rows, const MediumRows<T>& ahead,
                             const RowLanes<kLanes>& all, float* values, Stage<T>* stage) {
  alignas(64) float lanes[kLanes * kLanes];
  alignas(64) float largest[kLanes], rounder[kLanes], rest[kLanes];
  for (size_t r = 0; r < rows.count; ++r) {
    store_raw(load_row(job, rows.row[r], values + r * job.padded), lanes + r * kLanes);
  }
  const bool whole = rows.count == kLanes;
  if (!whole) std::fill(lanes + rows.count * kLanes, std::end(lanes), 0.0f);
  const F32x16 largest16 = join_rows(lanes, kLanes, all, Largest());
  store_raw(largest16, largest);
  bool usual = true;
  for (size_t r = 0; r < rows.count; ++r) usual = usual & is_usual(job, largest[r]);
  if (HWY_UNLIKELY(!usual)) return unusual_medium_rows(job, rows, largest, values, stage);

  ExpTerms terms = exp_terms(job.factor, largest16);
  store_raw(terms.rounder, rounder);
  store_raw(terms.rest, rest);
  alignas(64) double wide[kLanes * kWideSums];
  alignas(64) double sums[kLanes];
  for (size_t r = 0; r < rows.count; ++r) {
    terms.rounder = set16(rounder[r]);
    terms.rest = set16(rest[r]);
    const T* next = ahead.row[std::min(r, std::max(ahead.count, size_t{1}) - 1)].x;
    exp_medium(job, terms, next, values + r * job.padded, wide + r * kWideSums);
  }
  if (!whole) std::fill(wide + rows.count * kWideSums, std::end(wide), 0.0);
  join_sums(wide, sums);
  join_sums(wide + kWideSums * kWideSums, sums + kWideSums);
  for (size_t r = 0; r < rows.count; ++r) {
    float* here = values + r * job.padded;
    if (HWY_UNLIKELY(std::isnan(sums[r]))) {
      write_medium(job, here, all_nan(job, here), rows.row[r].y, stage);
    } else {
      write_medium(job, here, one_over(sums[r]), rows.row[r].y, stage);
    }
  }
}

template <class T>
void medium_rows(const Job& job, Walk& walk, Stage<T>* stage) {
  alignas(64) float values[kLanes * kMediumCols];
  const RowLanes<kLanes> all(kLanes);
  MediumRows<T> groups[2];
  MediumRows<T>* rows = &groups[0];
  MediumRows<T>* ahead = &groups[1];
  int64_t left = walk.rows();
  rows->take(job, walk, left);
  while (rows->count != 0) {
    left -= static_cast<int64_t>(rows->count);
    ahead->row[0] = rows->row[0];  // when there are no more
    ahead->take(job, walk, left);
    medium_group(job, *rows, *ahead, all, values, stage);
    std::swap(rows, ahead);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

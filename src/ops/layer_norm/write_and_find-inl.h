// SPDX-License-Identifier: Apache-2.0
// Rows are written while the next ones are summed, so that the memory is read while it is written
// to.

#if defined(ACLGRAD_OPS_LAYER_NORM_WRITE_AND_FIND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_WRITE_AND_FIND_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_WRITE_AND_FIND_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_WRITE_AND_FIND_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/layer_norm/block-inl.h"
#include "ops/layer_norm/find-inl.h"
#include "ops/layer_norm/job.h"
#include "ops/layer_norm/joined-inl.h"
#include "ops/layer_norm/passing-inl.h"
#include "ops/layer_norm/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Row r of `rows` together with row n of `next`, from column `at` on.
template <class T>
HWY_INLINE Passing<T> passing(const Rows<T>& rows, size_t r, const Rows<T>& next, size_t n,
                              int64_t at) {
  Passing<T> out;
  out.x = rows.x[r] + at;
  out.y = static_cast<T*>(rows.y[r]) + at;
  out.next = next.x[n] + at;
  out.mean = set16(rows.mean[r]);
  out.rstd = set16(rows.rstd[r]);
  out.open = rows.open;
  out.next_open = next.open;
  out.room = rows.room;
  return out;
}

// Writes R long rows, which are plain, and finds the moments of those from row `first` of `next`
// on.
template <class T, size_t R>
HWY_NOINLINE void write_and_find_long(const Job& job, const Rows<T>& rows, size_t first,
                                      bool streaming, Rows<T>& next, size_t next_first) {
  const Weights<T> weights = weights_of<T>(job);
  RowMoments joined[R];
  for (int64_t p = 0; p < job.plan.panels; ++p) {
    const int64_t at = p * kPanel;
    const int64_t columns = job.panel_columns(p);
    Passing<T> pass[R];
    for (size_t r = 0; r < R; ++r) pass[r] = passing(rows, first + r, next, next_first + r, at);
    if (HWY_UNLIKELY(columns < static_cast<int64_t>(kLanes))) {  // no sixteen columns to begin with
      write_last(pass, weights.from(static_cast<size_t>(at)), 0, static_cast<size_t>(columns));
      for (size_t r = 0; r < R; ++r) joined[r].add(moments(pass[r].next, columns), columns);
      continue;
    }
    LongTotals totals[R];
    write_and_sum_long(pass, weights.from(static_cast<size_t>(at)), static_cast<size_t>(columns),
                       streaming, totals);
    for (size_t r = 0; r < R; ++r) {
      const Moments found = moments_from(totals[r], pass[r].next, static_cast<size_t>(columns));
      if (job.plan.panels == 1) next.set_moments(next_first + r, found);
      joined[r].add(found, columns);
    }
  }
  for (size_t r = 0; job.plan.panels > 1 && r < R; ++r) {
    next.set_moments(next_first + r, joined[r].all());
  }
}

// Writes rows, which are plain, and finds the moments of the next ones meanwhile, no more of them.
template <class T>
HWY_NOINLINE void write_and_find(const Job& job, const Rows<T>& rows, bool streaming,
                                 Rows<T>& next) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  for (size_t r = 0; streaming && r < rows.count; ++r) {
    streaming = begins_line(static_cast<const char*>(rows.y[r]));
  }
  // The sums of a last row may be taken more than once.
  const auto other = [&](size_t r) { return std::min(r, next.count - 1); };
  if (cols <= kChainColumns) {
    alignas(64) double sums[kRows * kWideSums];
    const auto write_all = [&](size_t n) ACLGRAD_INLINED {
      for (size_t r = 0; r < rows.count; ++r) {
        const Passing<T> pass[1] = {passing(rows, r, next, other(r), 0)};
        write_and_sum(pass, weights_of<T>(job), n, streaming, sums + other(r) * kWideSums);
      }
    };
    // FP32 is read and written as fast as memory goes, and better in the order that loops give it
    // (400000x64 on two cores of Granite Rapids: 6.9 ms, without loops 7.5).
    if constexpr (sizeof(T) < sizeof(float)) {
      if (cols == kFour) {
        write_all(kFour);
        return find_joined_moments(next, sums, kFour, job.reciprocal_cols,
                                   [&](size_t r) ACLGRAD_INLINED {
                                     return few_squares<T, kFourStrips<T>, kStripVectors<T>>(
                                         next.x[r], kStrip<T>, next.mean[r]);
                                   });
      }
    }
    write_all(cols);
    return find_joined_moments(next, sums, cols, job.reciprocal_cols);
  }
  if constexpr (kParts == 1 && sizeof(T) == 4) {
    if (rows.count == 2 && next.count == 2) {
      return write_and_find_long<T, 2>(job, rows, 0, streaming, next, 0);
    }
  }
  for (size_t r = 0; r < rows.count; ++r) {
    write_and_find_long<T, 1>(job, rows, r, streaming, next, other(r));
  }
}

// The same for rows that write_joined() writes. No next ones: there are none to sum.
template <class T>
HWY_NOINLINE void write_joined_and_find(const Job& job, const Rows<T>& rows, SharedLine<T>& line,
                                        Rows<T>* next) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  if (next == nullptr) {
    for (size_t r = 0; r < rows.count; ++r) {
      write_joined<T, false>(passing(rows, r, rows, r, 0), weights_of<T>(job), cols, line, nullptr);
    }
    return;
  }
  const auto other = [&](size_t r) { return std::min(r, next->count - 1); };
  if (cols > kChainColumns) {
    for (size_t r = 0; r < rows.count; ++r) {
      const auto pass = passing(rows, r, *next, other(r), 0);
      next->set_moments(other(r), write_joined_long(pass, weights_of<T>(job), cols, line));
    }
    return;
  }
  alignas(64) double sums[kRows * kWideSums];
  for (size_t r = 0; r < rows.count; ++r) {
    write_joined<T, true>(passing(rows, r, *next, other(r), 0), weights_of<T>(job), cols, line,
                          sums + other(r) * kWideSums);
  }
  find_joined_moments(*next, sums, cols, job.reciprocal_cols);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

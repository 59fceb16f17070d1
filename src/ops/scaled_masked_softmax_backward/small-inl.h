// SPDX-License-Identifier: Apache-2.0
// Rows of 16 to 32 elements: in FP32 one after the other, in registers; in 16 bits eight at a time,
// whose sums' lanes are joined at once, so that dx does not wait for its own row's sum.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SMALL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SMALL_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SMALL_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_SMALL_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/wide_sums-inl.h"
#include "ops/scaled_masked_softmax_backward/exact-inl.h"
#include "ops/scaled_masked_softmax_backward/visits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows are asked for so many before, 2 to 8 KiB: the hardware's own prefetching begins anew with
// every page (1x1x4000000x17 on two cores of Granite Rapids, f32 33.4 -> 24.6 ms, bf16 45.3 ->
// 26.7; 8 rows ahead 27.2, 38.3).
constexpr int64_t kSmallRowsAhead = 64;

// A row of 16 elements (V = 1 vector) or of 17 to 32 (V = 2). The second vector ends with the row.
// kClean: the job is (see Job).
template <size_t V, bool kClean, class T>
struct SmallRow {
  HWY_INLINE SmallRow(const Job& job, const Row<T>& row, size_t cols) {
    for_constants<V>([&](auto v) ACLGRAD_INLINED {
      const size_t at = v == 0 ? 0 : cols - kLanes;
      dy[v] = load16(row.dy + at);
      y[v] = load16(row.y + at);
      if constexpr (!kClean) dy[v] = mul(dy[v], set16(job.factors.on_dy));
    });
  }
  // The terms of the sum lane by lane; of the second vector what the first one left out counts.
  HWY_INLINE F32x16 products(size_t cols) const {
    const F32x16 zero = zero16();
    const F32x16 first = fma(dy[0], y[0], zero);
    if constexpr (V == 1) {
      return first;
    } else {
      return add(first, first_from(2 * kLanes - cols, zero, fma(dy[1], y[1], zero)));
    }
  }
  // dx may be dy or y: all of it is computed before any is stored.
  HWY_INLINE void write_dx(const Job& job, const uint8_t* mask, size_t cols, float sum,
                           T* to) const {
    const Terms terms = terms_of(job.factors, sum);
    F32x16 dx[V];
    for_constants<V>([&](auto v) ACLGRAD_INLINED {
      const F32x16 product = fma(dy[v], y[v], mul(y[v], terms.minus_sum));
      dx[v] = masked(mul(product, terms.on_dx), mask + (v == 0 ? 0 : cols - kLanes));
    });
    for_constants<V>([&](auto v) ACLGRAD_INLINED {
      T* const at = to + (v == 0 ? 0 : cols - kLanes);
      if constexpr (kClean) {
        store_clean16(dx[v], at, false);
      } else {
        store16(dx[v], at);
      }
    });
  }

  F32x16 dy[V], y[V];
};

// Out of line, and with a copy, so that ordinary rows keep nothing in memory for it.
template <size_t V, class T>
HWY_NOINLINE void unusual_small_row(const Job& job, Row<T> row, float sum, T* to) {
  if (is_exact(job, row, sum)) {
    write_exact(job, row, to);
  } else {
    SmallRow<V, false, T>(job, row, job.cols).write_dx(job, row.mask, job.cols, sum, to);
  }
}

template <size_t V, bool kClean, class T>
HWY_INLINE void write_small_row(const Job& job, const Row<T>& row,
                                const SmallRow<V, kClean, T>& all, float sum, T* to) {
  if (HWY_UNLIKELY(!is_ordinary(job, sum))) return unusual_small_row<V>(job, row, sum, to);
  all.write_dx(job, row.mask, job.cols, sum, to);
}

template <class T>
HWY_INLINE void ask_ahead(const Row<T>& row, const Steps& steps) {
  const int64_t ahead = steps.count > 1 ? kSmallRowsAhead : 0;  // the step of one row is any number
  hwy::Prefetch(row.dy + ahead * steps.dy);
  hwy::Prefetch(row.y + ahead * steps.y);
  hwy::Prefetch(row.mask + ahead * steps.mask);
}

// One row after the other, which stays in registers between its two visits. FP32 rows, which memory
// holds up, lose a fifth when eight are taken together.
template <size_t V, bool kClean, class T>
HWY_INLINE void small_rows_singly(const Job& job, const Row<T>& first, const Steps& steps,
                                  Stage<T>* stage) {
  const size_t cols = job.cols;
  for (int64_t r = 0; r < steps.count; ++r) {
    const Row<T> row = first.moved(steps, r);
    ask_ahead(row, steps);
    const SmallRow<V, kClean, T> all(job, row, cols);
    const auto sum = static_cast<float>(join16(all.products(cols)));
    write_small_row(job, row, all, sum, stage != nullptr ? stage->room(row.dx, cols) : row.dx);
  }
}

// Two cores of Zen 3, one row after the other and eight together, ms: bf16 1x1x4000000x16 24.4 ->
// 19.2, x17 43.5 -> 32.3, x32 44.7 -> 33.7, f16 17.9 -> 15.4, 30.1 -> 25.4, 31.6 -> 25.0.
template <size_t V, bool kClean, class T>
HWY_INLINE void small_rows_together(const Job& job, const Row<T>& first, const Steps& steps,
                                    Stage<T>* stage) {
  constexpr int64_t kTogether = kWideSums;
  const size_t cols = job.cols;
  for (int64_t begin = 0; begin < steps.count; begin += kTogether) {
    const int64_t count = std::min(kTogether, steps.count - begin);
    const Row<T> here = first.moved(steps, begin);
    alignas(64) double lanes[kTogether * kTogether];
    alignas(64) double sums[kTogether];
    for (int64_t r = 0; r < count; ++r) {
      const Row<T> row = here.moved(steps, r);
      ask_ahead(row, steps);
      put_wide(SmallRow<V, kClean, T>(job, row, cols).products(cols), lanes + r * kTogether);
    }
    std::fill(lanes + count * kTogether, std::end(lanes), 0.0);
    join_sums(lanes, sums);
    // Rows that are staged follow each other.
    T* const room =
        stage != nullptr ? stage->room(here.dx, static_cast<size_t>(count) * cols) : nullptr;
    for (int64_t r = 0; r < count; ++r) {
      const Row<T> row = here.moved(steps, r);
      write_small_row(job, row, SmallRow<V, kClean, T>(job, row, cols), static_cast<float>(sums[r]),
                      stage != nullptr ? room + static_cast<size_t>(r) * cols : row.dx);
    }
  }
}

template <size_t V, bool kClean, class T>
void small_rows(const Job& job, const Row<T>& first, const Steps& steps, Stage<T>* stage) {
  if constexpr (sizeof(T) == sizeof(float)) {
    small_rows_singly<V, kClean>(job, first, steps, stage);
  } else {
    small_rows_together<V, kClean>(job, first, steps, stage);
  }
}
template <class T>
void small_run(const Job& job, const Row<T>& first, const Steps& steps, Stage<T>* stage) {
  if (job.cols == kLanes) {
    return job.clean ? small_rows<1, true>(job, first, steps, stage)
                     : small_rows<1, false>(job, first, steps, stage);
  }
  return job.clean ? small_rows<2, true>(job, first, steps, stage)
                   : small_rows<2, false>(job, first, steps, stage);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Rows of 33 to 128 elements of clean jobs: as many vectors as a constant says, so that neither
// visit has a loop (4x16x15000x40 in FP32 on two Zen 3 cores, AVX2: 490 instructions a row and 52
// ms with loops, 202 and 23 so).

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_MEDIUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_MEDIUM_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_MEDIUM_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_MEDIUM_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/wide_sums-inl.h"
#include "ops/scaled_masked_softmax_backward/exact-inl.h"
#include "ops/scaled_masked_softmax_backward/visits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Longer rows gain less: FP32 of 40 columns 2.2 times as fast, of 77 1.4, of 100 1.2, of 128 level.
constexpr size_t kMostMediumVectors = 8;
constexpr size_t kMostMediumCols = kMostMediumVectors * kLanes;

// 16-bit rows that are summed, and then written, together: their lanes are joined at once
// (wide_sums-inl.h), and dx does not wait for its row's sum, which is sixty cycles of one
// instruction after the other (f16 33 columns from the caches, Emerald Rapids: 22 -> 16 ns). FP32
// rows, which memory holds up more, lose 2 %.
template <class T>
constexpr size_t kTogether = sizeof(T) == 2 ? kWideSums : 1;

// The sum of a row of V vectors whose scale is all on dx, lane by lane, as row_sum() has it. The
// last vector ends with the row and counts what the one before it left out.
template <size_t V, class T>
HWY_INLINE F32x16 medium_sum(const Row<T>& row, size_t cols) {
  static_assert(V > 2 && V <= kMostMediumVectors);
  F32x16 acc[kRowChains];
  for_constants<kRowChains>([&](auto c) ACLGRAD_INLINED { acc[c] = zero16(); });
  for_constants<V>([&](auto v) ACLGRAD_INLINED {
    constexpr size_t kChainOf = v % kRowChains;
    const size_t at = v + 1 < V ? v * kLanes : cols - kLanes;
    const F32x16 sum = fma(load16(row.dy + at), load16(row.y + at), acc[kChainOf]);
    acc[kChainOf] = v + 1 < V ? sum : first_from(V * kLanes - cols, acc[kChainOf], sum);
  });
  return add(add(acc[0], acc[1]), add(acc[2], acc[3]));
}

// A row that is not ordinary, of a clean job, out of line: a copy, so that others need not lie in
// memory.
template <class T>
HWY_NOINLINE void unusual_medium_row(const Job& job, Row<T> row, float sum, T* to) {
  if (is_exact(job, row, sum)) {
    write_exact(job, row, to);
  } else {
    write_dx(row, job.cols, terms_of(job.factors, sum), std::isfinite(sum), to);
  }
}

// dx of a row of V vectors of a clean job (see Job).
template <size_t V, class T>
HWY_INLINE void write_medium_row(const Job& job, const Row<T>& row, size_t cols, float sum,
                                 Stage<T>* stage) {
  T* to = stage != nullptr ? stage->room(row.dx, cols) : row.dx;
  if (HWY_UNLIKELY(!is_ordinary(job, sum))) {
    return unusual_medium_row(job, row, sum, to);
  }
  const Terms terms = terms_of(job.factors, sum);
  // dx may be dy or y: computed before the vector that it overlaps is written.
  const F32x16 last = clean16(row, cols - kLanes, terms);
  constexpr size_t kTwos = (V - 1) / 2;
  for_constants<kTwos>([&](auto two) ACLGRAD_INLINED {
    constexpr size_t kAt = 2 * two * kLanes;
    prefetch_ahead(row, kAt);
    if constexpr (sizeof(T) == 4) prefetch_ahead(row, kAt + kLanes);
    write32<false>(row, kAt, terms, to + kAt);
  });
  if constexpr (V % 2 == 0) {
    constexpr size_t kAt = 2 * kTwos * kLanes;
    prefetch_ahead(row, kAt);
    store_clean16(clean16(row, kAt, terms), to + kAt, false);
  }
  if constexpr (sizeof(T) == 4) prefetch_ahead(row, cols - kLanes);
  store_clean16(last, to + cols - kLanes, false);
}

// The sum of row `r` of a run.
template <size_t V, class T>
HWY_INLINE double medium_sum_of(const Row<T>& first, const Steps& steps, int64_t r, size_t cols) {
  return join16(medium_sum<V>(first.moved(steps, r), cols));
}

// The sums of `count` rows of a run from row `begin` on.
template <size_t V, class T>
HWY_INLINE void medium_sums(const Row<T>& first, const Steps& steps, int64_t begin, int64_t count,
                            size_t cols, double (&sums)[kTogether<T>]) {
  if constexpr (kTogether<T> == 1) {
    sums[0] = medium_sum_of<V>(first, steps, begin, cols);
  } else {
    alignas(64) double lanes[kTogether<T> * kWideSums];
    for (int64_t r = 0; r < count; ++r) {
      put_wide(medium_sum<V>(first.moved(steps, begin + r), cols), lanes + r * int64_t{kWideSums});
    }
    std::fill(lanes + count * int64_t{kWideSums}, std::end(lanes), 0.0);
    join_sums(lanes, sums);
  }
}

// Row `r` of a run; the one `rows_ahead` behind it is asked for meanwhile.
template <size_t V, class T>
HWY_INLINE void write_medium_row_of(const Job& job, const Row<T>& first, const Steps& steps,
                                    size_t cols, int64_t r, int64_t rows_ahead, double sum,
                                    Stage<T>* stage) {
  Row<T> row = first.moved(steps, r);
  row.dy_ahead = rows_ahead * steps.dy;
  row.y_ahead = rows_ahead * steps.y;
  write_medium_row<V>(job, row, cols, static_cast<float>(sum), stage);
}

// FP32 rows that do not go through a stage, most of which come from the caches: the next row is
// summed before one is written (Zen 3, us of 256 rows of 64: 5.1 -> 4.3; from memory 256x12x77x77
// would lose 8 %). Out of line: in one function with the other loop that one lost 5 %.
template <size_t V, class T>
HWY_NOINLINE void unstaged_medium_rows(const Job& job, const Row<T>& first, const Steps& steps,
                                       int64_t rows_ahead) {
  const size_t cols = job.cols;
  double next = medium_sum_of<V>(first, steps, 0, cols);
  for (int64_t r = 0; r < steps.count; ++r) {
    const double sum = next;
    if (r + 1 < steps.count) next = medium_sum_of<V>(first, steps, r + 1, cols);
    write_medium_row_of<V, T>(job, first, steps, cols, r, rows_ahead, sum, nullptr);
  }
}

// The rows of a run.
template <size_t V, class T>
HWY_INLINE void medium_rows(const Job& job, const Row<T>& first, const Steps& steps,
                            int64_t rows_ahead, Stage<T>* stage) {
  constexpr int64_t kMost = kTogether<T>;
  if constexpr (kMost == 1) {
    if (stage == nullptr) return unstaged_medium_rows<V>(job, first, steps, rows_ahead);
  }
  const size_t cols = job.cols;
  alignas(64) double sums[kTogether<T>];
  for (int64_t begin = 0; begin < steps.count; begin += kMost) {
    const int64_t count = std::min(kMost, steps.count - begin);
    medium_sums<V>(first, steps, begin, count, cols, sums);
    for (int64_t r = 0; r < count; ++r) {
      write_medium_row_of<V>(job, first, steps, cols, begin + r, rows_ahead, sums[r], stage);
    }
  }
}
template <class T>
void medium_run(const Job& job, const Row<T>& first, const Steps& steps, int64_t rows_ahead,
                Stage<T>* stage) {
  const size_t vectors = (job.cols + kLanes - 1) / kLanes;
  for_constants<kMostMediumVectors + 1>([&](auto v) HWY_ATTR {
    if constexpr (v > 2) {
      if (v == vectors) medium_rows<v>(job, first, steps, rows_ahead, stage);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

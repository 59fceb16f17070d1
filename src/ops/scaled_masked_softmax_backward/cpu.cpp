// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward on the CPU: one parallel pass over blocks of rows. A row is visited
// twice: row_sum() brings it from memory into L1, write_dx() finds it there. Rows of up to 128
// elements are mostly visited without loops (medium-inl.h; small-inl.h of up to 32), those of fewer
// than 16 are taken many at a time (short-inl.h). An output that does not fit the cache is
// written past it in whole lines (lines-inl.h), on some cores by turns with the next row's sum
// (turns-inl.h); where a row has only few of them, rows are gathered in a Stage.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "base/checked.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/halves.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/scaled_masked_softmax_backward/problem.h"
#include "ops/scaled_masked_softmax_backward/rows.h"
#include "ops/scaled_masked_softmax_backward/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/scaled_masked_softmax_backward/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/scaled_masked_softmax_backward/exact-inl.h"
#include "ops/scaled_masked_softmax_backward/lines-inl.h"
#include "ops/scaled_masked_softmax_backward/medium-inl.h"
#include "ops/scaled_masked_softmax_backward/short-inl.h"
#include "ops/scaled_masked_softmax_backward/small-inl.h"
#include "ops/scaled_masked_softmax_backward/turns-inl.h"
#include "ops/scaled_masked_softmax_backward/visits-inl.h"

#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_CPU_SHARED_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_CPU_SHARED_
namespace aclgrad::scaled_masked_softmax_backward {
namespace {

// A row that begins and ends within a line costs a reading of the line it shares with the next one:
// too much if it has fewer lines than this.
constexpr size_t kFewLines = 8;

// The next row is summed before dx of a row is written if both fit L1 together, so that the
// end of the sum, a chain of dependent additions, is not waited for: this many bytes of dy and y.
constexpr size_t kAheadBytes = 8192;

// Rows of over 32 elements are asked for so many bytes, at least a row, ahead; 16-bit rows of up to
// 128 columns, eight of which are summed together, are nine or more ahead even so (two cores of
// Granite Rapids, the next row but one -> so, bf16 256x12x77x77 5.0 -> 4.2 ms, 64x12x197x197 6.8
// -> 5.7, f32 6.8 -> 6.1, 8.8
// -> 8.7; f32 with 4 KiB 6.3, 8.6).
template <class T>
constexpr int64_t kAskedAheadBytes = sizeof(T) == 2 ? 4096 : 2048;

AttentionBlock<Offsets> block_at(const Job& job, int64_t index) {
  const Problem& problem = job.problem;
  const auto step = [&](size_t dim) {
    return Offsets{problem.dy.strides[dim], problem.y.strides[dim], problem.mask.strides[dim],
                   problem.dx.strides[dim]};
  };
  return attention_block<Offsets>(job.plan, {problem.batches, problem.heads, problem.rows},
                                  {step(0), step(1), step(2)}, index);
}

template <class T>
Row<T> row_at(const Job& job, const Offsets& offsets) {
  const Row<T> first{static_cast<const T*>(job.at.dy), static_cast<const T*>(job.at.y),
                     static_cast<const uint8_t*>(job.at.mask), static_cast<T*>(job.at.dx)};
  return first.moved(offsets, 1);
}

}  // namespace
}  // namespace aclgrad::scaled_masked_softmax_backward
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// What the first visit to a row leaves for the second.
struct Summed {
  float sum;
  bool exact;
};
template <class T>
HWY_INLINE Summed judged(const Job& job, const Row<T>& row, float sum) {
  return {sum, !is_ordinary(job, sum) && is_exact(job, row, sum)};
}
template <class T>
HWY_INLINE Summed first_visit(const Job& job, const Row<T>& row) {
  const float on_dy = job.factors.on_dy;
  const float sum = HWY_LIKELY(on_dy == 1.0f) ? row_sum<false>(row.dy, row.y, job.cols, 1.0f)
                                              : row_sum<true>(row.dy, row.y, job.cols, on_dy);
  return judged(job, row, sum);
}

// A run of rows that takes turns; not inlined, which made the loop of long_run() slower (two cores
// of Granite Rapids, f16 1x4x8122x513 3.25 -> 3.45 ms).
template <bool kWhole, class T>
HWY_NOINLINE void run_by_turns(const Job& job, const Row<T>& first, const Steps& steps) {
  LineWriter<T> lines(job.cols, job.factors);
  Summed summed = first_visit(job, first);
  for (int64_t r = 0; r < steps.count; ++r) {
    const Row<T> row = first.moved(steps, r);
    const bool has_next = r + 1 < steps.count;
    const Row<T> next = first.moved(steps, has_next ? r + 1 : r);
    if (HWY_LIKELY(has_next && !summed.exact && std::isfinite(summed.sum))) {
      const Terms terms = terms_of(job.factors, summed.sum);
      const size_t begin = kWhole ? 0 : lines.begin_row(row, summed.sum);
      const float sum = write_and_sum<kWhole>(row, begin, terms, next, steps, job.cols);
      if (!kWhole) lines.end_row(row, summed.sum);
      summed = judged(job, next, sum);
      continue;
    }
    if (summed.exact) {
      lines.flush();
      write_exact(job, row, row.dx);
    } else {
      lines.add(row, summed.sum, std::isfinite(summed.sum));
    }
    if (has_next) summed = first_visit(job, next);
  }
  lines.flush();
}

template <class T>
void long_run(const Job& job, const Row<T>& first, const Steps& steps, Stage<T>* stage) {
  const size_t row_bytes = job.cols * sizeof(T);
  const int64_t lag = 2 * row_bytes <= kAheadBytes ? 1 : 0;
  const int64_t rows_ahead =
      steps.count > 1 ? std::max(lag + 1, kAskedAheadBytes<T> / static_cast<int64_t>(row_bytes))
                      : 0;
  const bool by_lines = stage == nullptr && job.streaming && row_bytes >= kFewLines * kLineBytes;
  if (job.cols <= kMostMediumCols && job.clean && !by_lines) {
    return medium_run(job, first, steps, rows_ahead, stage);
  }
  const bool whole_lines = are_whole_lines(job, first, steps);
  if (by_lines && takes_turns<T>(job, whole_lines)) {
    return whole_lines ? run_by_turns<true>(job, first, steps)
                       : run_by_turns<false>(job, first, steps);
  }
  Summed summed[2];
  LineWriter<T> lines(job.cols, job.factors);
  for (int64_t r = 0; r < steps.count + lag; ++r) {
    if (r < steps.count) summed[r % 2] = first_visit(job, first.moved(steps, r));
    if (r < lag) continue;
    Row<T> row = first.moved(steps, r - lag);
    row.dy_ahead = rows_ahead * steps.dy;
    row.y_ahead = rows_ahead * steps.y;
    const Summed& now = summed[(r - lag) % 2];
    if (HWY_UNLIKELY(now.exact)) {
      lines.flush();
      write_exact(job, row, stage != nullptr ? stage->room(row.dx, job.cols) : row.dx);
      continue;
    }
    const bool clean = job.clean && std::isfinite(now.sum);
    if (by_lines) {
      lines.add(row, now.sum, clean);
    } else {
      T* to = stage != nullptr ? stage->room(row.dx, job.cols) : row.dx;
      write_dx(row, job.cols, terms_of(job.factors, now.sum), clean, to);
    }
  }
  lines.flush();
}

template <class T>
void block(const Job& job, int64_t index) {
  const AttentionBlock<Offsets> here = block_at(job, index);
  const Nest nest(here);
  const Row<T> first = row_at<T>(job, here.first);
  const Steps& run = nest.loops[2];
  if (job.cols <= kShortCols) return short_rows<T>(job, here, first);
  const bool is_small = job.cols <= 2 * kLanes;
  const bool few_lines = job.cols * sizeof(T) < kFewLines * kLineBytes;
  const bool dense = run.count == 1 || run.dx == static_cast<int64_t>(job.cols);
  const bool staged = dense && job.streaming && (is_small || few_lines);
  Stage<T> stage(job.streaming);
  for (int64_t i = 0; i < nest.loops[0].count; ++i) {
    for (int64_t j = 0; j < nest.loops[1].count; ++j) {
      const Row<T> row = first.moved(nest.loops[0], i).moved(nest.loops[1], j);
      if (is_small) {
        small_run(job, row, run, staged ? &stage : nullptr);
      } else {
        long_run(job, row, run, staged ? &stage : nullptr);
      }
    }
  }
  stage.flush();
  if (job.streaming) hwy::FlushStream();
}

#if ACLGRAD_HAS_HALVES
// Whether AVX2's kernel takes the rows, where vectors of sixteen are taken in halves anyway (two
// cores of Zen 4, AVX2's time for 72 MB over AVX-512's: f32 1 to 15 columns 0.87 to 0.98, 17 to 65
// 0.97 to 1.09; f16 16 to 64 0.87 to 0.99, 2 to 12 and 96 0.95 to 1.08; BF16 0.96 to 1.13).
template <class T>
bool suits_halves(int64_t cols) {
  constexpr auto kVector = static_cast<int64_t>(kLanes);
  if constexpr (std::is_same_v<T, float>) return kTakesHalves && cols < kVector;
  constexpr bool kIsHalf = std::is_same_v<T, float16_t>;
  return kIsHalf && kTakesHalves && cols >= kVector && cols <= 4 * kVector;
}
#endif

template <class T>
void run(const Job& job) {
#if ACLGRAD_HAS_HALVES
  if (suits_halves<T>(job.problem.cols)) return N_AVX2::run<T>(job);
#endif
  parallel_blocks(job.plan.blocks(), [&](int64_t index) { block<T>(job, index); });
}
void run_f32(const Job& job) { run<float>(job); }
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::scaled_masked_softmax_backward {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const auto size = static_cast<int64_t>(dtype_size(problem.dx.dtype));
  // A client's memory may be aligned to less than an element; such lines cannot be streamed.
  const bool aligned = reinterpret_cast<uintptr_t>(at.dx) % static_cast<uintptr_t>(size) == 0;
  const Factors factors = split_scale(problem.scale);
  const Job job{problem,
                plan,
                at,
                static_cast<size_t>(problem.cols),
                factors,
                ordinary_sums(problem.scale),
                factors.on_dy == 1.0f && std::isfinite(factors.on_dx) && factors.on_dx != 0.0f,
                aligned && outputs_should_stream(problem.dx.numel() * size)};
  switch (problem.dx.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(job);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(job);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(job);
  }
}

}  // namespace aclgrad::scaled_masked_softmax_backward
#endif  // HWY_ONCE

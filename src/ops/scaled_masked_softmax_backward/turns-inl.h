// SPDX-License-Identifier: Apache-2.0
// The second visit of a row and the first one of the next by turns, a line of each: while lines of
// the latter come from memory, a core has the former to compute.

#if defined(ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TURNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TURNS_INL_H_
#undef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TURNS_INL_H_
#else
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TURNS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/scaled_masked_softmax_backward/lines-inl.h"
#include "ops/scaled_masked_softmax_backward/visits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::scaled_masked_softmax_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Bytes by which the first visit asks for what comes in its row, at the end for the row after it:
// as LayerNormBackward's, where 1 and 4 KiB are level. Two cores of Emerald Rapids, ms, against a
// row's sum and then its dx: bf16 1x8x2048x2048 6.2 -> 5.6, f16 6.1 -> 5.5, f32 10.6 -> 10.2;
// AVX2 bf16 6.8 -> 6.1, 8x16x512x512, rows of 1 KiB, 6.2 -> 6.3.
constexpr int64_t kTurnsAhead = 2048;
constexpr size_t kLeastTurnBytes = 1024;
// Of rows that are no whole lines (two cores of Granite Rapids, ms: bf16 1x4x4073x1023 4.0 -> 3.3,
// f16 3.8 -> 3.3, 1x4x1018x4095 3.5 -> 3.3, f32 1x4x509x4095 3.4 -> 3.0; of 513 to 2047 columns
// level, 16 bits of 513 and f32 of 257 1.02 of the time).
constexpr size_t kLeastSharedTurnBytes = 1536;

// FP32 rows are asked for to L2 on AVX-512 (the same two cores, ms, to L1 and to L2: 1x4x4096x4096
// 26.2 and 22.3, 1x8x2048x2048 10.5 and 10.3, 8x16x512x512 10.5 and 10.1), everything else to L1
// (AVX2, the same three shapes: 22.1 and 24.3, 10.9 and 11.0, 10.9 and 11.2; f16 1x8x2048x2048 5.6
// and 6.0).
template <class T>
HWY_INLINE void ask_for(const T* p, int64_t ahead) {
  if constexpr (sizeof(T) == sizeof(float) && kParts == 1) {
    prefetch_to_l2(p, ahead);
  } else {
    prefetch_to_l1(p, ahead);
  }
}

template <class T>
bool are_whole_lines(const Job& job, const Row<T>& first, const Steps& steps) {
  const auto step_bytes = static_cast<size_t>(steps.dx) * sizeof(T);
  return job.cols * sizeof(T) % kLineBytes == 0 && step_bytes % kLineBytes == 0 &&
         begins_line(first.dx);
}

// Whether rows of a clean job whose dx streams are visited so: not where prefetches are dropped
// (not measured there).
template <class T>
bool takes_turns(const Job& job, bool whole_lines) {
  const size_t least = whole_lines ? kLeastTurnBytes : kLeastSharedTurnBytes;
  return HWY_ARCH_X86 && kPrefetchesWait && job.clean && job.cols * sizeof(T) >= least;
}

// Writes the whole lines of dx of `now`, clean and finite, which begin with element `begin`, past
// the caches and returns the sum of `next`, which `steps` further on is followed by the row to ask
// for. `kWhole`: rows are whole lines.
template <bool kWhole, class T>
HWY_INLINE float write_and_sum(const Row<T>& now, size_t begin, const Terms& row_terms,
                               const Row<T>& next, const Steps& steps, size_t cols) {
  constexpr size_t kLine = kLineBytes / sizeof(T);
  constexpr size_t kLineVectors = kLine / kLanes;
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  constexpr auto kAhead = static_cast<size_t>(kTurnsAhead / kSize);
  const Row<T> to = now;  // copies, which stores to dx cannot change
  const Terms terms = row_terms;
  const T* const dy = next.dy;
  const T* const y = next.y;
  const size_t near = cols > kAhead ? cols - kAhead : 0;
  const auto far = [&](int64_t step) {
    return (step - static_cast<int64_t>(cols)) * kSize + kTurnsAhead;
  };
  const int64_t far_dy = far(steps.dy);
  const int64_t far_y = far(steps.y);
  const size_t last_line = cols - kLine;
  double sums[1];
  row_sums<1>(cols, sums, [&](size_t i, size_t count, F32x16(&acc)[1]) ACLGRAD_INLINED {
    if (!kWhole && HWY_UNLIKELY(count < kLanes)) {
      const F32x16 sum = fma(load16(dy + cols - kLanes), load16(y + cols - kLanes), acc[0]);
      acc[0] = first_from(kLanes - count, acc[0], sum);
      return;
    }
    const size_t at = i * kLanes;
    if (i % kLineVectors == 0) {
      ask_for(dy + at, at < near ? kTurnsAhead : far_dy);
      ask_for(y + at, at < near ? kTurnsAhead : far_y);
    }
    acc[0] = fma(load16(dy + at), load16(y + at), acc[0]);
    if (i % kLineVectors == kLineVectors - 1) {
      const size_t line = (kWhole ? 0 : begin) + (i + 1) * kLanes - kLine;
      if (kWhole || HWY_LIKELY(line <= last_line)) stream_line(to, line, terms, to.dx + line);
    }
  });
  return static_cast<float>(sums[0]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

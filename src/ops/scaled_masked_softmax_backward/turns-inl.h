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

// Whether rows of a clean job whose dx streams are visited so: rows of whole lines, and not where
// prefetches are dropped (not measured there).
template <class T>
bool takes_turns(const Job& job, const Row<T>& first, const Steps& steps) {
  const size_t bytes = job.cols * sizeof(T);
  const auto step_bytes = static_cast<size_t>(steps.dx) * sizeof(T);
  return HWY_ARCH_X86 && kPrefetchesWait && job.clean && bytes >= kLeastTurnBytes &&
         bytes % kLineBytes == 0 && step_bytes % kLineBytes == 0 && begins_line(first.dx);
}

// Writes dx of `now`, clean and finite, past the caches and returns the sum of `next`, which
// `steps` further on is followed by the row to ask for.
template <class T>
HWY_INLINE float write_and_sum(const Row<T>& now, const Terms& row_terms, const Row<T>& next,
                               const Steps& steps, size_t cols) {
  constexpr size_t kLineVectors = kLineBytes / sizeof(T) / kLanes;
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
  double sums[1];
  row_sums<1>(cols, sums, [&](size_t i, size_t, F32x16(&acc)[1]) ACLGRAD_INLINED {
    const size_t at = i * kLanes;
    if (i % kLineVectors == 0) {
      ask_for(dy + at, at < near ? kTurnsAhead : far_dy);
      ask_for(y + at, at < near ? kTurnsAhead : far_y);
    }
    acc[0] = fma(load16(dy + at), load16(y + at), acc[0]);
    if (i % kLineVectors == kLineVectors - 1) {
      const size_t line = (i + 1) * kLanes - kLineBytes / sizeof(T);
      stream_line(to, line, terms, to.dx + line);
    }
  });
  return static_cast<float>(sums[0]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::scaled_masked_softmax_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

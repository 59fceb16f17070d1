// SPDX-License-Identifier: Apache-2.0
// Which rows' visits take turns, and how (fused-inl.h).

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_TURNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_TURNS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_TURNS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_TURNS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/checked.h"
#include "base/half.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/second_visit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows of each group that take turns: their chains and what belongs to a row take 26 of 32
// registers. (Four short rows: f32 200704x192 1.05 to 1.1 times the time of two.) Where a vector
// takes two of sixteen the chains come and go, and turns pay all the same (AVX2 on Granite Rapids,
// one of two cores shared, times as fast: f32 200704x192 1.3, 8192x4096 and 400000x64 1.14; on
// Emerald Rapids bf16 200704x192 1.12, f16 1.15, bf16 400000x64 1.06).
inline constexpr size_t kFusedRows = 2;

// Bytes by which lines are asked for ahead: in the same row or, at its end, in the one after its
// pair. 0.5 and 1 KiB are as good for rows over 4 KB, not for shorter ones.
inline constexpr int64_t kFusedAhead = 2048;

// Bytes from lines of a row to those that they ask for.
struct Distance {
  intptr_t dy, x;
};

// Compiled for no other instruction set.
inline constexpr bool kHasTurns = HWY_TARGET <= HWY_AVX2;

enum class Turns : uint8_t {
  kNone,            // the visits of a group come one after the other
  kOfRows,          // of whole rows
  kOfRounds,        // of rounds of columns
  kOfJoinedRounds,  // the same of rows that share lines of dx, which are joined in registers
};
inline bool are_rounds(Turns turns) {
  return turns == Turns::kOfRounds || turns == Turns::kOfJoinedRounds;
}

// Rounds of shorter rows cost more than they hide (bf16 70000x512: 8.0 -> 8.9 ms); of staged rows
// even longer ones (f32 48740x513: 10.6 -> 11.1), where rows by turns pay for some of 16 bits only
// (bf16 100000x129 3.8 -> 3.5, 24000x1025 6.8 -> 6.2, 8142x2047 4.7 -> 5.0, f32 100000x129 5.2 ->
// 5.4).
constexpr int64_t kLeastRound = 1536, kLeastStagedRound = 4096;
constexpr int64_t kLeastStagedRow = 256, kEndOfStagedRows = 3072;
// Two groups of longer rows, which wait between their visits, are more than half of an L2 of 2 MiB.
constexpr int64_t kMostRound = int64_t{128} << 10;
// Rounds of 16 bits pay where a vector is one register. AVX2 on Emerald Rapids, without them and
// with, ms: bf16 8192x4096 8.9, 11.2, 2048x12288 7.0, 8.4, 32768x768 7.1, 7.7, f16 8192x4096 8.5,
// 11.0 (on Granite Rapids, one of two cores shared, an earlier form of them had been 1.0 to 1.13
// times as fast).
template <class T>
inline constexpr bool kTakesRounds = kParts == 1 || sizeof(T) == sizeof(float);

// Rows that are not whole lines and take turns in rounds need no stage where a register is a line:
// lines of dx are joined in registers, and nothing is written in bursts that no load overlaps (two
// cores of Granite Rapids, ms: f32 2035x4095 4.5 -> 3.75, 509x16383 5.8 -> 4.35, 300x32767, which
// no stage holds, 6.8 -> 5.1, bf16 1017x16383 5.2 -> 4.4; f32 16300x1535 11.6 -> 10.6, 19500x1281
// and bf16 8142x2049 alike). Both ends of a row are parts of a line, so shorter rows lose (f32
// 48740x513 11.3 -> 12.5, 24000x1025 11.2 -> 12.0, f16 24000x1025 6.7 -> 8.5). Not measured on Zen
// 5, where FP32 rows of up to 8 KiB and 16-bit ones of over 64 KiB come here.
inline constexpr bool kJoinsRounds = HWY_TARGET <= HWY_AVX3;
constexpr int64_t kLeastJoinedRound = 5120;

// Whether the rows of dy and those of x lie at equal distances, so that the next ones can be asked
// for.
inline bool has_equal_distances(const Job& job) {
  return !job.gathered && job.places.dy.uniform() && job.places.x.uniform();
}

// Long FP32 rows need neither turns nor asking where the core follows each load by itself (two
// cores of Zen 5 by the faster pace of their memory, ms: 8192x4096 7.7 asked for twice, 7.5 by
// turns, 6.6 so; by the slower one 16384x2048 11.5, 10.1, 9.5, 2048x12288 7.6, 7.2, 7.1; one core
// 8192x4096 15.5, 14.3, 12.0. 32768x1024 1.03 of turns, bf16 8192x4096 1.11).
template <class T>
bool finds_rows(int64_t cols) {
  constexpr int64_t kLeastBytes = 8192;
  return kTakesPrefetches && sizeof(T) == sizeof(float) &&
         cols * static_cast<int64_t>(sizeof(T)) >= kLeastBytes;
}

// Nor do rows of 16 bits whose dx is staged there, and, where one thread reads, others of up to
// 4096 columns, in FP16 1023: asked for by both visits, to L2, they come faster (two cores of Zen
// 5, time beside that of turns, staged rows: 300000x100 0.9, bf16 40000x600 0.88, f16 40000x513
// 0.84, 24000x1025 0.92, 8142x2047 0.89, bf16 5000x4097 0.85, f16 0.99; one thread, others: bf16
// 400000x64 0.95, 200704x192 0.9, 32768x768 0.82, 8192x4096 0.88, 2048x12288 1.11, f16 200704x192
// 0.88, 32768x768 0.92, 32768x1024 1.06, 2048x12288 1.29; with two threads by the slower pace of
// their memory 1.03 to 1.12).
template <class T>
bool asks_twice(const Job& job, bool staged) {
  if (!kTakesPrefetches || sizeof(T) != 2 || !job.streaming) return false;
  constexpr int64_t kMost = std::is_same_v<T, float16_t> ? 1023 : 4096;
  return staged || (aclgrad_threads() == 1 && job.problem.cols <= kMost);
}

// `shares_lines`: rows of dx follow each other past the caches, but are not whole lines; `staged`:
// and a stage holds some of them. Not of rows of less than a round, which stay in registers by
// themselves (sum_short(), carry_columns()), nor of those in the caches, which have nothing to wait
// for. Where prefetches are dropped, or L2 is small, it was not measured.
template <class T>
Turns turns_of(const Job& job, bool staged, bool shares_lines) {
  const Problem& problem = job.problem;
  const int64_t cols = problem.cols;
  const bool fits = kHasTurns && !kDropsPrefetches && !has_small_l2();
  const bool plain =
      problem.want_dx && problem.dx.dtype == problem.x.dtype && has_equal_distances(job);
  if (!fits || !plain || finds_rows<T>(cols) || asks_twice<T>(job, staged) ||
      cols < int64_t{kRound} || problem.rows <= kRowBlock) {
    return Turns::kNone;
  }
  const int64_t bytes = cols * static_cast<int64_t>(sizeof(T));
  if (kJoinsRounds && shares_lines && bytes >= kLeastJoinedRound && bytes <= kMostRound) {
    return Turns::kOfJoinedRounds;
  }
  if (bytes >= (staged ? kLeastStagedRound : kLeastRound)) {
    const bool stage_holds =
        int64_t{kFusedRows} * bytes + int64_t{kLineBytes} <= int64_t{kDxStageBytes};
    const bool pays =
        kTakesRounds<T> && job.streaming && bytes <= kMostRound && (!staged || stage_holds);
    return pays ? Turns::kOfRounds : Turns::kNone;
  }
  const bool pays = !staged || (sizeof(T) < sizeof(float) && bytes >= kLeastStagedRow &&
                                bytes < kEndOfStagedRows);
  return pays ? Turns::kOfRows : Turns::kNone;
}

// How many rows behind the next group the lines lie that rows of whole turns ask for.
inline int64_t fused_rows_ahead(int64_t row_bytes) {
  return round_up(ceil_div(kFusedAhead, row_bytes), int64_t{kFusedRows});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

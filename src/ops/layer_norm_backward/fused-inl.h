// SPDX-License-Identifier: Apache-2.0
// Two visits by turns: the second one of a group of rows and the first one of the group to come.
// While lines of the latter come from memory, a core has the former to compute. On two cores of
// Emerald Rapids, ms: f32 2048x12288 10.2 -> 8.7, 200704x192 15.1 -> 13.9, bf16 8192x4096 7.9 ->
// 7.0, 200704x192 8.5 -> 7.7.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_FUSED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_FUSED_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_FUSED_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_FUSED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "base/checked.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/columns-inl.h"
#include "ops/layer_norm_backward/first_visit-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/row_lanes-inl.h"
#include "ops/layer_norm_backward/row_sums-inl.h"
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
  kNone,     // the visits of a group come one after the other
  kOfRows,   // of whole rows
  kOfRounds  // of rounds of columns
};

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

// Not of rows of less than a round, which stay in registers by themselves (sum_short(),
// carry_columns()), nor of those in the caches, which have nothing to wait for. Where prefetches
// are dropped, or L2 is small, it was not measured.
template <class T>
Turns turns_of(const Job& job, bool staged) {
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

// Whether a group of rows, whose means are known, may have its second visit beside the first one of
// `next`.
template <class T>
HWY_INLINE bool can_fuse(const Job& job, const Rows<T>& now, const Rows<T>& next) {
  if (now.count != next.count || now.count % kFusedRows != 0) return false;
  if (now.exact != 0 || !is_plain(job, now)) return false;
  return has_usual_terms(job, now);
}

// Where dx of a group that can_fuse() goes.
template <class T>
HWY_INLINE Store fused_store(const Job& job, Rows<T>& rows, DxWay<T>* way) {
  if (way != nullptr) enter_stage(rows, static_cast<size_t>(job.problem.cols), *way);
  return {job.problem.dx.dtype, job.streaming && way == nullptr && begin_lines(rows, 0), false};
}

// Turns of rows. A function of its own, or each form of the first visit would hold a copy.
template <class T>
HWY_NOINLINE void write_pair(const Rows<T>& rows, size_t first, size_t cols, const float* gamma,
                             const Store& store, float* chain) {
  SecondVisit<T, kFusedRows, true, Fetch::kOnce>(rows, first, store)
      .add_columns(gamma, 0, cols, chain);
}
template <class T>
void turn_rows(const Job& job, Rows<T>& now, const Group& group, Rows<T>& next, DxWay<T>* way) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  const Store store = fused_store(job, now, way);
  alignas(64) float block_chain[2 * kTile];  // groups that are a block have fewer columns
  float* const chain = group.chain == nullptr ? block_chain : group.chain;
  if (group.first) clear_chains<T>(chain, job.problem.cols);
  sum_rows(next, job.gamma, cols, job.reciprocal_cols, [&](size_t r) HWY_ATTR {
    if (r % kFusedRows != kFusedRows - 1) return;
    write_pair(now, r + 1 - kFusedRows, cols, job.gamma, store, chain);
  });
  leave_chains<T>(job, group, 0, 0, job.problem.cols, chain);
}

// Rounds of columns [begin, begin + count), at most kChainColumns, of groups of kFusedRows rows: dx
// and the chains of `now`, the sums of `next`. `far`: what rows ask for at their end.
template <class T>
HWY_NOINLINE void turn_columns(const Job& job, const Rows<T>& now, const Rows<T>& next,
                               size_t begin, size_t count, const Distance& far, const Store& store,
                               float* chain, F32x16 (&sums)[kFusedRows][2]) {
  const SecondVisit<T, kFusedRows, true, Fetch::kNothing> second(now, 0, store);
  RowChains<T> chains[kFusedRows] = {RowChains<T>(next.mean[0]), RowChains<T>(next.mean[1])};
  const T* const dy[kFusedRows] = {next.dy[0], next.dy[1]};
  const T* const x[kFusedRows] = {next.x[0], next.x[1]};
  const float* const gamma = job.gamma;
  constexpr auto kAhead = static_cast<size_t>(kFusedAhead) / sizeof(T);
  const auto cols = static_cast<size_t>(job.problem.cols);
  const size_t near = cols - std::min(cols, kAhead);
  const size_t end = begin + count;
  size_t at = begin;
  for (; at + kRound <= end; at += kRound, chain += 2 * kRound) {
    const intptr_t ahead_dy = at < near ? kFusedAhead : far.dy;
    const intptr_t ahead_x = at < near ? kFusedAhead : far.x;
    const auto fetch = [&](const T* dy_at, const T* x_at) ACLGRAD_INLINED {
      prefetch_to_l1(dy_at, ahead_dy);
      prefetch_to_l1(x_at, ahead_x);
    };
    for_constants<kFusedRows>([&](auto r) ACLGRAD_INLINED {
      chains[r].add_round(dy[r] + at, x[r] + at, gamma + at, fetch);
    });
    for_constants<kRound / kStrip<T>>([&](auto s) ACLGRAD_INLINED {
      second.add_strip(gamma, at + s * kStrip<T>, kStrip<T>, true,
                       std::integral_constant<size_t, kStripVectors<T>>(),
                       chain + 2 * s * kStrip<T>);
    });
  }
  if (at < end) {
    for_constants<kFusedRows>([&](auto r) ACLGRAD_INLINED {
      chains[r].add_rest(dy[r] + at, x[r] + at, gamma + at, end - at, next.open);
    });
    second.add_columns(gamma, at, end, chain);
  }
  for_constants<kFusedRows>([&](auto r) HWY_ATTR { chains[r].join(sums[r]); });
}

// Turns of rounds, groups of kFusedRows rows.
template <class T>
void turn_rounds(const Job& job, Rows<T>& now, const Group& group, Rows<T>& next, DxWay<T>* way) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  const Store store = fused_store(job, now, way);
  const auto behind_row = [&](int64_t stride) {
    const int64_t elements = static_cast<int64_t>(kFusedRows) * stride - job.problem.cols;
    return elements * static_cast<int64_t>(sizeof(T)) + kFusedAhead;
  };
  const Distance far{behind_row(job.places.dy.stride()), behind_row(job.places.x.stride())};
  alignas(64) double totals[kFusedRows][2][kLanes] = {};
  F32x16 sums[kFusedRows][2];
  for (size_t begin = 0; begin < cols; begin += kChainColumns) {
    const size_t count = std::min(kChainColumns, cols - begin);
    float* const chain = group.chain + 2 * begin;
    if (group.first) clear_chains<T>(chain, static_cast<int64_t>(count));
    turn_columns(job, now, next, begin, count, far, store, chain, sums);
    for (size_t r = 0; r < kFusedRows; ++r) {
      for (size_t k = 0; k < 2; ++k) add_to(totals[r][k], sums[r][k]);
    }
    const auto first = static_cast<int64_t>(begin);
    leave_chains<T>(job, group, 0, first, first + static_cast<int64_t>(count), chain);
  }
  if (cols > kChainColumns) {
    for (size_t r = 0; r < kFusedRows; ++r) {
      next.mean_g[r] = static_cast<float>(join16(totals[r][0]) * job.reciprocal_cols);
      next.mean_gx[r] =
          static_cast<float>(mean_gx_of(join16(totals[r][1]), next.rstd[r], job.reciprocal_cols));
    }
  } else {
    RowLanes lanes;
    for (size_t r = 0; r < kFusedRows; ++r) lanes.put(r, sums[r]);
    lanes.join(next, 0, kFusedRows, job.reciprocal_cols);
  }
}

// The second visit of a group that takes no turns.
template <class T>
HWY_NOINLINE void write_rows_alone(const Job& job, Rows<T>& rows, const Group& group,
                                   DxWay<T>* way) {
  write_rows<T>(job, rows, group, 0, job.problem.cols, way);
}

// Second visit of a group and first visit of the next one.
template <class T>
void visit_by_turns(const Job& job, Turns turns, Rows<T>& now, const Group& group, Rows<T>& next,
                    DxWay<T>* way) {
  if (turns == Turns::kOfRows) {
    turn_rows(job, now, group, next, way);
  } else if constexpr (kTakesRounds<T>) {
    turn_rounds(job, now, group, next, way);
  }
  classify(job, next);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

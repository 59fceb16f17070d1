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
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/carried-inl.h"
#include "ops/layer_norm_backward/columns-inl.h"
#include "ops/layer_norm_backward/first_visit-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/row_lanes-inl.h"
#include "ops/layer_norm_backward/row_sums-inl.h"
#include "ops/layer_norm_backward/second_visit-inl.h"
#include "ops/layer_norm_backward/turns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

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

// Where dx of turns of rounds goes: to its rows, or to the stage.
template <class T>
struct RowsOut {
  Store store;

  RowsOut(const Job& job, Rows<T>& rows, DxWay<T>* way) : store(fused_store(job, rows, way)) {}
  HWY_INLINE ToRows strips() { return {}; }
  void flush() {}
};
#if HWY_TARGET <= HWY_AVX3
// Line by line to memory.
template <class T>
struct LinesOut {
  Store store;
  DxCarry<T> carry[kFusedRows];

  LinesOut(const Job& job, const Rows<T>& rows, DxWay<T>*)
      : store{job.problem.dx.dtype, false, false} {
    for (size_t r = 0; r < kFusedRows; ++r) {
      carry[r].begin(static_cast<char*>(rows.dx[r]), job.streaming);
    }
  }
  LinesOut(const LinesOut&) = default;
  HWY_INLINE LinesOut& operator=(const LinesOut& from) {
    for_constants<kFusedRows>([&](auto r) ACLGRAD_INLINED { carry[r] = from.carry[r]; });
    return *this;
  }
  HWY_INLINE auto strips() {
    return [this](auto r, const Strip<T>& dx, size_t count) ACLGRAD_INLINED {
      if (count == kStrip<T>) {
        carry[r].push(packed_strip(dx));
      } else {
        carry[r].push_first(packed_strip(dx), count);
      }
    };
  }
  void flush() {
    for (DxCarry<T>& row : carry) row.flush();
  }
};
#endif

// Rounds of columns [begin, begin + count), at most kChainColumns, of groups of kFusedRows rows: dx
// and the chains of `now`, the sums of `next`. `far`: what rows ask for at their end.
template <class T, class Out>
HWY_NOINLINE void turn_columns(const Job& job, const Rows<T>& now, const Rows<T>& next,
                               size_t begin, size_t count, const Distance& far, Out& rows_out,
                               float* chain, F32x16 (&sums)[kFusedRows][2]) {
  Out out = rows_out;  // in registers
  const auto strips = out.strips();
  const SecondVisit<T, kFusedRows, true, Fetch::kNothing> second(now, 0, out.store);
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
                       chain + 2 * s * kStrip<T>, strips);
    });
  }
  if (at < end) {
    for_constants<kFusedRows>([&](auto r) ACLGRAD_INLINED {
      chains[r].add_rest(dy[r] + at, x[r] + at, gamma + at, end - at, next.open);
    });
    second.add_columns(gamma, at, end, chain, strips);
  }
  rows_out = out;
  for_constants<kFusedRows>([&](auto r) HWY_ATTR { chains[r].join(sums[r]); });
}

// Turns of rounds, groups of kFusedRows rows.
template <class Out, class T>
void turn_rounds(const Job& job, Rows<T>& now, const Group& group, Rows<T>& next, DxWay<T>* way) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  Out out(job, now, way);
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
    turn_columns(job, now, next, begin, count, far, out, chain, sums);
    for (size_t r = 0; r < kFusedRows; ++r) {
      for (size_t k = 0; k < 2; ++k) add_to(totals[r][k], sums[r][k]);
    }
    const auto first = static_cast<int64_t>(begin);
    leave_chains<T>(job, group, 0, first, first + static_cast<int64_t>(count), chain);
  }
  out.flush();
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
#if HWY_TARGET <= HWY_AVX3
  } else if (turns == Turns::kOfJoinedRounds) {
    turn_rounds<LinesOut<T>>(job, now, group, next, way);
#endif
  } else if constexpr (kTakesRounds<T>) {
    turn_rounds<RowsOut<T>>(job, now, group, next, way);
  }
  classify(job, next);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// How the rows of a slab are visited: how many together, which way their dx takes, what they ask
// for.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_VISITING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_VISITING_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_VISITING_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_VISITING_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/rows.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/row_groups.h"
#include "ops/layer_norm_backward/second_visit-inl.h"
#include "ops/layer_norm_backward/turns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// How the rows of a slab are visited.
struct Visiting {
  Turns turns;
  int64_t group_rows;
  bool one_by_one;   // in the second visit
  float* chain;      // null: a group is a row block
  bool staged;       // dx goes to memory through a stage
  Ahead ahead;       // none where rows are not at equal distances
  bool reads_whole;  // reads_whole(), and rows of dy, and of x, follow each other
};

template <class T>
Visiting visiting_of(const Job& job) {
  const int64_t cols = job.problem.cols;
  const auto size = static_cast<int64_t>(sizeof(T));
  const int64_t row_bytes = 2 * cols * size;
  Visiting out{};
  // Rows that are not whole lines cannot stream as they are, and stored as usual every line of dx
  // is read first: those of up to 64 KiB go through a stage, as many together as it holds (two
  // cores of a Xeon, f32 8130x1025: 6.2 -> 4.2 ms, bf16 8142x2047: 5.6 -> 4.7), but for joined
  // rounds.
  const auto fits = [&](int64_t rows) {
    return rows * cols * size + int64_t{kLineBytes} <= int64_t{kDxStageBytes};
  };
  const auto follow = [&](const RowOffsets& rows) {
    return rows.uniform() && rows.stride() == cols;
  };
  const bool dense = job.forms.dx.dense() && follow(job.places.dx);
  const bool shares_lines = job.streaming && dense && job.problem.dx.dtype == job.problem.x.dtype &&
                            cols * size % static_cast<int64_t>(kLineBytes) != 0;
  out.staged = shares_lines && fits(1);
  out.reads_whole = reads_whole<T>(static_cast<size_t>(cols)) && !job.gathered &&
                    follow(job.places.dy) && follow(job.places.x);
  const bool twice = asks_twice<T>(job, out.staged);
  out.turns = turns_of<T>(job, out.staged, shares_lines);
  out.group_rows = are_rounds(out.turns) ? int64_t{kFusedRows} : group_rows_of(row_bytes);
  // Unusual rows among those that are joined go through the stage, where it holds both.
  if (out.turns == Turns::kOfJoinedRounds) out.staged = fits(out.group_rows);
  // FP32 rows that are staged lose (32768x769: 10.8 -> 12.0 ms).
  out.one_by_one = !job.gathered && !(out.staged && sizeof(T) == sizeof(float)) &&
                   takes_blocks_one_by_one(row_bytes);
  if (out.one_by_one) out.group_rows = kRowBlock;
  while (out.staged && !fits(out.group_rows)) out.group_rows /= 2;
  if (out.group_rows < kRowBlock) {
    out.chain = thread_scratch(2 * job.padded_cols);
    if (out.chain == nullptr) {  // slower, same bits
      out.turns = Turns::kNone;
      out.group_rows = kRowBlock;
      out.staged = out.staged && fits(kRowBlock);
    }
  }
  const bool in_l1 = out.group_rows * row_bytes <= kPartOfL1;
  bool asks = has_equal_distances(job) && !finds_rows<T>(cols);
  if (!kDropsPrefetches) {
    out.ahead.twice = twice || (sizeof(T) == 2 && out.group_rows < kRowBlock && in_l1);
  } else if (out.one_by_one) {
    // A small L2 loses a part of long rows before they are visited: those of FP32 are asked for
    // late, to come to L1, 16-bit ones not at all, which the hardware finds as early (two cores of
    // Zen 3, asked for twice, once and not, ms: f32 8192x3072 9.4, 9.2, 10.4, bf16 7.0, 7.4, 6.2;
    // 65536x512 7.7, 8.1, 8.0).
    out.ahead.twice = kRowBlock * row_bytes <= kPartOfL2;
    asks = asks && (out.ahead.twice || sizeof(T) == sizeof(float));
  } else {
    out.ahead.twice = in_l1 || !has_small_l2();
  }
  int64_t ahead = out.group_rows;
  if (out.turns == Turns::kOfRows) {
    out.ahead.twice = false;
    ahead += fused_rows_ahead(cols * size);
  }
  // Of rows of up to 32 bytes the next sixteen are there already (f32 8333333x1 0.93 of the time).
  if (kTakesPrefetches && cols * size <= 32 && follow(job.places.dy) && follow(job.places.x)) {
    out.ahead.twice = false;
    ahead = 2048 / std::max(int64_t{1}, cols * size);
  }
  if (asks) {
    out.ahead.dy = ahead * size * job.places.dy.stride();
    out.ahead.x = ahead * size * job.places.x.stride();
  }
  return out;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

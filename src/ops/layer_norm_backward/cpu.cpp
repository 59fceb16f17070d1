// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward on the CPU: one parallel pass over slabs of rows. Inside a slab a few rows at a
// time are visited twice: once from memory along the rows (first_visit-inl.h), once from L2 down
// the columns (second_visit-inl.h), where dx is written and the terms of dgamma and dbeta stay in
// registers; meanwhile the next rows are prefetched, or their first visit takes turns with that
// (fused-inl.h). The slabs' totals are joined as they end (slab_totals.h). Few wide rows are cut in
// column panels instead (wide-inl.h).
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/rows.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/slab_totals.h"
#include "ops/layer_norm_backward/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm_backward/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm_backward/column_sums-inl.h"
#include "ops/layer_norm_backward/first_visit-inl.h"
#include "ops/layer_norm_backward/fused-inl.h"
#include "ops/layer_norm_backward/gamma-inl.h"
#include "ops/layer_norm_backward/second_visit-inl.h"
#include "ops/layer_norm_backward/wide-inl.h"

#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_CPU_SHARED_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_CPU_SHARED_
namespace aclgrad::layer_norm_backward {
namespace {

// Bytes of dy and x of the rows that stay in L1 between both visits.
constexpr int64_t kPartOfL1 = int64_t{24} << 10;

// The same of a small L2.
constexpr int64_t kPartOfL2 = int64_t{64} << 10;

// Rows that are visited together, from the bytes of dy and x in a row: a row block, eight or four
// rows while both visits stay in L1; else two, from L2, because more rows a power of two apart
// crowd each other out of the caches (Zen 4), or four of up to 48 KiB where prefetches wait or are
// taken (bf16 2048x12288 on Granite Rapids: 6.1 and 5.5 ms). Does not influence the bits.
inline int64_t group_rows_of(int64_t row_bytes) {
  constexpr int64_t kPartOfLargeL2 = int64_t{192} << 10;
  if (kRowBlock * row_bytes <= kPartOfL1 / 2) return kRowBlock;
  if (8 * row_bytes <= kPartOfL1) return 8;
  return 4 * row_bytes <= (kDropsPrefetches ? kPartOfL1 : kPartOfLargeL2) ? 4 : 2;
}

// Whether rows that leave L1 between their visits are a row block together all the same, which the
// second visit takes one by one. Where prefetches are dropped and L2 is small, what counts is that
// chains do not go from group to group through the caches, and that a row is read and written in
// one run: rows a multiple of 4 KiB apart, visited side by side, share few places of L1. From L3
// even long rows come fast enough. (Two cores of Zen 3, ms, two rows together and so: f32
// 2048x12288 11.1 -> 9.1, 24576x1024 11.9 -> 8.6, 200704x192, eight together, 16.0 -> 12.9, bf16
// 8192x4096 10.4 -> 8.3, f16 12288x2048 7.9 -> 5.7.)
inline bool takes_blocks_one_by_one(int64_t row_bytes) {
  constexpr int64_t kPartOfL3 = int64_t{2} << 20;
  return kDropsPrefetches && has_small_l2() && kRowBlock * row_bytes > kPartOfL1 / 2 &&
         kRowBlock * row_bytes <= kPartOfL3;
}

// Memory of the calling thread for `count` floats that begin a line, kept for its next call; null
// when there is none. (Chains across lines: two cores of Zen 5, bf16 32768x768 1.1 to 1.15 times
// the time, 8192x4096 1.1.)
float* thread_scratch(int64_t count) {
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<float, Free> memory;
  thread_local int64_t size = 0;
  if (size < count) {
    const int64_t bytes =
        round_up(count * static_cast<int64_t>(sizeof(float)), static_cast<int64_t>(kLineBytes));
    memory.reset(static_cast<float*>(std::aligned_alloc(kLineBytes, static_cast<size_t>(bytes))));
    size = memory == nullptr ? 0 : count;
  }
  return memory.get();
}

}  // namespace
}  // namespace aclgrad::layer_norm_backward
#endif  // shared by all instruction sets

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
  // cores of a Xeon, f32 8130x1025: 6.2 -> 4.2 ms, 509x16383: 7.8 -> 5.1, bf16 8142x2047: 5.6
  // -> 4.7).
  const auto fits = [&](int64_t rows) {
    return rows * cols * size + int64_t{kLineBytes} <= int64_t{kDxStageBytes};
  };
  const auto follow = [&](const RowOffsets& rows) {
    return rows.uniform() && rows.stride() == cols;
  };
  const bool dense = job.forms.dx.dense() && follow(job.places.dx);
  out.staged = job.streaming && dense && job.problem.dx.dtype == job.problem.x.dtype &&
               cols * size % static_cast<int64_t>(kLineBytes) != 0 && fits(1);
  out.reads_whole = reads_whole<T>(static_cast<size_t>(cols)) && !job.gathered &&
                    follow(job.places.dy) && follow(job.places.x);
  const bool twice = asks_twice<T>(job, out.staged);
  out.turns = turns_of<T>(job, out.staged);
  out.group_rows = out.turns == Turns::kOfRounds ? int64_t{kFusedRows} : group_rows_of(row_bytes);
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

// Calls visit(row, count, group) for the groups of a slab.
template <class Visit>
HWY_INLINE void each_group(const Job& job, const Visiting& visiting, int64_t slab, double* totals,
                           Visit&& visit) {
  const int64_t begin = slab * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  for (int64_t block = begin; block < end; block += kRowBlock) {
    const int64_t block_end = std::min(block + kRowBlock, end);
    for (int64_t row = block; row < block_end; row += visiting.group_rows) {
      const int64_t group_end = std::min(row + visiting.group_rows, block_end);
      visit(row, group_end - row,
            Group{row == block, group_end == block_end, visiting.chain, block == begin, totals,
                  job.padded_cols});
    }
  }
}

// The rows of a group, and what they ask for.
template <class T>
HWY_INLINE void enter_rows(const Job& job, const Visiting& visiting, int64_t row, int64_t count,
                           Rows<T>& rows) {
  locate(job, row, static_cast<size_t>(count), rows);
  const int64_t left = job.problem.rows - row - count;
  rows.open = visiting.reads_whole && left * job.problem.cols >= int64_t{kStrip<T>};
  // Behind the last row there is nothing. Copied whole: loaded whole behind stores of its members
  // it would wait for them.
  constexpr Ahead kNone{0, 0, false};
  rows.ahead = row + count == job.problem.rows ? kNone : visiting.ahead;
  rows.one_by_one = visiting.one_by_one;
}

// A slab whose groups come one after the other.
template <class T>
void visit_groups(const Job& job, const Visiting& visiting, int64_t slab, double* totals,
                  DxWay<T>* way) {
  Rows<T> rows;
  each_group(job, visiting, slab, totals,
             [&](int64_t row, int64_t count, const Group& group) ACLGRAD_INLINED {
               enter_rows(job, visiting, row, count, rows);
               if (job.problem.want_dx) find_means(job, rows);
               write_rows<T>(job, rows, group, 0, job.problem.cols, way);
             });
}

// A slab whose groups take turns with their neighbours.
template <class T>
void visit_groups_by_turns(const Job& job, const Visiting& visiting, int64_t slab, double* totals,
                           DxWay<T>* way) {
  Rows<T> rows[2];
  Group groups[2];
  int here = 0;
  bool waits = false;  // the other group has its means, but not its second visit
  each_group(job, visiting, slab, totals,
             [&](int64_t row, int64_t count, const Group& group) ACLGRAD_INLINED {
               const int other = 1 - here;
               groups[here] = group;
               enter_rows(job, visiting, row, count, rows[here]);
               if (waits && can_fuse(job, rows[other], rows[here])) {
                 visit_by_turns(job, visiting.turns, rows[other], groups[other], rows[here], way);
               } else {
                 if (waits) write_rows_alone(job, rows[other], groups[other], way);
                 find_means(job, rows[here]);
               }
               waits = true;
               here = other;
             });
  if (waits) write_rows_alone(job, rows[1 - here], groups[1 - here], way);
}

// One slab: all columns of its rows. `totals`: where those of dgamma and dbeta go (Group).
template <class T>
void slab(const Job& job, int64_t index, double* totals) {
  const Visiting visiting = visiting_of<T>(job);
  DxWay<T> way;
  DxWay<T>* const taken = visiting.staged ? &way : nullptr;
  if (!kHasTurns || visiting.turns == Turns::kNone) {
    visit_groups<T>(job, visiting, index, totals, taken);
  } else if constexpr (kHasTurns) {
    visit_groups_by_turns<T>(job, visiting, index, totals, taken);
  }
  way.flush();
  if (job.streaming) hwy::FlushStream();
}

// All slabs, and the sum of their totals.
template <class T>
void sum_slabs(const Job& job) {
  const int64_t count = job.plan.slabs;
  SlabTotals slabs(job.slab_totals(0), job.plan.slab_regions, count, 2 * job.padded_cols);
  const auto add = [&](double* sum, const double* more) { add_totals(job, sum, more); };
  parallel_blocks(count, [&](int64_t block) {
    const auto [index, totals] = slabs.begin(block, job.plan.slab_rows, add);
    slab<T>(job, index, totals);
    slabs.leave(index, totals, add);
  });
  const auto finish = [&](int64_t index) {
    const int64_t begin = index * kFinishColumns;
    finish_columns<T>(job, slabs, begin, std::min(begin + kFinishColumns, job.problem.cols));
  };
  const int64_t blocks = ceil_div(job.problem.cols, kFinishColumns);
  if (count == 1) {
    for (int64_t i = 0; i < blocks; ++i) finish(i);
  } else {
    parallel_blocks(blocks, finish);
  }
}

template <class T>
void run(const Job& job) {
  const Plan& plan = job.plan;
  if (plan.gamma_bytes > 0) {
    auto* out = static_cast<float*>(job.at.gamma_region);
    parallel_blocks(plan.panels, [&](int64_t index) {
      const int64_t begin = index * kPanel;
      const int64_t end = std::min(begin + kPanel, job.problem.cols);
      prepare_gamma<T>(job.problem, job.at.gamma, begin, end, out + begin);
    });
  }
  if (plan.wide) return run_wide<T>(job);
  if (job.columns && !job.one_block) return sum_slabs<T>(job);
  parallel_blocks(plan.slabs, [&](int64_t index) { slab<T>(job, index, nullptr); });
}

void run_f32(const Job& job) { run<float>(job); }
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::layer_norm_backward {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Places& places, const Addresses& at) {
  const int64_t output_bytes =
      problem.rows * problem.cols * static_cast<int64_t>(dtype_size(problem.dx.dtype));
  const bool columns = problem.want_dgamma || problem.want_dbeta;
  // A client's memory may be aligned to less than an element; such lines cannot be streamed.
  const bool aligned =
      problem.want_dx && reinterpret_cast<uintptr_t>(at.dx) % dtype_size(problem.dx.dtype) == 0;
  const Job job{problem,
                plan,
                at,
                static_cast<const float*>(plan.gamma_bytes > 0 ? at.gamma_region : at.gamma),
                round_up(problem.cols, kWidestStrip),
                1.0 / static_cast<double>(problem.cols),
                columns,
                columns && problem.rows > 0 && plan.partial_bytes == 0 && !plan.wide,
                aligned && outputs_should_stream(output_bytes),
                places,
                places.forms,
                !places.forms.dense()};
  switch (problem.x.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(job);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(job);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(job);
  }
}

}  // namespace aclgrad::layer_norm_backward
#endif  // HWY_ONCE

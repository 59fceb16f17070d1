// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward on the CPU: one parallel pass over slabs of rows. Inside a slab a few rows at a
// time are visited twice: once from memory along the rows (first_visit-inl.h), once from L2 down
// the columns (second_visit-inl.h), where dx is written and the terms of dgamma and dbeta stay in
// registers; meanwhile the next rows are prefetched, or their first visit takes turns with that
// (fused-inl.h). The slabs' totals are joined as they end (slab_totals.h). Few wide rows are cut in
// column panels instead (wide-inl.h).
#include <algorithm>
#include <cstddef>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
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
#include "ops/layer_norm_backward/visiting-inl.h"
#include "ops/layer_norm_backward/wide-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

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

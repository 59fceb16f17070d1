// SPDX-License-Identifier: Apache-2.0
// The kernels of GroupedBiasAddGrad. Every element of dy is read once, in blocks of rows by ranges
// of columns; tree.h says in which order it is added. Groups of one block are written at once, the
// blocks of others leave FP64 totals in the workspace, which a second loop joins.
#include <algorithm>
#include <cstddef>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/job.h"
#include "ops/grouped_bias_add_grad/problem.h"
#include "ops/grouped_bias_add_grad/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/grouped_bias_add_grad/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/grouped_bias_add_grad/blocks-inl.h"
#include "ops/grouped_bias_add_grad/chains-inl.h"
#include "ops/grouped_bias_add_grad/narrow_groups-inl.h"

#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CPU_SHARED_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CPU_SHARED_
namespace aclgrad::grouped_bias_add_grad {
namespace {

// Columns that one task joins, and how many of them at a time.
constexpr int64_t kLeastJoinCols = 32;
constexpr int64_t kMostJoinCols = 512;

// Stretches of rows for a thread with which the last of them costs no more than the cutting of rows
// does (a twenty-fourth of the time; two cores of Zen 5, 13000x7168-g32 in halves of rows:
// f32 1.02, bf16, which is one stream otherwise, 1.15 times the time).
constexpr int64_t kEnoughStretches = 24;

// Totals that one task joins: about 20 us of work.
constexpr int64_t kJoinTask = 32768;

// How joining the blocks of a wave is shared: ranges of columns, times parts of the groups.
struct JoinCut {
  int64_t cols = 0;    // of a range
  int64_t groups = 0;  // of a part
  int64_t parts = 0;
  int64_t tasks = 0;
};

JoinCut cut_join(const Job& job, int64_t first, int64_t last) {
  int64_t rows = 0;  // of totals
  if (job.plan.partial_rows > 0) {
    for (int64_t group = first; group < last; ++group) {
      const int64_t blocks = blocks_of(job.groups[group], job.plan);
      if (blocks > 1) rows += blocks;
    }
  }
  JoinCut cut;
  if (rows == 0) return cut;
  const int64_t cols = job.problem.cols;
  const int64_t wanted = ceil_div(rows * cols, kJoinTask);
  cut.cols =
      std::clamp(round_up(ceil_div(cols, wanted), kLeastJoinCols), kLeastJoinCols, kMostJoinCols);
  const int64_t ranges = ceil_div(cols, cut.cols);
  cut.groups = ceil_div(last - first, std::clamp(wanted / ranges, int64_t{1}, last - first));
  cut.parts = ceil_div(last - first, cut.groups);
  cut.tasks = ranges * cut.parts;
  return cut;
}

}  // namespace
}  // namespace aclgrad::grouped_bias_add_grad
#endif

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

// Totals of a block whose rows are folded: padding its rows to vectors at most doubles a 16-bit
// wide row.
constexpr size_t kFoldedTotals = kWideRowBytes;

// A chain whose last row has only the first `count` of `width` columns; both are a vector at least.
template <class T>
void add_ragged_chain(Chain<T>& chain, int64_t count, int64_t width, double* totals) {
  const int64_t whole = count - count % kVector;
  sum_chain(chain, 0, whole, adding_to(totals));
  const size_t last = chain.count - 1;
  int64_t col = whole;
  if (whole < count) {
    const int64_t at = std::min(whole, width - kVector);
    F32x16 sum = zero16();
    for (size_t r = 0; r < last; ++r) sum = add(sum, load16(chain.row[r] + at));
    add_to(totals + whole,
           add(sum, load_first(chain.row[last] + at, static_cast<size_t>(count - at))));
    col += kVector;
  }
  chain.count = last;
  chain.down = false;
  if (last == 0 || col >= width) return;
  if (width - col >= kVector) {
    sum_chain(chain, col, width, adding_to(totals + col));
  } else {
    sum_strip<1>(chain, col, width - kVector, 0, 0, adding_to(totals));
  }
}

// The totals of a block's wide rows, where rows follow each other without gaps. The last one may be
// incomplete.
template <class T>
void add_dense_rows(const Job& job, const Block<T>& block, int64_t width, double* totals) {
  const int64_t cols = job.problem.cols;
  const int64_t step = block.fold * cols;
  const int64_t complete = block.rows / block.fold;
  const int64_t rest = block.rows - complete * block.fold;
  const int64_t wide_rows = complete + (rest > 0 ? 1 : 0);
  Chain<T> chain;
  chain.busy = wide_rows < 3 * kChainRows;
  chain.stride = step;
  chain.next_step = kChainRows * step;
  const bool down = goes_down<T>(wide_rows, width);
  for (int64_t wide = 0; wide < wide_rows; wide += kChainRows) {
    chain.count = static_cast<size_t>(std::min(kChainRows, wide_rows - wide));
    for (size_t i = 0; i < chain.count; ++i) {
      chain.row[i] = block.first + (wide + static_cast<int64_t>(i)) * step;
    }
    chain.down = down;
    // Where groups follow each other, what lies a chain further on is always wanted.
    look_ahead(chain, job.contiguous ? kChainRows : complete - wide - kChainRows);
    if (rest > 0 && wide + kChainRows >= wide_rows) {
      add_ragged_chain(chain, rest * cols, width, totals);
    } else {
      sum_chain(chain, 0, width, adding_to(totals));
    }
  }
}

// The same for rows with gaps: each row of the wide rows by itself.
template <class T>
void add_spaced_rows(const Job& job, const Block<T>& block, int64_t pitch, double* totals) {
  const int64_t cols = job.problem.cols;
  const int64_t stride = job.problem.row_stride();
  for (int64_t row = 0; row < std::min(block.fold, block.rows); ++row) {
    const int64_t wide_rows = ceil_div(block.rows - row, block.fold);
    double* own = totals + row * pitch;
    const auto keep = adding_to(own);
    sum_rows(block.first + row * stride, block.fold * stride, wide_rows, 0, 0, cols, keep, keep,
             keep);
    align_totals(own, cols);
  }
}

// A block of short rows. Whichever way they are read, the same numbers are added in the same order.
template <class T>
void sum_short_rows(const Job& job, const Block<T>& block) {
  const int64_t cols = job.problem.cols;
  const int64_t pitch = job.dense ? cols : round_up(cols, kVector);
  const int64_t fold = std::min(block.fold, block.rows);  // the last block of a group may be short
  const int64_t used = round_up(fold * pitch, kVector);
  alignas(64) double totals[kFoldedTotals];
  std::fill(totals, totals + used, 0.0);
  if (job.dense) {
    add_dense_rows(job, block, fold * cols, totals);
    align_totals(totals, fold * cols);
  } else {
    add_spaced_rows(job, block, pitch, totals);
  }
  fold_totals(totals, fold, pitch);
  finish(job, block, totals, 0, cols);
}

// Equal groups of one row each, where neither dy nor dbias has gaps: they are their sums.
inline bool has_single_rows(const Job& job) {
  const Problem& problem = job.problem;
  return !problem.has_ends() && problem.rows == 1 && job.contiguous &&
         problem.dbias.strides[0] == problem.cols && job.plan.column_tasks == 1;
}
template <class T>
void write_single_rows(const Job& job, int64_t group, int64_t count) {
  const int64_t elements = count * job.problem.cols;
  const T* from = static_cast<const T*>(job.at.dy) + group * job.problem.cols;
  T* out = static_cast<T*>(job.at.dbias) + group * job.problem.cols;
  for (int64_t at = 0; at < elements; at += kVector) {
    if (at + kVector > elements) {
      const auto rest = static_cast<size_t>(elements - at);
      return store_first(add(load_first(from + at, rest), zero16()), out + at, rest);
    }
    const F32x16 sum = add(load16(from + at), zero16());  // -0 becomes +0
    put_sum(sum, out + at, kLanes, job.streaming);
  }
}

// Sums of groups of one chain whose rows of dbias follow each other without being whole lines wait
// in a stage until they are.
template <class T>
bool is_staged(const Job& job) {
  const Problem& problem = job.problem;
  const auto cols = static_cast<size_t>(problem.cols);
  const bool aligned = reinterpret_cast<uintptr_t>(job.at.dbias) % sizeof(T) == 0;
  return job.streaming && aligned && job.plan.column_tasks == 1 &&
         problem.dbias.strides[0] == problem.cols && cols * sizeof(T) % kLineBytes != 0 &&
         cols <= Stage<T>::kMost;
}

// What begins in stretch `stretch` of the wave [first, last), columns [begin, end).
template <class T>
void sum_stretch(const Job& job, int64_t first, int64_t last, int64_t stretch, int64_t begin,
                 int64_t end) {
  const Problem& problem = job.problem;
  const Plan& plan = job.plan;
  const int64_t from = job.groups[first].start + stretch * plan.task_rows;
  const int64_t to = from + plan.task_rows;
  const auto* dy = static_cast<const T*>(job.at.dy);
  auto* dbias = static_cast<T*>(job.at.dbias);
  const bool staged = is_staged<T>(job);
  Stage<T> stage(job.streaming);
  int64_t group = job.groups.at(from, first, last);
  if (has_single_rows(job)) {
    if (job.groups[group].start < from) ++group;  // begins in an earlier stretch
    const int64_t next = std::min(last, ceil_div(to, problem.rows + plan.group_cost));
    write_single_rows<T>(job, group, next - group);
    group = last;
  } else if (is_narrow(problem.cols)) {
    sum_narrow_stretch<T>(job, group, last, from, to);
    group = last;
  }
  for (; group < last; ++group) {
    const Span span = job.groups[group];
    if (span.start >= to) break;
    if (is_small_group(span.rows, problem.cols)) {
      if (span.start < from) continue;  // begins in an earlier stretch
      Block<T> block;
      block.rows = span.rows;
      block.first = dy;
      if (block.rows > 0) {
        block.first += group * problem.group_stride() + span.first * problem.row_stride();
      }
      block.out = dbias + group * problem.dbias.strides[0];
      block.staged = staged && block.rows <= kChainRows;
      if (block.staged) block.out = stage.room(block.out, static_cast<size_t>(problem.cols));
      write_small(job, block);
      continue;
    }
    const int64_t blocks = blocks_of(span, plan);
    const int64_t fold = folded_rows(span.rows, plan.most_folded);
    int64_t number = ceil_div(std::max(int64_t{0}, from - span.start), plan.block_rows);
    for (; number < blocks && span.start + number * plan.block_rows < to; ++number) {
      const int64_t row = number * plan.block_rows;
      Block<T> block;
      block.rows = std::min(plan.block_rows, span.rows - row);
      block.first = dy;
      if (block.rows > 0) {
        block.first += group * problem.group_stride() + (span.first + row) * problem.row_stride();
      }
      block.fold = fold;
      block.out = dbias + group * problem.dbias.strides[0];
      block.partial = blocks > 1 ? job.partial(span.slot + number) : nullptr;
      block.staged = staged && fold == 1 && is_one_chain(block);
      if (block.staged) block.out = stage.room(block.out, static_cast<size_t>(problem.cols));
      if (fold > 1) {
        sum_short_rows(job, block);
      } else {
        const int64_t panel = panel_columns<T>(end - begin, problem.row_stride());
        for (int64_t col = begin; col < end;) {
          const int64_t stop = end - col < panel + kVector ? end : col + panel;
          sum_long_rows(job, block, col, stop);
          col = stop;
        }
      }
    }
  }
  stage.flush();
  if (job.streaming) hwy::FlushStream();
}

// Columns [begin, end) of one group from the totals of its blocks.
template <class T>
void join_blocks(const Job& job, int64_t group, const Span& span, int64_t begin, int64_t end) {
  alignas(64) double totals[kMostJoinCols];
  std::fill(totals, totals + (end - begin), 0.0);
  const int64_t blocks = blocks_of(span, job.plan);
  for (int64_t block = 0; block < blocks; ++block) {
    const double* from = job.partial(span.slot + block) + begin;
    for (int64_t i = 0; i < end - begin; ++i) totals[i] += from[i];
  }
  T* out = static_cast<T*>(job.at.dbias) + group * job.problem.dbias.strides[0];
  write_totals(job, totals, end - begin, out + begin);
}

// Columns [begin, end) of the groups [first, last), where they have several blocks.
template <class T>
void join_groups(const Job& job, int64_t first, int64_t last, int64_t begin, int64_t end) {
  for (int64_t group = first; group < last; ++group) {
    const Span span = job.groups[group];
    if (span.rows <= job.plan.block_rows) continue;
    for (int64_t col = begin; col < end; col += kMostJoinCols) {
      join_blocks<T>(job, group, span, col, std::min(col + kMostJoinCols, end));
    }
  }
  if (job.streaming) hwy::FlushStream();
}

template <class T>
void run(const Job& job) {
  const Plan& plan = job.plan;
  const int64_t cols = job.problem.cols;
  for (int64_t first = 0; first < job.problem.groups;) {
    const int64_t last = job.groups.wave_end(first);
    const int64_t line = job.groups[last].start - job.groups[first].start;
    const int64_t stretches = ceil_div(line, plan.task_rows);
    // Rows are not cut for the sake of threads that are not there.
    const int64_t ranges =
        stretches >= kEnoughStretches * aclgrad_threads() ? 1 : plan.column_tasks;
    parallel_blocks(stretches * ranges, [&](int64_t index) {
      const int64_t range = index % ranges;
      const int64_t begin = range * plan.task_cols;
      const int64_t end = range + 1 == ranges ? cols : begin + plan.task_cols;
      sum_stretch<T>(job, first, last, index / ranges, begin, end);
    });
    const JoinCut cut = cut_join(job, first, last);
    if (cut.tasks > 0) {
      parallel_blocks(cut.tasks, [&](int64_t index) {
        const int64_t begin = index / cut.parts * cut.cols;
        const int64_t group = first + index % cut.parts * cut.groups;
        join_groups<T>(job, group, std::min(group + cut.groups, last), begin,
                       std::min(begin + cut.cols, cols));
      });
    }
    first = last;
  }
}

void run_f32(const Job& job) { run<float>(job); }
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::grouped_bias_add_grad {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

}  // namespace

BadEnd run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  BadEnd bad;
  auto* spans = static_cast<Span*>(at.spans);
  if (problem.has_ends()) bad = EndReader(problem, at.ends).place(plan, spans);
  const Groups groups(problem, plan, problem.has_ends() ? spans : nullptr);
  const auto element = static_cast<int64_t>(dtype_size(problem.dbias.dtype));
  const bool dense = problem.row_stride() == problem.cols;
  const Job job{
      problem,
      plan,
      at,
      groups,
      dense,
      dense && (problem.has_ends() || problem.group_stride() == problem.rows * problem.cols),
      outputs_should_stream(problem.groups * problem.cols * element)};
  switch (problem.dy.dtype) {
    case ACL_FLOAT16:
      HWY_DYNAMIC_DISPATCH(run_f16)(job);
      break;
    case ACL_BF16:
      HWY_DYNAMIC_DISPATCH(run_bf16)(job);
      break;
    default:
      HWY_DYNAMIC_DISPATCH(run_f32)(job);
      break;
  }
  return bad;
}

}  // namespace aclgrad::grouped_bias_add_grad
#endif  // HWY_ONCE

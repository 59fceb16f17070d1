// SPDX-License-Identifier: Apache-2.0
// The kernels of GroupedBiasAddGrad. Every element of dy is read once, in blocks of rows by ranges
// of columns; tree.h says in which order it is added. Groups whose blocks are all one task's are
// written at once, the blocks of others leave FP64 totals in the workspace, which a second loop
// joins.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/faster_way.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/job.h"
#include "ops/grouped_bias_add_grad/problem.h"
#include "ops/grouped_bias_add_grad/tree.h"
#include "ops/grouped_bias_add_grad/wave.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/grouped_bias_add_grad/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/grouped_bias_add_grad/blocks-inl.h"
#include "ops/grouped_bias_add_grad/chains-inl.h"
#include "ops/grouped_bias_add_grad/narrow_groups-inl.h"
#include "ops/grouped_bias_add_grad/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

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

// Blocks [number, stop) of a group, columns [begin, end). `group` has all rows of it.
template <class T>
void sum_blocks(const Job& job, const Block<T>& group, const Span& span, bool whole, int64_t number,
                int64_t stop, int64_t begin, int64_t end) {
  const Plan& plan = job.plan;
  const int64_t blocks = blocks_of(span, plan);
  const auto block_of = [&](int64_t index, double* so_far) {
    Block<T> block = group;
    const int64_t row = index * plan.block_rows;
    block.rows = std::min(plan.block_rows, span.rows - row);
    block.first += row * job.problem.row_stride();
    block.partial = blocks > 1 && !whole ? job.partial(span.slot + index) : nullptr;
    block.so_far = whole ? so_far : nullptr;
    block.begins = index == 0;
    block.ends = index + 1 == blocks;
    return block;
  };
  alignas(64) double so_far[kMostPanel];
  if constexpr (kParts == 1) {
    if (goes_in_tiles<T>(job, span.rows, end - begin)) {
      return each_tile<T>(begin, end, [&](int64_t col, int64_t next) {
        for (int64_t index = number; index < stop; ++index) {
          const Block<T> block = block_of(index, so_far);
          const int64_t stride = job.problem.row_stride();
          int64_t following = block.rows * stride;
          if (index + 1 == stop) {
            following = next < end ? next - col - (index - number) * plan.block_rows * stride
                                   : following + begin - col;
          }
          sum_tile_of(job, block, col, next, following);
        }
      });
    }
  }
  if (fits_registers<T>(span.rows, job.problem.cols, job.problem.row_stride())) {
    for (; number < stop; ++number) sum_in_registers(job, block_of(number, so_far));
    return;
  }
  const int64_t panel = panel_columns();
  for (int64_t col = begin; col < end;) {
    const int64_t next = end - col < panel + kVector ? end : col + panel;
    for (int64_t index = number; index < stop; ++index) {
      sum_block(job, block_of(index, so_far), col, next);
    }
    col = next;
  }
}

// What begins in stretch `stretch` of a wave, columns [begin, end).
template <class T>
void sum_stretch(const Job& job, const Wave& wave, int64_t stretch, int64_t begin, int64_t end) {
  const Problem& problem = job.problem;
  const Plan& plan = job.plan;
  const int64_t last = wave.last;
  const int64_t from = wave.start + stretch * plan.task_rows;
  const int64_t to = from + plan.task_rows;
  const bool staged = is_staged<T>(job);
  Stage<T> stage(job.streaming);
  int64_t group = job.groups.at(from, wave.first, last);
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
    const bool whole = is_whole(job, wave, span);
    const int64_t blocks = blocks_of(span, plan);
    if (span.start < from && (whole || blocks == 1)) continue;  // an earlier stretch has it
    Block<T> block;
    block.rows = span.rows;
    block.first = static_cast<const T*>(job.at.dy);
    if (block.rows > 0) {
      block.first += group * problem.group_stride() + span.first * problem.row_stride();
    }
    block.out = static_cast<T*>(job.at.dbias) + group * problem.dbias.strides[0];
    block.staged = staged && block.rows <= kChainRows;
    if (block.staged) block.out = stage.room(block.out, static_cast<size_t>(problem.cols));
    if (blocks == 1 && !goes_in_tiles<T>(job, span.rows, problem.cols) &&
        fits_registers<T>(span.rows, problem.cols, problem.row_stride())) {
      sum_in_registers(job, block);
      continue;
    }
    const int64_t number = ceil_div(std::max(int64_t{0}, from - span.start), plan.block_rows);
    const int64_t stop = ceil_div(to - span.start, plan.block_rows);
    sum_blocks(job, block, span, whole, number, whole ? blocks : std::min(blocks, stop), begin,
               end);
  }
  stage.flush();
  if (job.streaming) hwy::FlushStream();
}

// Totals that are joined at a time.
constexpr int64_t kMostJoinCols = 512;

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

// Columns [begin, end) of the groups [first, last), where blocks have left totals.
template <class T>
void join_groups(const Job& job, const Wave& wave, int64_t first, int64_t last, int64_t begin,
                 int64_t end) {
  for (int64_t group = first; group < last; ++group) {
    const Span span = job.groups[group];
    if (!is_joined(job, wave, span)) continue;
    for (int64_t col = begin; col < end; col += kMostJoinCols) {
      join_blocks<T>(job, group, span, col, std::min(col + kMostJoinCols, end));
    }
  }
  if (job.streaming) hwy::FlushStream();
}

template <class T>
void run_waves(const Job& job) {
  const int64_t cols = job.problem.cols;
  for (int64_t first = 0; first < job.problem.groups;) {
    const Wave wave(job, first);
    const Tasks tasks(job, wave);
    parallel_blocks(tasks.count(), [&](int64_t index) {
      const Task task = tasks[index];
      sum_stretch<T>(job, wave, task.stretch, task.begin, task.end);
    });
    const JoinCut cut = cut_join(job, wave);
    if (cut.tasks > 0) {
      parallel_blocks(cut.tasks, [&](int64_t index) {
        const int64_t begin = index / cut.parts * cut.cols;
        const int64_t group = first + index % cut.parts * cut.groups;
        join_groups<T>(job, wave, group, std::min(group + cut.groups, wave.last), begin,
                       std::min(begin + cut.cols, cols));
      });
    }
    first = wave.last;
  }
}

// Whether any group may go in tiles.
template <class T>
bool may_go_in_tiles(const Job& job) {
  const Problem& problem = job.problem;
  if (!may_go_in_tiles<T>(problem.rows, problem.cols)) return false;
  const int64_t groups = problem.has_ends() ? problem.groups : 1;  // others are the same
  for (int64_t group = 0; group < groups; ++group) {
    if (may_go_in_tiles<T>(job.groups[group].rows, problem.cols)) return true;
  }
  return false;
}

// Groups that may go in tiles do so or not, whichever was faster of late: the bits are the same.
// Numbers of rows and groups that vary from run to run are alike up to powers of two.
template <class T>
void run(const Job& job) {
  const Problem& problem = job.problem;
  if (!may_go_in_tiles<T>(job)) return run_waves<T>(job);
  static FasterWay<> ways;
  const int64_t rows = problem.has_ends() ? problem.rows : problem.groups * problem.rows;
  const bool tiles_first = problem.cols > kTotalsInL1 || aclgrad_threads() == 1;
  const auto magnitude = [](int64_t number) {
    return static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(number)));
  };
  const FasterWay<>::Key key = {problem.cols, magnitude(rows), magnitude(problem.groups),
                                aclgrad_threads()};
  ways.run(key, rows, tiles_first, [&](bool in_tiles) {
    Job chosen = job;
    chosen.in_tiles = in_tiles;
    run_waves<T>(chosen);
  });
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
      outputs_should_stream(problem.groups * problem.cols * element),
      false};
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

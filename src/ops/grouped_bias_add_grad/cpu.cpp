// SPDX-License-Identifier: Apache-2.0
// The kernels of GroupedBiasAddGrad. Every element of dy is read once, in blocks of rows by ranges
// of columns; tree.h says in which order it is added. Groups of one block are written at once, the
// blocks of others leave FP64 totals in the workspace, which a second loop joins.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/problem.h"
#include "ops/grouped_bias_add_grad/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/grouped_bias_add_grad/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"

#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CPU_SHARED_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CPU_SHARED_
namespace aclgrad::grouped_bias_add_grad {
namespace {

// Columns that one task joins, and how many of them at a time.
constexpr int64_t kLeastJoinCols = 32;
constexpr int64_t kMostJoinCols = 512;

// Totals that one task joins: about 20 us of work.
constexpr int64_t kJoinTask = 32768;

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  const Groups& groups;
  int64_t fold;    // rows of a wide row
  bool dense;      // rows follow each other without gaps
  bool streaming;  // dbias does not fit the cache

  double* partial(int64_t slot) const {
    return static_cast<double*>(at.partials) + slot * problem.cols;
  }
};

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

using namespace aclgrad::HWY_NAMESPACE;

// Columns whose FP64 totals a block holds at a time: half of a small L1, and long enough stretches
// of each row.
constexpr int64_t kPanel = 4096;

// Vectors taken together down the rows of a chain: with two, a row's part is whole cache lines, and
// two chains hide the latency of the addition (four read no faster).
constexpr size_t kStripVectors = 2;

// The next chain's rows are fetched into L2 while this one is added, as long as they fit there.
// Rows are too short for the hardware to learn their streams: FP32 at H = 512 took 1.3 times as
// long without (2-core Zen 4).
constexpr int64_t kFetchBytes = 128 << 10;

// A wide row is under twice kWideRow long.
constexpr size_t kScratchRow = 2 * kWideRow;

// The rows of one chain, and where those of the next one lie.
template <class T>
struct Chain {
  const T* row[kChain];
  size_t count;
  size_t next_count;  // rows to fetch, each `next_step` elements behind its fellow here
  int64_t next_step;
};

// Columns [col, col + 16 N) of a chain are added to totals.
template <size_t N, class T>
HWY_INLINE void add_strip(const Chain<T>& chain, int64_t col, double* totals) {
  constexpr size_t kLine = 64;
  F32x16 sum[N];
  for (size_t k = 0; k < N; ++k) sum[k] = load16(chain.row[0] + col + k * kLanes);
  for (size_t r = 1; r < chain.count; ++r) {
    const T* from = chain.row[r] + col;
    for (size_t k = 0; k < N; ++k) sum[k] = add(sum[k], load16(from + k * kLanes));
  }
  for (size_t r = 0; r < chain.next_count; ++r) {
    const auto* next = reinterpret_cast<const char*>(chain.row[r] + col + chain.next_step);
    for (size_t at = 0; at < N * kLanes * sizeof(T); at += kLine) {
      __builtin_prefetch(next + at, 0, 2);
    }
  }
  for (size_t k = 0; k < N; ++k) add_to(totals + k * kLanes, sum[k]);
}

// Columns [begin, end) of a chain are added to totals, vector by vector. A last vector that would
// reach over `end` starts earlier instead: its totals are those of columns [end - 16, end).
template <class T>
HWY_INLINE void add_chain(const Chain<T>& chain, int64_t begin, int64_t end, double* totals) {
  constexpr auto kVector = static_cast<int64_t>(kLanes);
  constexpr int64_t kStrip = kStripVectors * kVector;
  int64_t col = begin;
  for (; col + kStrip <= end; col += kStrip) {
    add_strip<kStripVectors>(chain, col, totals + (col - begin));
  }
  for (; col < end; col += kVector) {
    add_strip<1>(chain, std::min(col, end - kVector), totals + (col - begin));
  }
}

// Puts the totals of such a last vector in place.
inline void align_totals(double* totals, int64_t count) {
  const int64_t rest = count % static_cast<int64_t>(kLanes);
  if (rest == 0) return;
  double* last = totals + (count - rest);
  std::memmove(last, last + (static_cast<int64_t>(kLanes) - rest),
               static_cast<size_t>(rest) * sizeof(double));
}

// Rounds totals once and writes them.
template <class T>
void write_totals(const Job& job, const double* totals, int64_t count, T* out) {
  constexpr auto kVector = static_cast<int64_t>(kLanes);
  alignas(64) float rounded[kLanes] = {};
  for (int64_t begin = 0; begin < count; begin += kVector) {
    const auto lanes = static_cast<size_t>(std::min(kVector, count - begin));
    for (size_t i = 0; i < lanes; ++i)
      rounded[i] = static_cast<float>(totals[begin + static_cast<int64_t>(i)]);
    const F32x16 values = load16(rounded);
    if (lanes < kLanes) {
      store_first(values, out + begin, lanes);
    } else if (job.streaming && can_stream(out + begin)) {
      stream16(values, out + begin);
    } else {
      store16(values, out + begin);
    }
  }
}

// Where the totals of a block go.
template <class T>
struct Block {
  const T* first;   // row 0 of the block
  int64_t rows;     // may be 0
  T* out;           // the group's row of dbias
  double* partial;  // the block's row of totals; null: the group has no other block
};

template <class T>
void finish(const Job& job, const Block<T>& block, const double* totals, int64_t begin,
            int64_t end) {
  if (block.partial == nullptr) {
    write_totals(job, totals, end - begin, block.out + begin);
  } else {
    std::copy(totals, totals + (end - begin), block.partial + begin);
  }
}

// A block of long rows, in place: columns [begin, end).
template <class T>
void sum_rows(const Job& job, const Block<T>& block, int64_t begin, int64_t end) {
  constexpr auto kRows = static_cast<int64_t>(kChain);
  const int64_t stride = job.problem.row_stride();
  const bool fetch = kRows * (end - begin) * static_cast<int64_t>(sizeof(T)) <= kFetchBytes;
  alignas(64) double totals[kPanel + kLanes];
  std::fill(totals, totals + round_up(end - begin, kLanes), 0.0);
  Chain<T> chain;
  chain.next_step = kRows * stride;
  for (int64_t row = 0; row < block.rows; row += kRows) {
    chain.count = static_cast<size_t>(std::min(kRows, block.rows - row));
    for (size_t i = 0; i < chain.count; ++i) {
      chain.row[i] = block.first + (row + static_cast<int64_t>(i)) * stride;
    }
    const int64_t left = std::max(int64_t{0}, block.rows - row - kRows);
    chain.next_count = fetch ? static_cast<size_t>(std::min(kRows, left)) : 0;
    add_chain(chain, begin, end, totals);
  }
  align_totals(totals, end - begin);
  finish(job, block, totals, begin, end);
}

// Copies `rows` short rows one after the other; elements up to `padded` become 0.
template <class T>
void gather(const T* from, int64_t stride, int64_t rows, int64_t cols, int64_t padded, T* to) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* source = from + row * stride;
    T* target = to + row * cols;
    for (int64_t col = 0; col < cols; ++col) target[col] = source[col];
  }
  std::fill(to + rows * cols, to + padded, T{});
}

// A block of short rows: wide rows are read in place where the rows are dense and complete, else
// gathered; in both cases the same numbers are added in the same order.
template <class T>
void sum_folded_rows(const Job& job, const Block<T>& block) {
  constexpr auto kRows = static_cast<int64_t>(kChain);
  const int64_t cols = job.problem.cols;
  const int64_t stride = job.problem.row_stride();
  const int64_t fold = std::min(job.fold, block.rows);  // fewer rows than a wide row has
  const int64_t width = fold < job.fold ? round_up(fold * cols, kLanes) : fold * cols;
  alignas(64) double totals[kScratchRow + kLanes];
  std::fill(totals, totals + std::max(round_up(width, kLanes), cols), 0.0);
  alignas(64) T scratch[kChain * kScratchRow];
  Chain<T> chain;
  chain.next_step = kRows * job.fold * cols;
  const int64_t wide_rows = ceil_div(block.rows, job.fold);
  for (int64_t wide = 0; wide < wide_rows; wide += kRows) {
    chain.count = static_cast<size_t>(std::min(kRows, wide_rows - wide));
    for (size_t i = 0; i < chain.count; ++i) {
      const int64_t row = (wide + static_cast<int64_t>(i)) * job.fold;
      const int64_t rows = std::min(job.fold, block.rows - row);
      chain.row[i] = block.first + row * stride;
      if (job.dense && rows == job.fold) continue;
      T* copy = scratch + i * kScratchRow;
      gather(chain.row[i], stride, rows, cols, width, copy);
      chain.row[i] = copy;
    }
    const int64_t left = block.rows / job.fold - wide - kRows;  // complete ones
    chain.next_count =
        job.dense ? static_cast<size_t>(std::clamp(left, int64_t{0}, kRows)) : size_t{0};
    add_chain(chain, 0, width, totals);
  }
  align_totals(totals, width);
  for (int64_t row = 1; row < fold; ++row) {
    for (int64_t col = 0; col < cols; ++col) totals[col] += totals[row * cols + col];
  }
  finish(job, block, totals, 0, cols);
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
  for (int64_t group = job.groups.at(from, first, last); group < last; ++group) {
    const Span span = job.groups[group];
    if (span.start >= to) break;
    const int64_t blocks = blocks_of(span, plan);
    int64_t number = ceil_div(std::max(int64_t{0}, from - span.start), plan.block_rows);
    for (; number < blocks && span.start + number * plan.block_rows < to; ++number) {
      const int64_t row = number * plan.block_rows;
      Block<T> block;
      block.rows = std::min(plan.block_rows, span.rows - row);
      block.first = dy;
      if (block.rows > 0) {
        block.first += group * problem.group_stride() + (span.first + row) * problem.row_stride();
      }
      block.out = dbias + group * problem.dbias.strides[0];
      block.partial = blocks > 1 ? job.partial(span.slot + number) : nullptr;
      if (job.fold > 1) {
        sum_folded_rows(job, block);
      } else {
        for (int64_t col = begin; col < end; col += kPanel) {
          sum_rows(job, block, col, std::min(col + kPanel, end));
        }
      }
    }
  }
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
    parallel_blocks(ceil_div(line, plan.task_rows) * plan.column_tasks, [&](int64_t index) {
      const int64_t begin = index % plan.column_tasks * plan.task_cols;
      const int64_t end = std::min(begin + plan.task_cols, cols);
      sum_stretch<T>(job, first, last, index / plan.column_tasks, begin, end);
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
  const Job job{problem,
                plan,
                at,
                groups,
                folded_rows(problem.cols),
                problem.row_stride() == problem.cols,
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

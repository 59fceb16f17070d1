// SPDX-License-Identifier: Apache-2.0
// Groups of narrow rows (tree.h) where they lie and where their sums go: narrow-inl.h adds, sixteen
// groups at a time where they are equal, whatever has no gaps; rows with gaps are gathered first.

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_GROUPS_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_GROUPS_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_GROUPS_INL_H_
#endif

#include <algorithm>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/grouped_bias_add_grad/chains-inl.h"
#include "ops/grouped_bias_add_grad/job.h"
#include "ops/grouped_bias_add_grad/narrow-inl.h"
#include "ops/grouped_bias_add_grad/narrow_blocks-inl.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Writes sums of groups from `group` on, [count, cols], and may read sixteen behind them.
template <class T>
void write_sums(const Job& job, const float* sums, int64_t group, int64_t count) {
  const int64_t cols = job.problem.cols;
  const int64_t stride = job.problem.dbias.strides[0];
  T* out = static_cast<T*>(job.at.dbias) + group * stride;
  if (stride != cols) {
    for (int64_t i = 0; i < count; ++i) {
      store_first(load16(sums + i * cols), out + i * stride, static_cast<size_t>(cols));
    }
    return;
  }
  const int64_t elements = count * cols;
  for (int64_t at = 0; at < elements; at += kVector) {
    const auto lanes = static_cast<size_t>(std::min(kVector, elements - at));
    put_sum(load16(sums + at), out + at, lanes, job.streaming);
  }
}

// Gathers groups of rows with gaps into `copies`, which have sixteen elements to spare.
template <class T>
void gather_groups(const Job& job, int64_t rows, NarrowGroups<T>& groups, T* copies) {
  const int64_t cols = job.problem.cols;
  for (int64_t i = 0; i < groups.count; ++i) {
    gather(groups.from + i * groups.pitch, job.problem.row_stride(), rows, cols, rows * cols,
           copies + i * rows * cols);
  }
  std::fill_n(copies + groups.count * rows * cols, kVector, T{});
  groups.from = copies;
  groups.pitch = rows * cols;
  groups.open = true;
}

// The totals of a block of narrow rows, lane by lane.
template <class T>
void sum_narrow_block(const Job& job, const T* from, const NarrowRows& block, bool open,
                      double* lanes) {
  if (job.dense) return sum_block(from, block, open, lanes);
  alignas(64) T copies[kChain * kLanes + kLanes];
  alignas(64) double totals[kLanes] = {};
  for (int64_t i = 0; i <= block.chains_before; ++i) {
    const bool last = i == block.chains_before;
    NarrowGroups<T> chain{from + i * block.chain * job.problem.row_stride(), 0, 1, false};
    gather_groups(job, last ? block.rows - i * block.chain : block.chain, chain, copies);
    add_to(totals, sum_vectors(chain.from, last ? block.last : block.full, true));
  }
  std::copy_n(totals, kLanes, lanes);
}

// What follows is fetched while the totals of groups are joined, so that memory does not wait
// meanwhile: the first KiB of the next groups where two streams are read without fetching, else the
// one behind, which the last vectors have not asked for yet ([65536, 512, 1], in turns: two cores
// of Zen 3 3.52 -> 3.43 ms; of Zen 4, FP32, 1.02 to 1.1 times as fast, BF16 level).
template <class T>
HWY_INLINE void fetch_beginning(const T* group) {
  const int64_t begin = finds_streams<T>() ? 0 : kAheadBytes;
  for (int64_t at = begin; at < begin + kAheadBytes; at += static_cast<int64_t>(kLineBytes)) {
    if (finds_streams<T>()) {
      prefetch_to_l1(group, at);
    } else {
      prefetch_to_l2(group, at);
    }
  }
}

// Sums of at most sixteen groups of one block each: [count, cols] to sums, which have sixteen
// elements to spare.
template <class T>
void sum_narrow_groups(const Job& job, const NarrowGroups<T>& groups, const NarrowRows& of_each,
                       float* sums) {
  if (has_few_rows(of_each.rows, of_each.cols)) {
    if (job.dense) return sum_few_rows(groups, of_each, sums);
    alignas(64) T copies[(kChain * kLanes + 1) * kLanes];
    NarrowGroups<T> gathered = groups;
    gather_groups(job, of_each.rows, gathered, copies);
    return sum_few_rows(gathered, of_each, sums);
  }
  alignas(64) double lanes[(kTogether + 1) * kTogether];
  const int64_t last = groups.count - 1;
  const int64_t open_ones = !job.contiguous ? 0 : groups.open ? groups.count : last;
  int64_t done = 0;
  const int64_t half = open_ones / 2;
  if (finds_streams<T>() && half * groups.pitch >= kApart<T>) {
    for (; done < half; ++done) {
      const T* const from = groups.from + done * groups.pitch;
      double* const to = lanes + done * kTogether;
      sum_two_blocks(from, from + half * groups.pitch, of_each, to, to + half * kTogether);
    }
    done = 2 * half;
    fetch_beginning(groups.from + groups.count * groups.pitch);
    fetch_beginning(groups.from + (groups.count + half) * groups.pitch);
  }
  for (; done < open_ones; ++done) {
    sum_block(groups.from + done * groups.pitch, of_each, true, lanes + done * kTogether);
  }
  if (kDropsPrefetches && !finds_streams<T>()) {
    fetch_beginning(groups.from + groups.count * groups.pitch);
  }
  for (int64_t i = open_ones; i < groups.count; ++i) {
    const bool open = groups.open || (job.contiguous && i < last);
    sum_narrow_block(job, groups.from + i * groups.pitch, of_each, open, lanes + i * kTogether);
  }
  std::fill(lanes + groups.count * kTogether, std::end(lanes), 0.0);
  join_totals(lanes, groups.count, of_each.cols, lanes);
  const int64_t elements = groups.count * of_each.cols;
  for (int64_t at = 0; at < elements; at += kVector) {
    for (int64_t i = 0; i < kVector; ++i) sums[at + i] = static_cast<float>(lanes[at + i]);
  }
}

// `count` groups of one block each, from `group` on.
template <class T>
void write_narrow_groups(const Job& job, int64_t group, const Span& span, int64_t count) {
  const Problem& problem = job.problem;
  const NarrowRows of_each(span.rows, problem.cols);
  const int64_t pitch = problem.group_stride();
  const auto* from = static_cast<const T*>(job.at.dy);
  if (span.rows > 0) from += group * pitch + span.first * problem.row_stride();
  const bool tiny = job.contiguous && problem.cols == 1 && span.rows > 1 &&
                    span.rows <= static_cast<int64_t>(kLanes);
  const int64_t left = readable(job, group, span, 0);
  const int64_t elements = span.rows * problem.cols;
  alignas(64) float sums[(kTogether + 1) * kTogether];
  for (int64_t done = 0; done < count;) {
    const int64_t behind = left - done * elements - kVector;
    NarrowGroups<T> part{from + done * pitch, pitch, 0, false};
    // To the next line of dbias, so that lines are written at once.
    part.count = std::min(count - done, kTogether - (group + done) % kTogether);
    const int64_t more = std::min((count - done) / kTogether * kTogether, kTinyTogether);
    if (tiny && part.count == kTogether && behind >= more * elements) {
      part.count = more;
      sum_tiny_columns(part, span.rows, sums);
    } else {
      part.open = behind >= part.count * elements;
      sum_narrow_groups(job, part, of_each, sums);
    }
    write_sums<T>(job, sums, group + done, part.count);
    done += part.count;
  }
}

// The blocks of a group of several that begin in [from, to) on the line of work.
template <class T>
void sum_narrow_blocks(const Job& job, int64_t group, const Span& span, int64_t from, int64_t to) {
  const Problem& problem = job.problem;
  const int64_t block_rows = job.plan.block_rows;
  int64_t row = round_up(std::max(int64_t{0}, from - span.start), block_rows);
  for (; row < span.rows && span.start + row < to; row += block_rows) {
    const int64_t rows = std::min(block_rows, span.rows - row);
    const T* first = static_cast<const T*>(job.at.dy) + group * problem.group_stride() +
                     (span.first + row) * problem.row_stride();
    alignas(64) double lanes[kTogether * kTogether / 2] = {};
    const bool open = readable(job, group, span, row) >= rows * problem.cols + kVector;
    sum_narrow_block(job, first, NarrowRows(rows, problem.cols), open, lanes);
    join_totals(lanes, 1, problem.cols, lanes);
    std::copy_n(lanes, problem.cols, job.partial(span.slot + row / block_rows));
  }
}

// What begins in [from, to) of the wave's line of work, where rows are narrow.
template <class T>
void sum_narrow_stretch(const Job& job, int64_t group, int64_t last, int64_t from, int64_t to) {
  const Problem& problem = job.problem;
  const int64_t of_each = problem.rows + job.plan.group_cost;
  while (group < last) {
    const Span span = job.groups[group];
    if (span.start >= to) return;
    int64_t count = 1;
    if (span.rows > job.plan.block_rows) {
      sum_narrow_blocks<T>(job, group, span, from, to);
    } else if (span.start >= from) {  // else it begins in an earlier stretch
      if (!problem.has_ends()) count = std::min(last, ceil_div(to, of_each)) - group;
      write_narrow_groups<T>(job, group, span, count);
    }
    group += count;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

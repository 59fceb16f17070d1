// SPDX-License-Identifier: Apache-2.0
// How GroupedBiasAddGrad is launched on a GPU, and where a block of threads finds its part: numbers
// that decide the speed and never the bits. For the kernels and for tests on the host.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PLAN_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "base/dtype.h"
#include "kernels/cuda/geometry.h"
#include "ops/grouped_bias_add_grad/problem.h"
#include "ops/grouped_bias_add_grad/tree.h"

namespace aclgrad::grouped_bias_add_grad {

struct CudaTuning {
  unsigned threads;  // of a block that sums rows
  int access_bytes;  // of one thread, where rows are aligned to it
  int own_cols;      // columns of rows that are not long, whose totals a thread has, at most
  int64_t sums;      // FP32 sums of such rows' chains: 32 KB of shared memory
  unsigned join_threads;
  int join_rows;           // totals of a column under way at a time: 32 KB of shared memory
  int join_reads;          // and of them those read ahead of the addition
  int64_t join_blocks;     // of threads, where there are so many groups
  unsigned place_threads;  // of the one block that places groups
  int chains_at_once;      // of each unit of threads, while a block works at one short group
  int groups_at_once;      // of a thread, where groups have few rows
  int64_t short_chains;    // groups of so many chains are left to a unit of threads, or of
  int64_t many_chains;     // so many where there are
  int64_t many_groups;     // this many groups: enough to keep a GPU busy
};
// Chosen by counting what is under way at a time: sixteen loads a thread. Of a big group's hundreds
// of totals a column, eight at a time would take 20 us behind 170 us of reading. Not measured.
inline constexpr CudaTuning kCudaTuning = {128,  16,   4, 8192, 256, 128, 8,
                                           4096, 1024, 4, 4,    4,   64,  8192};

inline constexpr auto kChainRows = static_cast<int64_t>(kChain);

// With ends; the contract's limit.
inline constexpr int kMostGroups = 2048;

enum class Form : uint8_t {
  kFewRows,      // narrow rows, equal groups of few: a unit of threads takes several
  kShortGroups,  // equal groups: a unit of threads each
  kNarrowItems,  // narrow rows: a block of threads an item
  kRows,         // a block an item and tile, its chains side by side
  kLongRows,     // a block an item and tile, chain after chain
};

struct CudaPlan {
  Form form = Form::kLongRows;
  int unit = 0;           // threads, one for each element of a vector (of a row, if it is wider)
  int64_t fold = 1;       // rows of such a vector, a power of two
  int64_t chains = 1;     // of an equal group
  int64_t tile_cols = 0;  // columns of a block of threads
  int64_t tiles = 1;
  bool wide = false;       // accesses of access_bytes
  int64_t join_lanes = 0;  // how many blocks of threads share the groups, for a range of columns
  cuda::Geometry place, sums, join;
};

constexpr int64_t blocks_of_rows(int64_t rows, int64_t block_rows) {
  const int64_t blocks = ceil_div(rows, block_rows);
  return blocks < 1 ? 1 : blocks;
}

// Threads of a unit, and rows of its vector, where an element of the vector is a thread's.
constexpr int unit_of(int64_t cols) {
  return is_narrow(cols) ? static_cast<int>(kLanes) : cols <= 32 ? 32 : 64;
}
constexpr int64_t short_fold(int64_t cols) { return is_narrow(cols) ? narrow_fold(cols) : 1; }

// Most items that good ends give; bad ones may give more, which the blocks take in turns.
inline int64_t expected_items(const Problem& problem, const Plan& plan) {
  if (!problem.has_ends()) return problem.groups * blocks_of_rows(problem.rows, plan.block_rows);
  return problem.groups + problem.rows / plan.block_rows + 1;
}

// Equal groups that units of threads take: short ones, if there are enough of them.
inline bool are_short(const Problem& problem, const Plan& plan, int64_t chains) {
  if (problem.has_ends() || problem.rows > plan.block_rows) return false;
  if (!is_narrow(problem.cols) && problem.cols > kShortRow) return false;
  const bool many = problem.groups >= kCudaTuning.many_groups;
  return chains <= (many ? kCudaTuning.many_chains : kCudaTuning.short_chains);
}

// `aligned`: every row begins where access_bytes can be taken, and is whole accesses long.
inline CudaPlan plan_cuda(const Problem& problem, const Plan& plan, bool aligned) {
  CudaPlan out;
  const int64_t cols = problem.cols;
  const auto width =
      aligned ? kCudaTuning.access_bytes / static_cast<int64_t>(dtype_size(problem.dy.dtype)) : 1;
  out.unit = unit_of(cols);
  out.fold = short_fold(cols);
  out.chains = std::max(int64_t{1}, ceil_div(problem.rows, kChainRows * out.fold));
  out.wide = aligned;
  out.tile_cols = cols;
  const int64_t items = expected_items(problem, plan);
  int64_t pieces = items;
  if (are_short(problem, plan, out.chains)) {
    const bool few = out.fold > 1 && has_few_rows(problem.rows, cols);
    out.form = few ? Form::kFewRows : Form::kShortGroups;
    const int64_t units = kCudaTuning.threads / static_cast<unsigned>(out.unit);
    pieces = ceil_div(problem.groups, units * (few ? kCudaTuning.groups_at_once : 1));
  } else if (is_narrow(cols)) {
    out.form = Form::kNarrowItems;
  } else if (cols < kLongRow) {
    out.form = Form::kRows;
    out.tile_cols = std::min(cols, int64_t{kCudaTuning.threads} * kCudaTuning.own_cols);
  } else {
    out.form = Form::kLongRows;
    out.tile_cols = int64_t{kCudaTuning.threads} * width;
  }
  out.tiles = ceil_div(cols, out.tile_cols);
  out.sums = {cuda::blocks_for(pieces * out.tiles), kCudaTuning.threads};
  if (problem.has_ends()) out.place = {1, kCudaTuning.place_threads};
  if (plan.partial_rows > 0) {
    const int64_t ranges = ceil_div(cols, int64_t{cuda::kWarpLanes});  // a lane a column
    out.join_lanes = std::clamp(kCudaTuning.join_blocks / ranges, int64_t{1}, problem.groups);
    out.join = {cuda::blocks_for(ranges * out.join_lanes), kCudaTuning.join_threads};
  }
  return out;
}

// Rows that stand at place `row` of the vectors of a chain that begins at row `first`, of `rows`.
constexpr int64_t rows_of_lane(int64_t rows, int64_t first, int64_t row, int fold_bits) {
  const int64_t left = rows - first - row;
  const int64_t all = left > 0 ? (left + (int64_t{1} << fold_bits) - 1) >> fold_bits : 0;
  return all < kChainRows ? all : kChainRows;
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PLAN_H_

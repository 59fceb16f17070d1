// SPDX-License-Identifier: Apache-2.0
// What the kernels of GroupedBiasAddGrad have in common: one run, where its items lie, and where
// sums go.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TASK_CUH_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TASK_CUH_

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/plan.h"

namespace aclgrad::grouped_bias_add_grad {

// One run as the kernels see it.
struct Task {
  const void* dy;
  const void* ends;
  void* dbias;
  Span* spans;  // null: equal groups
  double* partials;
  DeviceRecord* record;
  int64_t groups, rows, cols;
  int64_t row_stride, group_stride, out_stride, end_stride;
  int64_t block_rows, partial_rows;
  int64_t tile_cols, tiles;
  int64_t join_lanes;
  int64_t chains;  // of an equal group that units of threads take
  int unit;
  int fold_bits;  // of short_fold()
  int64_t few_rows;
  bool ends_are_wide, ends_are_sizes;
};

// Some of a group's rows: all of its blocks where `slot` is kNoSlot, else block `number`.
struct Item {
  int64_t group;
  int64_t first;   // row of dy
  int64_t rows;    // of the group
  int64_t number;  // of the block
  int64_t slot;
};
inline constexpr int64_t kNoSlot = -1;

__device__ inline int64_t clamp_to(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

__device__ inline int64_t item_count(const Task& task) {
  if (task.spans != nullptr) return task.spans[task.groups].start;
  return task.groups * blocks_of_rows(task.rows, task.block_rows);
}

__device__ inline Item item_at(const Task& task, int64_t index) {
  if (task.spans == nullptr) {
    const int64_t blocks = blocks_of_rows(task.rows, task.block_rows);
    const int64_t group = index / blocks;
    return {group, 0, task.rows, index - group * blocks, blocks > 1 ? group * blocks : kNoSlot};
  }
  int64_t group = 0;
  for (int64_t end = task.groups; end - group > 1;) {
    const int64_t middle = group + (end - group) / 2;
    (task.spans[middle].start <= index ? group : end) = middle;
  }
  const Span span = task.spans[group];
  return {group, span.first, span.rows, index - span.start, span.slot};
}

// The blocks that an item stands for.
__device__ inline int64_t blocks_of(const Task& task, const Item& item) {
  return item.slot != kNoSlot ? 1 : blocks_of_rows(item.rows, task.block_rows);
}

// Some rows of a block.
struct Rows {
  int64_t first;  // element of dy
  int64_t count;
};
__device__ inline Rows rows_of(const Task& task, const Item& item, int64_t number) {
  const int64_t begin = number * task.block_rows;
  const int64_t left = item.rows - begin;
  const int64_t count = left < task.block_rows ? left : task.block_rows;
  return {item.group * task.group_stride + (item.first + begin) * task.row_stride, count};
}

// What an item came to, for column `col`.
template <class T>
__device__ void put(const Task& task, const Item& item, int64_t col, double total) {
  if (item.slot != kNoSlot) {
    task.partials[(item.slot + item.number) * task.cols + col] = total;
  } else {
    static_cast<T*>(task.dbias)[item.group * task.out_stride + col] =
        cuda::narrow<T>(static_cast<float>(total));
  }
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TASK_CUH_

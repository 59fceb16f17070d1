// SPDX-License-Identifier: Apache-2.0
// GroupedBiasAddGrad on a GPU. A group's rows are cut into the blocks of tree.h; a block of threads
// takes one of them by a range of columns and adds it in the order of tree.h, so the bits are the
// CPU's. Groups of one block are written at once; the blocks of others leave FP64 totals, which a
// second kernel joins in order.
#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/problem.h"
#include "ops/grouped_bias_add_grad/tree.h"

namespace aclgrad::grouped_bias_add_grad {
namespace {

struct Tuning {
  unsigned threads;       // of a block that sums rows
  int access_bytes;       // of one thread, where rows are aligned to it
  int64_t totals;         // FP64 totals of a block of wide rows: 40 KB of shared memory
  unsigned join_threads;  // a column each
};
// Chosen by counting what is under way at a time: sixteen loads a thread. Not measured.
constexpr Tuning kTuning = {128, 16, 5120, 128};

constexpr auto kChainRows = static_cast<int64_t>(kChain);

// With ends; the contract's limit.
constexpr int kMostGroups = 2048;

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
  int64_t most_folded, block_rows, partial_rows;
  int64_t tile_cols;  // columns of a block of threads
  int64_t tiles;
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
constexpr int64_t kNoSlot = -1;

__host__ __device__ int64_t blocks_of_rows(int64_t rows, int64_t block_rows) {
  const int64_t blocks = ceil_div(rows, block_rows);
  return blocks < 1 ? 1 : blocks;
}

__device__ int64_t clamp_to(int64_t value, int64_t low, int64_t high) {
  return value < low ? low : value > high ? high : value;
}

__device__ int64_t saturating_sum(int64_t a, int64_t b) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  if (b > 0 && a > kMost - b) return kMost;
  if (b < 0 && a < kLeast - b) return kLeast;
  return a + b;
}

__device__ BadEnd::Rule judge(const Task& task, int64_t given, int64_t end, int64_t previous,
                              bool last) {
  if (given < 0) return BadEnd::Rule::kNegative;
  if (end > std::numeric_limits<int32_t>::max()) return BadEnd::Rule::kTooLarge;
  if (end < previous) return BadEnd::Rule::kDecreasing;
  return last && end != task.rows ? BadEnd::Rule::kNotLast : BadEnd::Rule::kNone;
}

// Reads ends into spans[0 .. groups]; start counts items. A group of several blocks for whose
// totals there is no room (bad ends may name rows again and again) is one item.
__global__ void place_groups(Task task) {
  __shared__ int64_t given[kMostGroups];
  for (int64_t i = cuda::thread_index(); i < task.groups; i += cuda::thread_count()) {
    const int64_t at = i * task.end_stride;
    given[i] = task.ends_are_wide ? static_cast<const int64_t*>(task.ends)[at]
                                  : static_cast<const int32_t*>(task.ends)[at];
  }
  __syncthreads();
  if (cuda::thread_index() != 0) return;
  int64_t previous = 0;
  int64_t items = 0;
  int64_t slots = 0;
  bool good = true;
  for (int64_t group = 0; group < task.groups; ++group) {
    const int64_t value = given[group];
    const int64_t end = task.ends_are_sizes ? saturating_sum(previous, value) : value;
    const BadEnd::Rule rule = judge(task, value, end, previous, group + 1 == task.groups);
    if (good && rule != BadEnd::Rule::kNone) {
      good = false;
      task.record->numbers[0] = group;
      task.record->numbers[1] = value;
      task.record->numbers[2] = end;
      task.record->numbers[3] = previous;
      task.record->rule = static_cast<int64_t>(rule);
    }
    const int64_t first = clamp_to(previous, 0, task.rows);
    const int64_t rows = clamp_to(end, first, task.rows) - first;
    const int64_t blocks = blocks_of_rows(rows, task.block_rows);
    const bool joined = blocks > 1 && slots + blocks <= task.partial_rows;
    task.spans[group] = {first, rows, items, joined ? slots : kNoSlot};
    items += joined ? blocks : 1;
    if (joined) slots += blocks;
    previous = end;
  }
  task.spans[task.groups] = {0, 0, items, kNoSlot};
}

__device__ int64_t item_count(const Task& task) {
  if (task.spans != nullptr) return task.spans[task.groups].start;
  return task.groups * blocks_of_rows(task.rows, task.block_rows);
}

__device__ Item item_at(const Task& task, int64_t index) {
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

// kWidth neighbouring elements in one access.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Group {
  T each[kWidth];
};

// Rows of a block, as tree.h folds them.
struct Rows {
  int64_t first;  // element of dy
  int64_t count;
  int64_t fold;
};

// The totals of columns [col, col + kWidth) of the wide rows' row j.
template <class T, int kWidth>
__device__ void add_chains(const Task& task, const Rows& rows, int64_t j, int64_t col,
                           double (&totals)[kWidth]) {
  const T* const from = static_cast<const T*>(task.dy) + rows.first + j * task.row_stride + col;
  const int64_t step = rows.fold * task.row_stride;
  const int64_t wide_rows = rows.count > j ? ceil_div(rows.count - j, rows.fold) : 0;
  for (int k = 0; k < kWidth; ++k) totals[k] = 0.0;
  for (int64_t wide = 0; wide < wide_rows; wide += kChainRows) {
    using Access = Group<T, kWidth>;
    Access values[kChainRows];
    const T* const row = from + wide * step;
    const int64_t left = wide_rows - wide;
#pragma unroll
    for (int i = 0; i < kChainRows; ++i) {
      if (i < left) values[i] = *reinterpret_cast<const Access*>(row + i * step);
    }
    float sums[kWidth] = {};
#pragma unroll
    for (int i = 0; i < kChainRows; ++i) {
      if (i >= left) continue;
      for (int k = 0; k < kWidth; ++k) sums[k] += cuda::widen(values[i].each[k]);
    }
    for (int k = 0; k < kWidth; ++k) totals[k] += static_cast<double>(sums[k]);
  }
}

// What a block of rows came to, for column `col`.
template <class T>
__device__ void put(const Task& task, const Item& item, int64_t col, double total) {
  if (item.slot != kNoSlot) {
    task.partials[(item.slot + item.number) * task.cols + col] = total;
  } else {
    static_cast<T*>(task.dbias)[item.group * task.out_stride + col] =
        cuda::narrow<T>(static_cast<float>(total));
  }
}

// The rows of block `number` of an item's group.
__device__ Rows rows_of(const Task& task, const Item& item, int64_t number) {
  const int64_t begin = number * task.block_rows;
  const int64_t left = item.rows - begin;
  const int64_t count = left < task.block_rows ? left : task.block_rows;
  int64_t fold = 1;
  if (is_narrow(task.cols)) {
    fold = narrow_fold(task.cols);
  } else if (!is_small_group(item.rows, task.cols)) {
    fold = folded_rows(item.rows, task.most_folded);
  }
  return {item.group * task.group_stride + (item.first + begin) * task.row_stride, count, fold};
}

// Columns [begin, end) of an item, a thread a group of columns: rows that are not folded.
template <class T, int kWidth>
__device__ void sum_long_rows(const Task& task, const Item& item, int64_t begin, int64_t end) {
  const int64_t blocks = item.slot != kNoSlot ? 1 : blocks_of_rows(item.rows, task.block_rows);
  const int64_t stride = int64_t{cuda::thread_count()} * kWidth;
  for (int64_t col = begin + int64_t{cuda::thread_index()} * kWidth; col < end; col += stride) {
    double sums[kWidth] = {};
    for (int64_t block = 0; block < blocks; ++block) {
      double totals[kWidth];
      add_chains<T, kWidth>(task, rows_of(task, item, item.number + block), 0, col, totals);
      for (int k = 0; k < kWidth; ++k) sums[k] += totals[k];
    }
    for (int k = 0; k < kWidth; ++k) put<T>(task, item, col + k, sums[k]);
  }
}

// The same for wide rows, whose totals are folded in shared memory. All threads of the block call
// it.
template <class T, int kWidth>
__device__ void sum_wide_rows(const Task& task, const Item& item, int64_t begin, int64_t end,
                              double* totals) {
  const int64_t cols = end - begin;
  const int64_t blocks = item.slot != kNoSlot ? 1 : blocks_of_rows(item.rows, task.block_rows);
  const bool narrow = is_narrow(task.cols);
  // Sums of FP32 numbers that are rounded to FP32 are those of FP32.
  const bool few = narrow && has_few_rows(item.rows, task.cols);
  for (int64_t block = 0; block < blocks; ++block) {
    const Rows rows = rows_of(task, item, item.number + block);
    // Narrow rows that a vector has not count as zeros, as on the CPU.
    int64_t kept = narrow || rows.fold < rows.count ? rows.fold : rows.count;
    const int64_t accesses = cols / kWidth;
    for (int64_t i = cuda::thread_index(); i < kept * accesses; i += cuda::thread_count()) {
      const int64_t j = i / accesses;
      const int64_t col = i % accesses * kWidth;
      double sums[kWidth];
      add_chains<T, kWidth>(task, rows, j, begin + col, sums);
      for (int k = 0; k < kWidth; ++k) totals[j * cols + col + k] = sums[k];
    }
    __syncthreads();
    while (kept > 1) {
      const int64_t half = ceil_div(kept, int64_t{2});
      for (int64_t i = cuda::thread_index(); i < (kept - half) * cols; i += cuda::thread_count()) {
        const double sum = totals[i] + totals[half * cols + i];
        totals[i] = few ? static_cast<double>(static_cast<float>(sum)) : sum;
      }
      __syncthreads();
      kept = half;
    }
    // Behind the folded totals: the sum of the blocks before.
    double* const sums = totals + kTuning.totals - cols;
    for (int64_t i = cuda::thread_index(); i < cols; i += cuda::thread_count()) {
      if (blocks == 1) {
        put<T>(task, item, begin + i, kept > 0 ? totals[i] : 0.0);
        continue;
      }
      sums[i] = (block == 0 ? 0.0 : sums[i]) + totals[i];
      if (block + 1 == blocks) put<T>(task, item, begin + i, sums[i]);
    }
    __syncthreads();
  }
}

template <class T, int kWidth, bool kFolded>
__global__ void __launch_bounds__(kTuning.threads) sum_blocks(Task task) {
  const int64_t pieces = item_count(task) * task.tiles;
  for (int64_t piece = cuda::block_index(); piece < pieces; piece += cuda::block_count()) {
    const Item item = item_at(task, piece / task.tiles);
    const int64_t begin = piece % task.tiles * task.tile_cols;
    const int64_t end = clamp_to(begin + task.tile_cols, 0, task.cols);
    if constexpr (kFolded) {
      __shared__ double totals[kTuning.totals];
      sum_wide_rows<T, kWidth>(task, item, begin, end, totals);
    } else {
      sum_long_rows<T, kWidth>(task, item, begin, end);
    }
  }
}

// The groups of several blocks from their totals, in order.
template <class T>
__global__ void __launch_bounds__(kTuning.join_threads) join_blocks(Task task) {
  constexpr int kAtOnce = 8;
  const int64_t ranges = ceil_div(task.cols, int64_t{kTuning.join_threads});
  const int64_t pieces = task.groups * ranges;
  for (int64_t piece = cuda::block_index(); piece < pieces; piece += cuda::block_count()) {
    const int64_t group = piece / ranges;
    const int64_t col = piece % ranges * kTuning.join_threads + cuda::thread_index();
    int64_t rows = task.rows;
    int64_t slot = group * blocks_of_rows(rows, task.block_rows);
    if (task.spans != nullptr) {
      rows = task.spans[group].rows;
      slot = task.spans[group].slot;
    }
    const int64_t blocks = blocks_of_rows(rows, task.block_rows);
    if (blocks == 1 || slot == kNoSlot || col >= task.cols) continue;
    const double* const from = task.partials + slot * task.cols + col;
    double total = 0.0;
    for (int64_t block = 0; block < blocks; block += kAtOnce) {
      double values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (block + i < blocks) values[i] = from[(block + i) * task.cols];
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (block + i < blocks) total += values[i];
      }
    }
    static_cast<T*>(task.dbias)[group * task.out_stride + col] =
        cuda::narrow<T>(static_cast<float>(total));
  }
}

// Most items that good ends give; bad ones may give more, which the blocks take in turns.
int64_t expected_items(const Task& task) {
  const int64_t blocks = task.rows / task.block_rows + 1;
  return task.spans == nullptr ? task.groups * blocks_of_rows(task.rows, task.block_rows)
                               : task.groups + blocks;
}

template <class T, int kWidth, bool kFolded>
cudaError_t launch_sums(Task& task, const CudaQueue& queue) {
  if (kFolded) {
    // The last columns' room is for sums over blocks.
    const int64_t most = kTuning.totals / (task.most_folded + 1);
    task.tile_cols = std::min(task.cols, std::max(int64_t{kWidth}, most / kWidth * kWidth));
  } else {
    task.tile_cols = int64_t{kTuning.threads} * kWidth;
  }
  task.tiles = ceil_div(task.cols, task.tile_cols);
  const int64_t blocks = cuda::blocks_for(expected_items(task) * task.tiles);
  return cuda::launch(queue, {blocks, kTuning.threads}, sum_blocks<T, kWidth, kFolded>, task);
}

template <class T>
cudaError_t launch(const Problem& problem, Task& task, const CudaQueue& queue) {
  constexpr int kWidth = kTuning.access_bytes / static_cast<int>(sizeof(T));
  if (task.spans != nullptr) {
    const cudaError_t error = cuda::launch(queue, {1, 256}, place_groups, task);
    if (error != cudaSuccess) return error;
  }
  const auto whole = [](int64_t elements) { return elements % kWidth == 0; };
  const bool wide = reinterpret_cast<uintptr_t>(task.dy) % kTuning.access_bytes == 0 &&
                    whole(task.cols) && whole(task.row_stride) && whole(task.group_stride);
  const bool folded = problem.cols < kLongRow;
  const cudaError_t error = folded ? (wide ? launch_sums<T, kWidth, true>(task, queue)
                                           : launch_sums<T, 1, true>(task, queue))
                                   : (wide ? launch_sums<T, kWidth, false>(task, queue)
                                           : launch_sums<T, 1, false>(task, queue));
  if (error != cudaSuccess || task.partial_rows == 0) return error;
  const int64_t pieces = task.groups * ceil_div(task.cols, int64_t{kTuning.join_threads});
  return cuda::launch(queue, {cuda::blocks_for(pieces), kTuning.join_threads}, join_blocks<T>,
                      task);
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Plan& plan, const Addresses& at,
                    DeviceRecord* record, const CudaQueue& queue) {
  Task task{};
  task.dy = at.dy;
  task.ends = at.ends;
  task.dbias = at.dbias;
  task.spans = problem.has_ends() ? static_cast<Span*>(at.spans) : nullptr;
  task.partials = static_cast<double*>(at.partials);
  task.record = record;
  task.groups = problem.groups;
  task.rows = problem.rows;
  task.cols = problem.cols;
  task.row_stride = problem.row_stride();
  task.group_stride = problem.group_stride();
  task.out_stride = problem.dbias.strides[0];
  task.end_stride = problem.has_ends() ? problem.ends.strides[0] : 0;
  task.most_folded = plan.most_folded;
  task.block_rows = plan.block_rows;
  task.partial_rows = plan.partial_rows;
  task.ends_are_wide = problem.ends.dtype == ACL_INT64;
  task.ends_are_sizes = problem.ends_are_sizes;
  switch (problem.dy.dtype) {
    case ACL_FLOAT16:
      return launch<float16_t>(problem, task, queue);
    case ACL_BF16:
      return launch<bfloat16_t>(problem, task, queue);
    default:
      return launch<float>(problem, task, queue);
  }
}

}  // namespace aclgrad::grouped_bias_add_grad

// SPDX-License-Identifier: Apache-2.0
// GroupedBiasAddGrad on a GPU. A group's rows are cut into the blocks of tree.h; a block of threads
// takes one of them by a range of columns and adds it in the order of tree.h, so the bits are the
// CPU's. Groups of one block are written at once; the blocks of others leave FP64 totals, which a
// second kernel joins in order. Narrow and short rows: short_groups.cuh.
#include "base/checked.h"
#include "ops/grouped_bias_add_grad/place.cuh"
#include "ops/grouped_bias_add_grad/problem.h"
#include "ops/grouped_bias_add_grad/short_groups.cuh"

namespace aclgrad::grouped_bias_add_grad {
namespace {

// kWidth neighbouring elements in one access.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Group {
  T each[kWidth];
};

// The sums of columns [col, col + kWidth) of one chain: of the rows from `from` on, `left` of them.
template <class T, int kWidth>
__device__ void add_chain(const Task& task, const T* from, int64_t left, float (&sums)[kWidth]) {
  using Access = Group<T, kWidth>;
  Access values[kChainRows];
#pragma unroll
  for (int i = 0; i < kChainRows; ++i) {
    if (i < left) values[i] = *reinterpret_cast<const Access*>(from + i * task.row_stride);
  }
#pragma unroll
  for (int i = 0; i < kChainRows; ++i) {
    if (i >= left) continue;
    for (int k = 0; k < kWidth; ++k) sums[k] += cuda::widen(values[i].each[k]);
  }
}

// Columns [begin, end) of an item, a thread a group of columns, chain after chain.
template <class T, int kWidth>
__device__ void sum_long_rows(const Task& task, const Item& item, int64_t begin, int64_t end) {
  const int64_t blocks = blocks_of(task, item);
  const int64_t stride = int64_t{cuda::thread_count()} * kWidth;
  for (int64_t col = begin + int64_t{cuda::thread_index()} * kWidth; col < end; col += stride) {
    double sums[kWidth] = {};
    for (int64_t block = 0; block < blocks; ++block) {
      const Rows rows = rows_of(task, item, item.number + block);
      const T* const from = static_cast<const T*>(task.dy) + rows.first + col;
      double totals[kWidth] = {};
      for (int64_t row = 0; row < rows.count; row += kChainRows) {
        float chain[kWidth] = {};
        add_chain(task, from + row * task.row_stride, rows.count - row, chain);
        for (int k = 0; k < kWidth; ++k) totals[k] += static_cast<double>(chain[k]);
      }
      for (int k = 0; k < kWidth; ++k) sums[k] += totals[k];
    }
    for (int k = 0; k < kWidth; ++k) put<T>(task, item, col + k, sums[k]);
  }
}

// The same for rows of fewer elements: as many chains as there is room for side by side. All
// threads of the block call it.
template <class T, int kWidth>
__device__ void sum_rows(const Task& task, const Item& item, int64_t begin, int64_t end,
                         float* sums) {
  constexpr int kOwn = kCudaTuning.own_cols;
  constexpr int64_t kMostCols = int64_t{kCudaTuning.threads} * kOwn;
  static_assert(kMostCols % kWidth == 0 && kMostCols <= kCudaTuning.sums);
  const int64_t cols = end - begin;
  const int64_t accesses = cols / kWidth;
  const int64_t of_round = kCudaTuning.sums / cols;
  const int64_t blocks = blocks_of(task, item);
  double all[kOwn] = {};
  for (int64_t block = 0; block < blocks; ++block) {
    const Rows rows = rows_of(task, item, item.number + block);
    const T* const from = static_cast<const T*>(task.dy) + rows.first + begin;
    const int64_t chains = ceil_div(rows.count, kChainRows);
    double totals[kOwn] = {};
    for (int64_t first = 0; first < chains; first += of_round) {
      const int64_t here = clamp_to(chains - first, 0, of_round);
      for (int64_t i = cuda::thread_index(); i < here * accesses; i += cuda::thread_count()) {
        const int64_t row = (first + i / accesses) * kChainRows;
        const int64_t col = i % accesses * kWidth;
        float chain[kWidth] = {};
        add_chain(task, from + row * task.row_stride + col, rows.count - row, chain);
        for (int k = 0; k < kWidth; ++k) sums[i / accesses * cols + col + k] = chain[k];
      }
      __syncthreads();
      for (int own = 0; own < kOwn; ++own) {
        const int64_t col = cuda::thread_index() + int64_t{own} * cuda::thread_count();
        if (col >= cols) continue;
        for (int64_t chain = 0; chain < here; ++chain) {
          totals[own] += static_cast<double>(sums[chain * cols + col]);
        }
      }
      __syncthreads();  // the next ones come to the same place
    }
    for (int own = 0; own < kOwn; ++own) all[own] += totals[own];
  }
  for (int own = 0; own < kOwn; ++own) {
    const int64_t col = cuda::thread_index() + int64_t{own} * cuda::thread_count();
    if (col < cols) put<T>(task, item, begin + col, all[own]);
  }
}

template <class T, int kWidth, bool kLong>
__global__ void __launch_bounds__(kCudaTuning.threads) sum_blocks(Task task) {
  const Lane lane(task);
  const int64_t pieces = item_count(task) * task.tiles;
  for (int64_t piece = cuda::block_index(); piece < pieces; piece += cuda::block_count()) {
    const Item item = item_at(task, piece / task.tiles);
    const int64_t begin = piece % task.tiles * task.tile_cols;
    const int64_t end = clamp_to(begin + task.tile_cols, 0, task.cols);
    if constexpr (kLong) {
      sum_long_rows<T, kWidth>(task, item, begin, end);
    } else {
      __shared__ float sums[kCudaTuning.sums];
      static_assert(kCudaTuning.sums >= 2 * kRoundSums);
      if (task.cols <= kShortRow) {
        sum_short_item<T>(task, item, lane, sums);
      } else {
        sum_rows<T, kWidth>(task, item, begin, end, sums);
      }
    }
  }
}

// A group's totals of columns [col - lane, ...), a lane a column, added in order by the first warp.
// All threads of the block call it.
template <class T>
__device__ void join_group(const Task& task, int64_t group, int64_t slot, int64_t blocks,
                           int64_t col) {
  constexpr int kRows = kCudaTuning.join_rows;
  constexpr int kWarps = static_cast<int>(kCudaTuning.join_threads) / cuda::kWarpLanes;
  __shared__ double totals[kRows][cuda::kWarpLanes];
  const int lane = cuda::lane_index();
  const double* const from = task.partials + slot * task.cols + col;
  double total = 0.0;
  for (int64_t block = 0; block < blocks; block += kRows) {
    const int64_t left = blocks - block;
#pragma unroll
    for (int i = 0; i < kRows / kWarps; ++i) {
      const int row = i * kWarps + cuda::warp_index();
      if (row < left && col < task.cols) totals[row][lane] = from[(block + row) * task.cols];
    }
    __syncthreads();
    if (cuda::warp_index() == 0 && col < task.cols) {
      const int here = static_cast<int>(left < kRows ? left : kRows);
#pragma unroll kCudaTuning.join_reads
      for (int row = 0; row < here; ++row) total += totals[row][lane];
    }
    __syncthreads();  // the next ones come to the same place
  }
  if (cuda::warp_index() != 0 || col >= task.cols) return;
  static_cast<T*>(task.dbias)[group * task.out_stride + col] =
      cuda::narrow<T>(static_cast<float>(total));
}

// The groups of several blocks from their totals. A block of threads takes some columns of every
// join_lanes-th group; each of its warps looks at 32 groups at once, because most may have nothing
// to join.
template <class T>
__global__ void __launch_bounds__(kCudaTuning.join_threads) join_blocks(Task task) {
  const int64_t ranges = ceil_div(task.cols, int64_t{cuda::kWarpLanes});
  const int64_t lanes = task.join_lanes;
  for (int64_t piece = cuda::block_index(); piece < ranges * lanes; piece += cuda::block_count()) {
    const int64_t col = piece % ranges * cuda::kWarpLanes + cuda::lane_index();
    for (int64_t first = piece / ranges; first < task.groups; first += lanes * cuda::kWarpLanes) {
      const int64_t own = first + lanes * cuda::lane_index();
      int64_t slot = kNoSlot;
      int64_t blocks = 1;
      if (own < task.groups && task.spans != nullptr) {
        const Span& span = task.spans[own];
        blocks = blocks_of_rows(span.rows, task.block_rows);
        slot = span.slot;
      } else if (own < task.groups) {
        blocks = blocks_of_rows(task.rows, task.block_rows);
        slot = own * blocks;
      }
      unsigned joined = __ballot_sync(cuda::kAllLanes, blocks > 1 && slot != kNoSlot ? 1 : 0);
      for (; joined != 0; joined &= joined - 1) {
        const int bit = __ffs(static_cast<int>(joined)) - 1;
        join_group<T>(task, first + lanes * bit, __shfl_sync(cuda::kAllLanes, slot, bit),
                      __shfl_sync(cuda::kAllLanes, blocks, bit), col);
      }
    }
  }
}

template <class T>
cudaError_t launch_sums(const CudaPlan& plan, const Task& task, const CudaQueue& queue) {
  constexpr int kWidth = kCudaTuning.access_bytes / static_cast<int>(sizeof(T));
  switch (plan.form) {
    case Form::kFewRows:
      return cuda::launch(queue, plan.sums, sum_few_rows<T>, task);
    case Form::kShortGroups:
      return cuda::launch(queue, plan.sums, sum_short_groups<T>, task);
    case Form::kNarrowItems:
      return cuda::launch(queue, plan.sums, sum_narrow_items<T>, task);
    case Form::kRows:
      return plan.wide ? cuda::launch(queue, plan.sums, sum_blocks<T, kWidth, false>, task)
                       : cuda::launch(queue, plan.sums, sum_blocks<T, 1, false>, task);
    case Form::kLongRows:
      break;
  }
  return plan.wide ? cuda::launch(queue, plan.sums, sum_blocks<T, kWidth, true>, task)
                   : cuda::launch(queue, plan.sums, sum_blocks<T, 1, true>, task);
}

template <class T>
cudaError_t launch(const CudaPlan& plan, const Task& task, const CudaQueue& queue) {
  cudaError_t error = cuda::launch(queue, plan.place, place_groups, task);
  if (error == cudaSuccess) error = launch_sums<T>(plan, task, queue);
  if (error == cudaSuccess) error = cuda::launch(queue, plan.join, join_blocks<T>, task);
  return error;
}

bool is_aligned(const Problem& problem, const void* dy) {
  const auto size = static_cast<int64_t>(dtype_size(problem.dy.dtype));
  const auto whole = [&](int64_t elements) {
    return elements * size % kCudaTuning.access_bytes == 0;
  };
  return reinterpret_cast<uintptr_t>(dy) % kCudaTuning.access_bytes == 0 && whole(problem.cols) &&
         whole(problem.row_stride()) && whole(problem.group_stride());
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Plan& plan, const Addresses& at,
                    DeviceRecord* record, const CudaQueue& queue) {
  const CudaPlan launches = plan_cuda(problem, plan, is_aligned(problem, at.dy));
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
  task.block_rows = plan.block_rows;
  task.partial_rows = plan.partial_rows;
  task.tile_cols = launches.tile_cols;
  task.tiles = launches.tiles;
  task.join_lanes = launches.join_lanes;
  task.chains = launches.chains;
  task.unit = launches.unit;
  task.fold_bits = std::countr_zero(static_cast<uint64_t>(launches.fold));
  task.few_rows = is_narrow(problem.cols) ? few_rows(problem.cols) : 0;
  task.ends_are_wide = problem.ends.dtype == ACL_INT64;
  task.ends_are_sizes = problem.ends_are_sizes;
  switch (problem.dy.dtype) {
    case ACL_FLOAT16:
      return launch<float16_t>(launches, task, queue);
    case ACL_BF16:
      return launch<bfloat16_t>(launches, task, queue);
    default:
      return launch<float>(launches, task, queue);
  }
}

}  // namespace aclgrad::grouped_bias_add_grad

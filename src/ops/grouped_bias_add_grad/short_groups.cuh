// SPDX-License-Identifier: Apache-2.0
// Narrow rows (tree.h), and short ones (problem.h): a vector of such rows has at most 64
// elements, each of which a thread of a unit adds down a chain; what is left of a unit's vectors is
// joined by shuffles. Many equal groups are shared among units, other items among the units of a
// block, chain by chain.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_SHORT_GROUPS_CUH_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_SHORT_GROUPS_CUH_

#include "ops/grouped_bias_add_grad/task.cuh"

namespace aclgrad::grouped_bias_add_grad {

// A thread's element of its unit's vectors. One behind the vector has no rows.
struct Lane {
  int64_t row;  // of the rows of a vector
  int64_t col;
  bool has_rows;

  __device__ explicit Lane(const Task& task) {
    const int number = cuda::thread_index() % task.unit;
    const int cols = static_cast<int>(task.cols);
    row = number / cols;
    col = number % cols;
    has_rows = row < int64_t{1} << task.fold_bits;
  }
  // Writes the sum: the first row's threads.
  __device__ bool writes() const { return row == 0; }
};

// The lane's rows of chain `chain` of a group or block, from its first element on.
template <class T>
struct LaneRows {
  const T* from;
  int64_t step;
  int64_t count;

  __device__ LaneRows(const Task& task, const Rows& rows, const Lane& lane, int64_t chain) {
    const int64_t first = chain * (kChainRows << task.fold_bits);
    step = task.row_stride << task.fold_bits;
    count = lane.has_rows ? rows_of_lane(rows.count, first, lane.row, task.fold_bits) : 0;
    from = static_cast<const T*>(task.dy) + rows.first + (first + lane.row) * task.row_stride +
           lane.col;
  }
};

template <class T>
__device__ float sum_chain(const Task& task, const Rows& rows, const Lane& lane, int64_t chain) {
  const LaneRows<T> own(task, rows, lane, chain);
  T values[kChainRows];
#pragma unroll
  for (int i = 0; i < kChainRows; ++i) {
    if (i < own.count) values[i] = own.from[i * own.step];
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kChainRows; ++i) {
    if (i < own.count) sum += cuda::widen(values[i]);
  }
  return sum;
}

// Joins the rows of a vector, by halves. All lanes of the warp call it.
template <class Number>
__device__ Number join_rows(const Task& task, Number sum) {
  const auto cols = static_cast<unsigned>(task.cols);
  for (unsigned half = (1u << task.fold_bits) / 2; half > 0; half /= 2) {
    sum += __shfl_down_sync(cuda::kAllLanes, sum, half * cols);
  }
  return sum;
}

// Groups of few rows stay in FP32.
__device__ inline double join_vectors(const Task& task, double total, int64_t rows) {
  if (task.fold_bits == 0) return total;
  if (rows > task.few_rows) return join_rows(task, total);
  return static_cast<double>(join_rows(task, static_cast<float>(total)));
}

__device__ inline Item equal_group(const Task& task, int64_t group) {
  return {group, 0, task.rows, 0, kNoSlot};
}

// Equal groups, a unit of threads each.
template <class T>
__global__ void __launch_bounds__(kCudaTuning.threads) sum_short_groups(Task task) {
  const Lane lane(task);
  const int64_t units = cuda::thread_count() / task.unit;
  const int64_t own = cuda::thread_index() / task.unit;
  for (int64_t first = cuda::block_index() * units; first < task.groups;
       first += cuda::block_count() * units) {
    const bool present = first + own < task.groups;
    const Item item = equal_group(task, present ? first + own : first);
    const Rows rows = rows_of(task, item, 0);
    double total = 0.0;
    for (int64_t chain = 0; chain < task.chains; ++chain) {
      total += static_cast<double>(sum_chain<T>(task, rows, lane, chain));
    }
    total = join_vectors(task, total, task.rows);
    if (present && lane.writes()) put<T>(task, item, lane.col, total);
  }
}

// Equal groups of few narrow rows: as many of them are under way as make sixteen loads.
template <class T>
__global__ void __launch_bounds__(kCudaTuning.threads) sum_few_rows(Task task) {
  constexpr int kGroups = kCudaTuning.groups_at_once;
  constexpr int kVectors = static_cast<int>(kChainRows) / kGroups;
  static_assert(kVectors >= kFewVectors, "a thread has a group's rows whole");
  const Lane lane(task);
  const int64_t units = cuda::thread_count() / task.unit;
  const int64_t own = cuda::thread_index() / task.unit;
  for (int64_t first = cuda::block_index() * units * kGroups; first < task.groups;
       first += cuda::block_count() * units * kGroups) {
    T values[kGroups][kVectors];
    int64_t count = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t group = first + g * units + own;
      if (group >= task.groups) continue;
      const LaneRows<T> rows(task, rows_of(task, equal_group(task, group), 0), lane, 0);
      count = rows.count;  // the same for all groups
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (i < count) values[g][i] = rows.from[i * rows.step];
      }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      const int64_t group = first + g * units + own;
      const bool present = group < task.groups;
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        if (present && i < count) sum += cuda::widen(values[g][i]);
      }
      sum = join_rows(task, sum);
      if (present && lane.writes()) {
        put<T>(task, equal_group(task, group), lane.col, static_cast<double>(sum));
      }
    }
  }
}

// Floats of shared memory for the chains of one round, and for those of the next one.
inline constexpr int kRoundSums =
    static_cast<int>(kCudaTuning.threads) * kCudaTuning.chains_at_once;

// The total of a block of rows, in the first unit's threads, before its vectors are joined.
template <class T>
__device__ double sum_chains(const Task& task, const Rows& rows, const Lane& lane, float* sums) {
  const int units = cuda::thread_count() / task.unit;
  const int own = cuda::thread_index() / task.unit;
  const int number = cuda::thread_index() % task.unit;
  const int of_round = units * kCudaTuning.chains_at_once;
  const int64_t chains = ceil_div(rows.count, kChainRows << task.fold_bits);
  double total = 0.0;
  int side = 0;
  for (int64_t first = 0; first < chains; first += of_round) {
    float* const round = sums + side * kRoundSums;
    for (int i = own; i < of_round && first + i < chains; i += units) {
      round[i * task.unit + number] = sum_chain<T>(task, rows, lane, first + i);
    }
    __syncthreads();
    if (own == 0) {
      for (int i = 0; i < of_round && first + i < chains; ++i) {
        total += static_cast<double>(round[i * task.unit + number]);
      }
    }
    side = 1 - side;
  }
  __syncthreads();  // the next block's chains come to the same place
  return total;
}

// An item by a block of threads, all of which call it. `sums`: 2 * kRoundSums.
template <class T>
__device__ void sum_short_item(const Task& task, const Item& item, const Lane& lane, float* sums) {
  const int64_t blocks = blocks_of(task, item);
  double all = 0.0;
  for (int64_t block = 0; block < blocks; ++block) {
    const double total = sum_chains<T>(task, rows_of(task, item, item.number + block), lane, sums);
    if (cuda::warp_index() == 0 || task.unit > cuda::kWarpLanes) {
      all += join_vectors(task, total, item.rows);
    }
  }
  if (cuda::thread_index() < task.unit && lane.writes()) put<T>(task, item, lane.col, all);
}

// Items of narrow rows.
template <class T>
__global__ void __launch_bounds__(kCudaTuning.threads) sum_narrow_items(Task task) {
  __shared__ float sums[2 * kRoundSums];
  const Lane lane(task);
  const int64_t items = item_count(task);
  for (int64_t i = cuda::block_index(); i < items; i += cuda::block_count()) {
    sum_short_item<T>(task, item_at(task, i), lane, sums);
  }
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_SHORT_GROUPS_CUH_

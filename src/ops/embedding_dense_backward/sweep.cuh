// SPDX-License-Identifier: Apache-2.0
// The sweep on a GPU: blocks of equal numbers of table rows and gradient rows together write zeros,
// or the sum of a run that is not long.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_SWEEP_CUH_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_SWEEP_CUH_

#include <cstdint>

#include "ops/embedding_dense_backward/task.cuh"

namespace aclgrad::embedding_dense_backward::gpu {

// The rows of a block of the sweep, and what goes there. Entries are those of the order from
// `first` on.
struct SweepShared {
  int64_t edges[2];  // entries at which the block begins and ends
  int begin[kMostItems];
  int end[kMostItems];  // 0: no gradient row
  int64_t offsets[kMostItems + kLongRun];
};
constexpr int kBeginsBefore = -1;

// Entries before item `item` of the line on which every table row follows its gradient rows.
__device__ inline int64_t entries_before(const Task& task, int64_t item) {
  const int64_t least = item - task.table_rows - 1;
  return warp_partition_point(least > 0 ? least : 0, item < task.rows ? item : task.rows,
                              [&](int64_t i) { return is_before(i, task.keys[i], item); });
}

// Accesses of a piece of a row that are one thread's: each `step` columns behind the one before,
// `count` of them.
template <class T, class TOut>
struct Piece {
  const T* from;  // of the first gradient row of dy
  TOut* to;
  int64_t step;
  int count;
};

// A piece of a table row from a run that is one chain.
template <class T, class TOut, int kColumns>
__device__ void sum_short_run(const Piece<T, TOut>& piece, const int64_t* offsets, int count,
                              bool scale) {
  float sums[kCudaTuning.accesses][kColumns] = {};
  for (int i = 0; i < count; ++i) {
    Word<T, kColumns> values[kCudaTuning.accesses];
    const T* from = piece.from + offsets[i];
#pragma unroll
    for (int a = 0; a < kCudaTuning.accesses; ++a, from += piece.step) {
      if (a < piece.count) values[a] = load<T, kColumns>(from);
    }
#pragma unroll
    for (int a = 0; a < kCudaTuning.accesses; ++a) {
      if (a < piece.count) add<T>(values[a], sums[a]);
    }
  }
  if (scale && count > 1) {
    const auto divisor = static_cast<float>(count);
#pragma unroll
    for (auto& each : sums) {
      for (float& sum : each) sum /= divisor;
    }
  }
  TOut* to = piece.to;
#pragma unroll
  for (int a = 0; a < kCudaTuning.accesses; ++a, to += piece.step) {
    if (a < piece.count) store(to, sums[a]);
  }
}

// The same from a run of several chains, one access at a time.
template <class T, class TOut, int kColumns>
__device__ void sum_medium_run(const Piece<T, TOut>& piece, const int64_t* offsets, int count,
                               bool scale) {
  constexpr int kBatch = kCudaTuning.chain_batch;
  const T* from = piece.from;
  TOut* to = piece.to;
#pragma unroll 1
  for (int a = 0; a < piece.count; ++a, from += piece.step, to += piece.step) {
    double totals[kColumns] = {};
    float sums[kColumns] = {};
#pragma unroll 1
    for (int batch = 0; batch < count; batch += kBatch) {
      Word<T, kColumns> values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (batch + i < count) {
          values[i] = load<T, kColumns>(from + offsets[batch + i]);
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (batch + i < count) add<T>(values[i], sums);
      }
      // The chain ends here.
      if ((batch + kBatch) % kChainRows != 0 && batch + kBatch < count) continue;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        totals[c] += static_cast<double>(sums[c]);
        sums[c] = 0.0f;
      }
    }
    const double divisor = scale ? count : 1;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] = static_cast<float>(totals[c] / divisor);
    store(to, sums);
  }
}

// Finds where the runs of rows [first_row, end_row) begin and end among entries [first, end).
__device__ inline void place_runs(const Task& task, SweepShared& shared, int64_t first_row,
                                  int64_t end_row, int64_t first, int64_t end) {
  for (int i = thread_index(); i < end_row - first_row; i += thread_count()) {
    shared.begin[i] = kBeginsBefore;
    shared.end[i] = 0;
  }
  __syncthreads();
  for (int64_t i = first + thread_index(); i < end; i += thread_count()) {
    const int64_t key = task.keys[i];
    const auto entry = static_cast<int>(i - first);
    if (key < first_row || key >= end_row) continue;
    shared.offsets[entry] = task.dy_places(task.positions[i]);
    const auto row = static_cast<int>(key - first_row);
    if (i == 0 || task.keys[i - 1] != key) shared.begin[row] = entry;
    if (i + 1 == task.rows || task.keys[i + 1] != key) shared.end[row] = entry + 1;
  }
  __syncthreads();
}

// All threads of a block call it.
template <class T, class TOut, int kColumns>
__device__ void sweep(const Task& task, SweepShared& shared, int64_t block) {
  const CudaPlan& plan = task.plan;
  const int64_t item = block / plan.panels * plan.unit_items;
  if (cuda::warp_index() < 2) {
    const int64_t edge = entries_before(task, item + cuda::warp_index() * plan.unit_items);
    if (cuda::lane_index() == 0) shared.edges[cuda::warp_index()] = edge;
  }
  __syncthreads();
  const int64_t first_row = row_at(item, shared.edges[0], task.table_rows);
  const int64_t end_row = row_at(item + plan.unit_items, shared.edges[1], task.table_rows);
  if (first_row == end_row) return;
  // The first row's run may begin before.
  const int64_t first = shared.edges[0] > kLongRun ? shared.edges[0] - kLongRun : 0;
  place_runs(task, shared, first_row, end_row, first, shared.edges[1]);

  const int64_t begin = block % plan.panels * plan.panel;
  const int64_t end = begin + plan.panel < plan.accesses ? begin + plan.panel : plan.accesses;
  const int piece = kCudaTuning.accesses * plan.row_threads;
  const int parts = static_cast<int>((end - begin + piece - 1) / piece);
  const int pieces = static_cast<int>(end_row - first_row) * parts;
  const int group = thread_index() / plan.row_threads;
  for (int i = group; i < pieces; i += thread_count() / plan.row_threads) {
    const int own = i / parts;
    const int from = shared.begin[own];
    const int count = shared.end[own] - from;
    const bool empty = shared.end[own] == 0;
    if (!empty && (from == kBeginsBefore || count > kLongRun)) continue;
    const int64_t access = begin + i % parts * piece + thread_index() % plan.row_threads;
    const int64_t left = (end - access + plan.row_threads - 1) / plan.row_threads;
    const Piece<T, TOut> own_piece{
        static_cast<const T*>(task.dy) + access * kColumns,
        static_cast<TOut*>(task.dw) + (first_row + own) * task.dw_stride + access * kColumns,
        int64_t{plan.row_threads} * kColumns,
        static_cast<int>(left < kCudaTuning.accesses ? left : kCudaTuning.accesses)};
    const int64_t* const offsets = shared.offsets + (empty ? 0 : from);
    if (empty || count <= kChainRows) {
      sum_short_run<T, TOut, kColumns>(own_piece, offsets, empty ? 0 : count,
                                       task.scale_by_frequency);
    } else {
      sum_medium_run<T, TOut, kColumns>(own_piece, offsets, count, task.scale_by_frequency);
    }
  }
}

}  // namespace aclgrad::embedding_dense_backward::gpu

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_SWEEP_CUH_

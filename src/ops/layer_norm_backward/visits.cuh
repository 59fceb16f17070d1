// SPDX-License-Identifier: Apache-2.0
// Rows of any alignment, length and dtype of dx, in two visits: the first finds the means of every
// row, the second takes an element of sixteen rows a thread. dy and x come from memory twice.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_VISITS_CUH_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_VISITS_CUH_

#include "kernels/cuda/launch.cuh"
#include "ops/layer_norm_backward/plan.h"
#include "ops/layer_norm_backward/row_sums.cuh"
#include "ops/layer_norm_backward/task.cuh"

namespace aclgrad::layer_norm_backward {

// A row where it lies.
template <class T>
struct RowAt {
  const T* dy;
  const T* x;
  float mean, rstd;

  __device__ RowAt(const Task& task, int64_t row)
      : dy(static_cast<const T*>(task.dy) + task.dy_rows(row)),
        x(static_cast<const T*>(task.x) + task.x_rows(row)),
        mean(task.mean.at(row)),
        rstd(task.rstd.at(row)) {}
};

// The chains of columns [begin, begin + count) of a row, by a team.
template <class T>
__device__ LaneSums sum_chunk(const Task& task, const RowAt<T>& row, int64_t begin, int count) {
  Chains chains;
  add_columns<2>(
      count, row.mean,
      [&](int col, float(&dy)[kOwnCols], float(&x)[kOwnCols], float(&gamma)[kOwnCols]) {
#pragma unroll
        for (int i = 0; i < kOwnCols; ++i) {
          if (col + i >= count) continue;
          dy[i] = cuda::widen(row.dy[begin + col + i]);
          x[i] = cuda::widen(row.x[begin + col + i]);
          gamma[i] = task.gamma_at(begin + col + i);
        }
      },
      chains);
  return join_vectors<T>(chains, task.cols);
}

// Writes what the second visit needs of a row from its sums, by `lanes` threads of the warp, all of
// whose threads call it.
template <class T>
__device__ void leave_row(const Task& task, int64_t number, bool present, const RowAt<T>& row,
                          const Sums& sums, int lanes) {
  const Sums means = means_of(sums, row.rstd, task.reciprocal_cols);
  RowNumbers out{static_cast<float>(means.g), static_cast<float>(means.gx), 0, 0.0, 0.0};
  const bool suspect = present && is_suspect(out.mean_g, out.mean_gx, row.rstd);
  const int lane = cuda::lane_index() % lanes;
  if (__any_sync(kAllLanes, suspect ? 1 : 0) != 0) {
    Largest largest;
    for (int64_t col = lane; suspect && col < task.cols; col += lanes) {
      largest.look(cuda::widen(row.dy[col]), cuda::widen(row.x[col]), task.gamma_at(col), row.mean,
                   row.rstd);
    }
    largest.join(lanes);
    if (suspect && lane == 0 && largest.decides(out.mean_g, out.mean_gx, row.rstd)) {
      const Sums exact = exact_means(task.cols, row.mean, row.rstd,
                                     [&](int64_t col, float& dy, float& x, float& gamma) {
                                       dy = cuda::widen(row.dy[col]);
                                       x = cuda::widen(row.x[col]);
                                       gamma = task.gamma_at(col);
                                     });
      out.exact = 1;
      out.exact_g = exact.g;
      out.exact_gx = exact.gx;
    }
  }
  if (present && lane == 0) task.row_numbers[number] = out;
}

// First visit of rows of one chunk, a team a row.
template <class T>
__global__ void __launch_bounds__(kVisits.threads)
    find_short_rows(const __grid_constant__ Task task) {
  constexpr int64_t kTeamsOfWarp = cuda::kWarpLanes / kTeam;
  const int64_t warp = cuda::block_index() * cuda::warp_count() + cuda::warp_index();
  const int64_t stride = cuda::block_count() * cuda::warp_count() * kTeamsOfWarp;
  for (int64_t first = warp * kTeamsOfWarp; first < task.rows; first += stride) {
    const int64_t number = first + cuda::lane_index() / kTeam;
    const bool present = number < task.rows;
    const RowAt<T> row(task, present ? number : first);
    const int count = present ? static_cast<int>(task.cols) : 0;
    const Sums sums = join_lanes<T>(sum_chunk(task, row, 0, count));
    leave_row(task, number, present, row, sums, kTeam);
  }
}

// First visit of longer rows: a team a chunk, then a warp a row.
template <class T>
__global__ void __launch_bounds__(kVisits.threads) sum_chunks(const __grid_constant__ Task task) {
  constexpr int64_t kTeamsOfWarp = cuda::kWarpLanes / kTeam;
  const int64_t chunks = chunks_of(task.cols);
  const int64_t pieces = task.rows * chunks;
  const int64_t warp = cuda::block_index() * cuda::warp_count() + cuda::warp_index();
  const int64_t stride = cuda::block_count() * cuda::warp_count() * kTeamsOfWarp;
  for (int64_t first = warp * kTeamsOfWarp; first < pieces; first += stride) {
    const int64_t piece = first + cuda::lane_index() / kTeam;
    const bool present = piece < pieces;
    const int64_t number = (present ? piece : first) / chunks;
    const int64_t begin = ((present ? piece : first) - number * chunks) * kChunk;
    const int64_t left = task.cols - begin;
    const int count = present ? static_cast<int>(left < kChunk ? left : kChunk) : 0;
    const LaneSums sums = sum_chunk(task, RowAt<T>(task, number), begin, count);
    if (!present) continue;
    float* const to = task.lane_sums + piece * kChunkSums + lane_place<T>();
    to[0] = sums.lane[0];
    to[1] = sums.lane[1];
  }
}
template <class T>
__global__ void __launch_bounds__(kVisits.threads)
    find_long_rows(const __grid_constant__ Task task, int64_t panel_chunks) {
  const int64_t chunks = chunks_of(task.cols);
  const int64_t stride = cuda::block_count() * cuda::warp_count();
  for (int64_t number = cuda::block_index() * cuda::warp_count() + cuda::warp_index();
       number < task.rows; number += stride) {
    const float* const lane_sums = task.lane_sums + number * chunks * kChunkSums;
    const Sums sums = join_chunks(lane_sums, chunks, panel_chunks);
    leave_row(task, number, true, RowAt<T>(task, number), sums, cuda::kWarpLanes);
  }
}

// Second visit: a thread takes a column of a row block.
template <class T>
__global__ void __launch_bounds__(kVisits.threads)
    write_columns(const __grid_constant__ Task task) {
  const int64_t pieces = row_blocks_of(task.rows) * task.cols;
  const int64_t stride = cuda::block_count() * cuda::thread_count();
  for (int64_t piece = cuda::block_index() * cuda::thread_count() + cuda::thread_index();
       piece < pieces; piece += stride) {
    const int64_t block = piece / task.cols;
    const int64_t col = piece - block * task.cols;
    const int64_t begin = block * kRowBlock;
    const int64_t end = begin + kRowBlock < task.rows ? begin + kRowBlock : task.rows;
    const float gamma = task.gamma_at(col);
    float dgamma = 0.0f;
    float dbeta = 0.0f;
#pragma unroll kVisits.written
    for (int64_t number = begin; number < end; ++number) {
      const RowAt<T> row(task, number);
      const float dy = cuda::widen(row.dy[col]);
      const float x = cuda::widen(row.x[col]);
      if (task.want_columns) {
        const bool near_zero = task.want_dgamma && is_near_zero<T>(row.mean, row.rstd);
        add_terms(dy, x, row.mean, row.rstd, near_zero, dgamma, dbeta);
      }
      if (task.dx == nullptr) continue;
      const RowNumbers& numbers = task.row_numbers[number];
      const float dx =
          numbers.exact != 0
              ? exact_dx_of(dy, x, gamma, row.mean, row.rstd, {numbers.exact_g, numbers.exact_gx})
              : dx_of(dy, x, gamma, row.mean, row.rstd, numbers.mean_g, numbers.mean_gx);
      cuda::store_number(task.dx, task.dx_dtype, task.dx_rows(number) + col, dx);
    }
    if (!task.want_columns) continue;
    float* const to = static_cast<float*>(task.parts) + block * 2 * task.cols + col;
    to[0] = dgamma;
    to[task.cols] = dbeta;
  }
}

template <class T>
cudaError_t launch_visits(const Task& task, const CudaQueue& queue) {
  const VisitPlan plan = plan_visits(task.rows, task.cols);
  cudaError_t error = cudaSuccess;
  if (task.dx != nullptr && chunks_of(task.cols) == 1) {
    error = cuda::launch(queue, plan.sums, find_short_rows<T>, task);
  } else if (task.dx != nullptr) {
    error = cuda::launch(queue, plan.sums, sum_chunks<T>, task);
    if (error == cudaSuccess) {
      error = cuda::launch(queue, plan.rows, find_long_rows<T>, task, plan.panel_chunks);
    }
  }
  if (error != cudaSuccess) return error;
  return cuda::launch(queue, plan.columns, write_columns<T>, task);
}

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_VISITS_CUH_

// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward on a GPU: rows are staged in shared memory where their alignment and length
// allow it (staged.cuh), else visited twice (visits.cuh); both leave the parts of dgamma and dbeta,
// which join_columns() adds. Every addition is in the order of tree.h, so the bits are the CPU's.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared.cuh"
#include "ops/layer_norm_backward/plan.h"
#include "ops/layer_norm_backward/staged.cuh"
#include "ops/layer_norm_backward/task.cuh"
#include "ops/layer_norm_backward/visits.cuh"

namespace aclgrad::layer_norm_backward {
namespace {

// Loads that a thread has under way.
constexpr int kJoinLoads = kVisits.join_tile / kVisits.join_warps;
static_assert(kVisits.join_tile % kVisits.join_warps == 0);

// The total of one column, part after part.
struct Total {
  double all = 0.0;
  double slab = 0.0;

  __device__ void add(double part, bool first_of_slab, bool first) {
    if (!first_of_slab) {
      slab += part;
      return;
    }
    if (!first) all += slab;
    slab = part;
  }
};

// The warps of a block bring parts to shared memory, one of them adds them in order.
template <class Part>
__global__ void __launch_bounds__(kVisits.join_warps* cuda::kWarpLanes)
    join_columns(const Part* parts, int64_t cols, int64_t count, int64_t per_slab,
                 const __grid_constant__ cuda::NumbersOut dgamma,
                 const __grid_constant__ cuda::NumbersOut dbeta) {
  __shared__ double tile[kVisits.join_tile][kJoinCols];
  const int warp = cuda::warp_index();
  const int lane = cuda::lane_index();
  const int64_t sums = 2 * cols;
  for (int64_t begin = cuda::block_index() * kJoinCols; begin < sums;
       begin += cuda::block_count() * kJoinCols) {
    const int64_t own = begin + lane;
    Total total;
    int64_t left_of_slab = 0;
    for (int64_t first = 0; first < count; first += kVisits.join_tile) {
      Part loaded[kJoinLoads];
#pragma unroll
      for (int i = 0; i < kJoinLoads; ++i) {
        const int64_t part = first + i * kVisits.join_warps + warp;
        if (part < count && own < sums) loaded[i] = parts[part * sums + own];
      }
      __syncthreads();  // what stands in the tile has been added
#pragma unroll
      for (int i = 0; i < kJoinLoads; ++i) {
        const int64_t part = first + i * kVisits.join_warps + warp;
        if (part < count && own < sums) {
          tile[i * kVisits.join_warps + warp][lane] = static_cast<double>(loaded[i]);
        }
      }
      __syncthreads();
      if (warp != 0 || own >= sums) continue;
      for (int i = 0; i < kVisits.join_tile && first + i < count; ++i) {
        total.add(tile[i][lane], left_of_slab == 0, first + i == 0);
        left_of_slab = (left_of_slab == 0 ? per_slab : left_of_slab) - 1;
      }
    }
    __syncthreads();
    if (warp != 0 || own >= sums) continue;
    // All rows in one slab: their sum as it is, as in wide rows on the CPU.
    const double sum = per_slab == kOneSlab ? total.slab : total.all + total.slab;
    const cuda::NumbersOut& out = own < cols ? dgamma : dbeta;
    out.put(own < cols ? own : own - cols, static_cast<float>(sum));
  }
}

cudaError_t launch_join(const Task& task, const ColumnParts& parts, const cuda::NumbersOut& dgamma,
                        const cuda::NumbersOut& dbeta, const CudaQueue& queue) {
  const cuda::Geometry geometry = plan_join(task.cols);
  if (parts.slab_totals) {
    return cuda::launch(queue, geometry, join_columns<double>,
                        static_cast<const double*>(task.parts), task.cols, parts.count,
                        parts.per_slab, dgamma, dbeta);
  }
  return cuda::launch(queue, geometry, join_columns<float>, static_cast<const float*>(task.parts),
                      task.cols, parts.count, parts.per_slab, dgamma, dbeta);
}

Task make_task(const Problem& problem, const Addresses& at) {
  Task task{};
  task.rows = problem.rows;
  task.cols = problem.cols;
  task.dy = at.dy;
  task.x = at.x;
  task.dy_rows = cuda::Offsets(problem.dy, problem.row_dim);
  task.x_rows = cuda::Offsets(problem.x, problem.row_dim);
  if (problem.want_dx) {
    task.dx = at.dx;
    task.dx_dtype = problem.dx.dtype;
    task.dx_rows = cuda::Offsets(problem.dx, problem.row_dim);
  }
  task.mean = cuda::NumbersIn(problem.mean, at.mean);
  task.rstd = cuda::NumbersIn(problem.rstd, at.rstd);
  if (problem.has_gamma()) task.gamma = cuda::NumbersIn(problem.gamma, at.gamma);
  task.want_dgamma = problem.want_dgamma;
  task.want_columns = problem.want_dgamma || problem.want_dbeta;
  task.reciprocal_cols = 1.0 / static_cast<double>(problem.cols);
  task.lane_sums = static_cast<float*>(at.gamma_region);
  task.parts = at.partial_region;
  task.row_numbers = static_cast<RowNumbers*>(at.row_region);
  return task;
}

// Every row of dy, x and dx begins where sixteen bytes can be taken, and is a multiple of them.
template <class T>
bool rows_are_aligned(const Task& task, const Problem& problem) {
  constexpr int kCols = cuda::kAccess<T>;
  if (task.cols % kCols != 0) return false;
  if (!cuda::access_fits(task.dy) || !task.dy_rows.multiples_of(kCols)) return false;
  if (!cuda::access_fits(task.x) || !task.x_rows.multiples_of(kCols)) return false;
  if (!problem.want_dx) return true;
  return problem.dx.dtype == problem.x.dtype && cuda::access_fits(task.dx) &&
         task.dx_rows.multiples_of(kCols);
}

template <class T>
cudaError_t launch(const Problem& problem, const Addresses& at, const CudaQueue& queue) {
  const Task task = make_task(problem, at);
  ColumnParts parts = chain_parts(problem.rows, problem.cols);
  StagedPlan staged;
  if (rows_are_aligned<T>(task, problem)) {
    staged = plan_staged(problem.rows, problem.cols, sizeof(T), task.want_columns,
                         cuda::most_shared(queue.device));
  }
  cudaError_t error = cudaSuccess;
  if (staged.possible) {
    parts = staged.parts;
    error = launch_staged<T>(task, staged, queue);
  } else {
    error = launch_visits<T>(task, queue);
  }
  if (error != cudaSuccess || !task.want_columns) return error;
  cuda::NumbersOut dgamma, dbeta;
  if (problem.want_dgamma) dgamma = cuda::NumbersOut(problem.dgamma, at.dgamma);
  if (problem.want_dbeta) dbeta = cuda::NumbersOut(problem.dbeta, at.dbeta);
  return launch_join(task, parts, dgamma, dbeta, queue);
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue) {
  switch (problem.x.dtype) {
    case ACL_FLOAT16:
      return launch<float16_t>(problem, at, queue);
    case ACL_BF16:
      return launch<bfloat16_t>(problem, at, queue);
    default:
      return launch<float>(problem, at, queue);
  }
}

}  // namespace aclgrad::layer_norm_backward

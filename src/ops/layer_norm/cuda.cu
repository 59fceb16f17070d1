// SPDX-License-Identifier: Apache-2.0
// LayerNorm on a GPU: a warp takes a row of up to 4096 columns (held in registers up to 1024),
// several take a longer one panel by panel; few wide rows are shared by all. Sums are added in the
// order of tree.h, so the bits are the CPU's.
#include <limits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/offsets.cuh"
#include "kernels/cuda/shared.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/layer_norm/moments.cuh"
#include "ops/layer_norm/plan.h"
#include "ops/layer_norm/row_statistics.cuh"

namespace aclgrad::layer_norm {
namespace {

constexpr int kThreads = kGpu.warps * kWarpLanes;

struct Task {
  int64_t rows, cols;
  const void* x;
  void* y;
  aclDataType y_dtype;
  bool accesses_fit;  // y has x's dtype, rows of both begin and end where accesses do
  cuda::Offsets x_rows, y_rows;
  const float *gamma, *beta;  // dense
  cuda::NumbersOut mean, rstd;
  double reciprocal_cols, eps;
  Moments* moments;  // kApart
  RowNumbers* numbers;

  template <class T>
  __device__ const T* x_of(int64_t row) const {
    return static_cast<const T*>(x) + x_rows(row);
  }
};

// gamma or beta as dense FP32; `absent` where there is none.
__global__ void __launch_bounds__(kThreads)
    copy_weights(const __grid_constant__ cuda::NumbersIn from, float absent, int64_t cols,
                 float* to) {
  const int64_t stride = cuda::block_count() * cuda::thread_count();
  for (int64_t col = cuda::block_index() * cuda::thread_count() + cuda::thread_index(); col < cols;
       col += stride) {
    to[col] = from.base == nullptr ? absent : from.at(col);
  }
}

// The sum of no elements is 0; their variance is 0 / 0.
__global__ void __launch_bounds__(kThreads) put_without_columns(const __grid_constant__ Task task) {
  const int64_t stride = cuda::block_count() * cuda::thread_count();
  for (int64_t row = cuda::block_index() * cuda::thread_count() + cuda::thread_index();
       row < task.rows; row += stride) {
    task.mean.put(row, 0.0f);
    task.rstd.put(row, cuda::float_of(kCanonicalNanF32));
  }
}

__device__ void put_statistics(const Task& task, int64_t row, const RowNumbers& numbers) {
  task.mean.put(row, numbers.mean);
  task.rstd.put(row, numbers.rstd);
}

template <class T, class Out, int kHeld>
__device__ void write_held(const Task& task, Out* y, const RowNumbers& row,
                           const float (&held)[kHeld], const float (&gamma)[kHeld],
                           const float (&beta)[kHeld]) {
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int col = k * kWarpLanes + cuda::lane_index();
    if (col < task.cols) y[col] = cuda::narrow<Out>(y_of(row, held[k], gamma[k], beta[k]));
  }
}

// Weights of up to 256 columns stay in registers; those of more are L1's.
template <class T, int kKind>
__global__ void __launch_bounds__(kThreads, kGpu.held[kKind].blocks_of_sm)
    held_rows(const __grid_constant__ Task task) {
  constexpr int kHeld = kGpu.held[kKind].elements;
  constexpr bool kKept = kHeld <= kGpu.kept;
  const int lane = cuda::lane_index();
  const auto cols = static_cast<int>(task.cols);
  float gamma[kHeld], beta[kHeld];
  const auto load_weights = [&] {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int col = k * kWarpLanes + lane;
      gamma[k] = col < cols ? task.gamma[col] : 0.0f;
      beta[k] = col < cols ? task.beta[col] : 0.0f;
    }
  };
  if constexpr (kKept) load_weights();
  const int64_t stride = cuda::block_count() * cuda::warp_count();
  for (int64_t row = cuda::block_index() * cuda::warp_count() + cuda::warp_index(); row < task.rows;
       row += stride) {
    const T* const x = task.x_of<T>(row);
    float held[kHeld];
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int col = k * kWarpLanes + lane;
      held[k] = col < cols ? cuda::widen(x[col]) : 0.0f;
    }
    const Moments moments = held_moments<T>(held, cols, task.reciprocal_cols);
    const RowNumbers numbers = row_numbers(x, task.cols, task.reciprocal_cols, task.eps, moments);
    if (lane == 0) put_statistics(task, row, numbers);
    if constexpr (!kKept) load_weights();
    const int64_t place = task.y_rows(row);
    if (task.y_dtype == ACL_FLOAT) {
      write_held<T>(task, static_cast<float*>(task.y) + place, numbers, held, gamma, beta);
    } else if (task.y_dtype == ACL_FLOAT16) {
      write_held<T>(task, static_cast<float16_t*>(task.y) + place, numbers, held, gamma, beta);
    } else {
      write_held<T>(task, static_cast<bfloat16_t*>(task.y) + place, numbers, held, gamma, beta);
    }
  }
}

// Columns [begin, end) of a row, whose numbers of columns are multiples of an access, by `count`
// threads.
template <class T>
__device__ void write_accesses(const Task& task, int64_t number, const RowNumbers& row,
                               int64_t begin, int64_t end, int thread, int count) {
  constexpr int kCols = cuda::kAccess<T>;
  const T* const x = task.x_of<T>(number);
  T* const y = static_cast<T*>(task.y) + task.y_rows(number);
#pragma unroll kGpu.written_accesses
  for (int64_t col = begin + thread * kCols; col < end; col += count * kCols) {
    const auto values = cuda::load_several<kCols>(x + col);
    float out[kCols];
#pragma unroll
    for (int i = 0; i < kCols; ++i) {
      out[i] = y_of(row, cuda::widen(values.each[i]), task.gamma[col + i], task.beta[col + i]);
    }
    *reinterpret_cast<cuda::Several<T, kCols>*>(y + col) = cuda::narrow_several<T>(out);
  }
}

template <class T>
__device__ void write_row(const Task& task, int64_t number, const RowNumbers& row, int64_t begin,
                          int64_t end, int thread, int count) {
  if (task.accesses_fit) {
    return write_accesses<T>(task, number, row, begin, end, thread, count);
  }
  const T* const x = task.x_of<T>(number);
  const int64_t place = task.y_rows(number);
#pragma unroll kGpu.written_elements
  for (int64_t col = begin + thread; col < end; col += count) {
    const float value = y_of(row, cuda::widen(x[col]), task.gamma[col], task.beta[col]);
    cuda::store_number(task.y, task.y_dtype, place + col, value);
  }
}

template <class T>
__device__ Moments moments_of_panel(const Task& task, const T* x, int64_t panel) {
  const int64_t begin = panel * kPanel;
  const int64_t left = task.cols - begin;
  return panel_moments(x + begin, static_cast<int>(left < kPanel ? left : kPanel));
}
__device__ Moments join_panels(const Task& task, const Moments* panels, int64_t count) {
  JoinedMoments joined;
  for (int64_t panel = 0; panel < count; ++panel) {
    const int64_t left = task.cols - panel * kPanel;
    joined.add(panels[panel], left < kPanel ? left : kPanel);
  }
  return joined.all();
}

// Rows of one panel.
template <class T>
__global__ void __launch_bounds__(kThreads) warp_rows(const __grid_constant__ Task task) {
  const int64_t stride = cuda::block_count() * cuda::warp_count();
  for (int64_t row = cuda::block_index() * cuda::warp_count() + cuda::warp_index(); row < task.rows;
       row += stride) {
    const T* const x = task.x_of<T>(row);
    const Moments moments = moments_of_panel(task, x, 0);
    const RowNumbers numbers = row_numbers(x, task.cols, task.reciprocal_cols, task.eps, moments);
    if (cuda::lane_index() == 0) put_statistics(task, row, numbers);
    write_row<T>(task, row, numbers, 0, task.cols, cuda::lane_index(), kWarpLanes);
  }
}

// Rows of several.
template <class T>
__global__ void __launch_bounds__(kThreads)
    block_rows(const __grid_constant__ Task task, int64_t panels) {
  auto* const moments = reinterpret_cast<Moments*>(cuda::shared_memory());
  for (int64_t row = cuda::block_index(); row < task.rows; row += cuda::block_count()) {
    const T* const x = task.x_of<T>(row);
    for (int64_t panel = cuda::warp_index(); panel < panels; panel += cuda::warp_count()) {
      const Moments found = moments_of_panel(task, x, panel);
      if (cuda::lane_index() == 0) moments[panel] = found;
    }
    __syncthreads();
    // Every warp for itself: they would only wait for each other.
    const RowNumbers numbers = row_numbers(x, task.cols, task.reciprocal_cols, task.eps,
                                           join_panels(task, moments, panels));
    if (cuda::thread_index() == 0) put_statistics(task, row, numbers);
    write_row<T>(task, row, numbers, 0, task.cols, cuda::thread_index(), cuda::thread_count());
    __syncthreads();  // the next row's moments come to the same place
  }
}

// Few wide rows: a warp a panel, a warp a row, a warp a panel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    find_panels(const __grid_constant__ Task task, int64_t panels) {
  const int64_t stride = cuda::block_count() * cuda::warp_count();
  for (int64_t piece = cuda::block_index() * cuda::warp_count() + cuda::warp_index();
       piece < task.rows * panels; piece += stride) {
    const int64_t row = piece / panels;
    const Moments found = moments_of_panel(task, task.x_of<T>(row), piece - row * panels);
    if (cuda::lane_index() == 0) task.moments[piece] = found;
  }
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    find_rows(const __grid_constant__ Task task, int64_t panels) {
  const int64_t stride = cuda::block_count() * cuda::warp_count();
  for (int64_t row = cuda::block_index() * cuda::warp_count() + cuda::warp_index(); row < task.rows;
       row += stride) {
    const RowNumbers numbers =
        row_numbers(task.x_of<T>(row), task.cols, task.reciprocal_cols, task.eps,
                    join_panels(task, task.moments + row * panels, panels));
    if (cuda::lane_index() != 0) continue;
    put_statistics(task, row, numbers);
    task.numbers[row] = numbers;
  }
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    write_panels(const __grid_constant__ Task task, int64_t panels) {
  const int64_t stride = cuda::block_count() * cuda::warp_count();
  for (int64_t piece = cuda::block_index() * cuda::warp_count() + cuda::warp_index();
       piece < task.rows * panels; piece += stride) {
    const int64_t row = piece / panels;
    const int64_t begin = (piece - row * panels) * kPanel;
    const int64_t end = begin + kPanel < task.cols ? begin + kPanel : task.cols;
    write_row<T>(task, row, task.numbers[row], begin, end, cuda::lane_index(), kWarpLanes);
  }
}

template <class T, int kKind = 0>
cudaError_t launch_held(const Task& task, const GpuPlan& plan, const CudaQueue& queue) {
  if constexpr (kKind + 1 < static_cast<int>(std::size(kGpu.held))) {
    if (plan.held != kKind) return launch_held<T, kKind + 1>(task, plan, queue);
  }
  return cuda::launch(queue, {plan.blocks, kThreads}, held_rows<T, kKind>, task);
}

template <class T>
cudaError_t launch_rows(const Task& task, const CudaQueue& queue) {
  const GpuPlan plan = plan_on_gpu(task.rows, task.cols);
  const cuda::Geometry geometry{cuda::blocks_for(plan.blocks), kThreads};
  switch (plan.kind) {
    case RowKind::kHeld:
      return launch_held<T>(task, plan, queue);
    case RowKind::kWarp:
      return cuda::launch(queue, geometry, warp_rows<T>, task);
    case RowKind::kBlock:
      return cuda::launch(queue,
                          {geometry.blocks, static_cast<unsigned>(plan.warps_of_row * kWarpLanes),
                           static_cast<size_t>(plan.panels) * sizeof(Moments)},
                          block_rows<T>, task, plan.panels);
    case RowKind::kApart:
      break;
  }
  cudaError_t error = cuda::launch(queue, geometry, find_panels<T>, task, plan.panels);
  if (error == cudaSuccess)
    error = cuda::launch(queue, plan_warps(task.rows), find_rows<T>, task, plan.panels);
  if (error != cudaSuccess) return error;
  return cuda::launch(queue, geometry, write_panels<T>, task, plan.panels);
}

// Where gamma or beta can be read as dense FP32.
cudaError_t prepare_weights(const View& view, const void* given_at, float absent, int64_t cols,
                            bool copied, void* region, const CudaQueue& queue, const float*& out) {
  out = static_cast<const float*>(copied ? region : given_at);
  if (!copied || cols == 0) return cudaSuccess;
  const cuda::NumbersIn from = given(view) ? cuda::NumbersIn(view, given_at) : cuda::NumbersIn();
  return cuda::launch(queue, plan_threads(cols), copy_weights, from, absent, cols,
                      static_cast<float*>(region));
}

template <class T>
cudaError_t launch(const Problem& problem, const Addresses& at, const CudaQueue& queue) {
  constexpr int kCols = cuda::kAccess<T>;
  Task task{};
  task.rows = problem.rows;
  task.cols = problem.cols;
  task.x = at.x;
  task.y = at.y;
  task.y_dtype = problem.y.dtype;
  task.x_rows = cuda::Offsets(problem.x, problem.row_dim);
  task.y_rows = cuda::Offsets(problem.y, problem.row_dim);
  if (given(problem.mean)) task.mean = cuda::NumbersOut(problem.mean, at.mean);
  if (given(problem.rstd)) task.rstd = cuda::NumbersOut(problem.rstd, at.rstd);
  if (problem.cols == 0) {
    return cuda::launch(queue, plan_threads(task.rows), put_without_columns, task);
  }
  const GpuScratch scratch = scratch_on_gpu(problem);
  cudaError_t error = prepare_weights(problem.gamma, at.gamma, 1.0f, task.cols, scratch.gamma > 0,
                                      at.gamma_region, queue, task.gamma);
  if (error != cudaSuccess) return error;
  error = prepare_weights(problem.beta, at.beta, 0.0f, task.cols, scratch.beta > 0, at.beta_region,
                          queue, task.beta);
  if (error != cudaSuccess) return error;
  task.accesses_fit = problem.y.dtype == problem.x.dtype && problem.cols % kCols == 0 &&
                      cuda::access_fits(task.x) && task.x_rows.multiples_of(kCols) &&
                      cuda::access_fits(task.y) && task.y_rows.multiples_of(kCols);
  task.reciprocal_cols = 1.0 / static_cast<double>(problem.cols);
  task.eps = problem.eps;
  if (scratch.moments > 0) {
    task.moments = static_cast<Moments*>(at.moment_region);
    task.numbers =
        reinterpret_cast<RowNumbers*>(task.moments + problem.rows * ceil_div(problem.cols, kPanel));
  }
  return launch_rows<T>(task, queue);
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

}  // namespace aclgrad::layer_norm

// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward on a GPU: dy and y of a row are read once and stay in registers until
// dx is written. A warp takes a row of up to 1024 elements, several take a longer one; of rows of
// at most fifteen elements a warp takes several. Sums are added in the order of tree.h, so the bits
// are the CPU's.
#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/scaled_masked_softmax_backward/plan.h"
#include "ops/scaled_masked_softmax_backward/problem.h"
#include "ops/scaled_masked_softmax_backward/rows.h"
#include "ops/scaled_masked_softmax_backward/tree.h"

namespace aclgrad::scaled_masked_softmax_backward {
namespace {

using cuda::kAllLanes;
using cuda::kWarpLanes;

static_assert(kTuning.short_cols == cuda::kVector - 1);
static_assert(kTuning.steps[2] * cuda::kStrip == cuda::kFullChains);

constexpr int kMostWarps = static_cast<int>(kMaxCols) / cuda::kFullChains;

// One run as the kernels see it.
struct Task {
  const void *dy, *y, *mask;
  void* dx;
  cuda::RowStrides dy_strides, y_strides, mask_strides, dx_strides;
  int64_t heads, rows, all_rows;
  int cols;
  int warps_of_row;
  Factors factors;
  double scale;
  uint32_t ordinary_sums;
};

template <class T>
struct RowAt {
  const T* dy;
  const T* y;
  const uint8_t* mask;
  T* dx;
};
template <class T>
__device__ RowAt<T> row_at(const Task& task, int64_t number) {
  const cuda::RowIndex index(number, task.heads, task.rows);
  return {static_cast<const T*>(task.dy) + task.dy_strides.at(index),
          static_cast<const T*>(task.y) + task.y_strides.at(index),
          static_cast<const uint8_t*>(task.mask) + task.mask_strides.at(index),
          static_cast<T*>(task.dx) + task.dx_strides.at(index)};
}

// Not a row to be computed in FP64 (see kLeastSum and kLargestSum).
__device__ bool is_ordinary(const Task& task, float sum) {
  constexpr uint32_t kLeast = std::bit_cast<uint32_t>(kLeastSum);
  return (cuda::bits_of(sum) & 0x7FFFFFFFu) - kLeast < task.ordinary_sums;
}
// Of a row whose sum is not ordinary. `over_one`: a magnitude of y is.
template <class T>
__device__ bool is_exact(const Task& task, float sum, bool over_one) {
  if (task.ordinary_sums == 0) return true;
  if (!(fabsf(sum) < kLargestSum)) return task.factors.on_dy != 1.0f;
  // In FP16 products of two numbers over 2^-25 are no subnormals.
  return !std::is_same_v<T, float16_t> && over_one;
}

// dx of one element, before it is rounded.
__device__ float dx_of(const Task& task, float dy, float y, float sum) {
  return fmaf(dy * task.factors.on_dy, y, y * -sum) * task.factors.on_dx;
}
__device__ float exact_dx_of(const Task& task, float dy, float y, double sum) {
  const double product = static_cast<double>(dy) * static_cast<double>(y);
  return static_cast<float>(task.scale * (product - static_cast<double>(y) * sum));
}

// What a thread holds of a row: two chains, kSteps elements of each.
template <int kSteps>
struct Held {
  float dy[kSteps][2], y[kSteps][2];
  uint32_t present = 0;  // bit 2 * step + chain
  uint32_t masked = 0;
};

// The elements of chain k (both, if they are pairs) of this thread in a warp's part of the row.
template <bool kPaired>
__device__ int element_of(const Task& task, int part, int step, int k) {
  const int strip = part * static_cast<int>(kChain) + step;
  const int place = cuda::place_in_strip(kPaired, cuda::lane_index(), k);
  return cuda::element_in_groups(task.cols, cuda::kVector, strip * cuda::kStrip + place);
}

template <class T, int kSteps, bool kPaired>
__device__ void load(const Task& task, const RowAt<T>& row, int part, Held<kSteps>& held) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if constexpr (kPaired) {
      const int at = element_of<true>(task, part, step, 0);
      if (at < 0) continue;
      const cuda::Pair<T> dy = cuda::load_pair(row.dy + at);
      const cuda::Pair<T> y = cuda::load_pair(row.y + at);
      held.dy[step][0] = cuda::widen(dy.first);
      held.dy[step][1] = cuda::widen(dy.second);
      held.y[step][0] = cuda::widen(y.first);
      held.y[step][1] = cuda::widen(y.second);
      held.present |= 3u << (2 * step);
      const cuda::Pair<uint8_t> mask = cuda::load_pair(row.mask + at);
      if (mask.first != 0) held.masked |= 1u << (2 * step);
      if (mask.second != 0) held.masked |= 2u << (2 * step);
    } else {
      for (int k = 0; k < 2; ++k) {
        const int at = element_of<false>(task, part, step, k);
        if (at < 0) continue;
        held.dy[step][k] = cuda::widen(row.dy[at]);
        held.y[step][k] = cuda::widen(row.y[at]);
        held.present |= 1u << (2 * step + k);
        if (row.mask[at] != 0) held.masked |= 1u << (2 * step + k);
      }
    }
  }
}

// Of the warp's part of the row, the sixteen lanes' sums (or each of them twice).
template <int kSteps, bool kPaired>
__device__ void add_chains(const Task& task, const Held<kSteps>& held, float (&sum)[2]) {
  sum[0] = sum[1] = 0.0f;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    for (int k = 0; k < 2; ++k) {
      if ((held.present >> (2 * step + k) & 1) == 0) continue;
      sum[k] = fmaf(held.dy[step][k] * task.factors.on_dy, held.y[step][k], sum[k]);
    }
  }
  // In a row of one vector -0 must stay, so that nothing is added to it.
  if (task.cols > cuda::kVector) {
    cuda::WarpChains<kPaired>::join_vectors(sum);
  } else {
    cuda::WarpChains<kPaired>::spread_vector(sum);
  }
}

// One thread of the row calls it: in order, as the CPU does.
template <class T>
__device__ double exact_sum(const Task& task, const RowAt<T>& row) {
  double sum = 0.0;
  for (int c = 0; c < task.cols; ++c) {
    sum += static_cast<double>(cuda::widen(row.dy[c])) * static_cast<double>(cuda::widen(row.y[c]));
  }
  return sum;
}

// Whether the row is to be computed in FP64, and its sum there. The sum is one thread's work, one
// addition after the other, so it is taken of no row that does not need it (those with dy = 0 get
// here, and do not). dx may be dy or y, so nobody may have written anything yet. kShared: the whole
// block works at the row; between two rows it meets in join_parts(), so what is shared is read by
// all before it is written again.
template <class T, bool kShared, int kSteps>
__device__ bool find_exact(const Task& task, const RowAt<T>& row, const Held<kSteps>& held,
                           float sum, double& exact) {
  bool over_one = false;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    for (int k = 0; k < 2; ++k) {
      const bool present = (held.present >> (2 * step + k) & 1) != 0;
      if (present && fabsf(held.y[step][k]) > 1.0f) over_one = true;
    }
  }
  over_one = __any_sync(kAllLanes, over_one ? 1 : 0) != 0;
  if constexpr (kShared) {
    __shared__ int over_one_in[kMostWarps];
    if (cuda::lane_index() == 0) over_one_in[cuda::warp_index()] = over_one ? 1 : 0;
    __syncthreads();
    for (int part = 0; part < task.warps_of_row; ++part) {
      if (over_one_in[part] != 0) over_one = true;
    }
  }
  if (!is_exact<T>(task, sum, over_one)) return false;
  if constexpr (kShared) {
    __shared__ double sum_of_row;
    if (cuda::thread_index() == 0) sum_of_row = exact_sum(task, row);
    __syncthreads();
    exact = sum_of_row;
  } else {
    exact = cuda::lane_index() == 0 ? exact_sum(task, row) : 0.0;
    exact = __shfl_sync(kAllLanes, exact, 0);
  }
  return true;
}

template <class T, int kSteps, bool kPaired>
__device__ void write(const Task& task, const RowAt<T>& row, int part, const Held<kSteps>& held,
                      float sum, bool is_exact_row, double exact) {
  const auto value = [&](int step, int k) {
    if ((held.masked >> (2 * step + k) & 1) != 0) return 0.0f;
    const float dy = held.dy[step][k];
    const float y = held.y[step][k];
    return is_exact_row ? exact_dx_of(task, dy, y, exact) : dx_of(task, dy, y, sum);
  };
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if constexpr (kPaired) {
      const int at = element_of<true>(task, part, step, 0);
      if (at >= 0) cuda::store_pair(row.dx + at, value(step, 0), value(step, 1));
    } else {
      for (int k = 0; k < 2; ++k) {
        const int at = element_of<false>(task, part, step, k);
        if (at >= 0) row.dx[at] = cuda::narrow<T>(value(step, k));
      }
    }
  }
}

// Rows of sixteen elements and more. kShared: the block's warps take a row together.
template <class T, int kSteps, bool kPaired, bool kShared>
__global__ void __launch_bounds__(kWarpLanes*(kShared ? kMostWarps : kTuning.warps),
                                  kPaired && sizeof(T) == 2 && kSteps == kTuning.steps[2]
                                      ? kLongBlocks
                                      : 0) whole_rows(Task task) {
  const int64_t at_once = kShared ? 1 : cuda::warp_count();
  const int64_t own = kShared ? 0 : cuda::warp_index();
  const int part = kShared ? cuda::warp_index() : 0;
  for (int64_t number = cuda::block_index() * at_once + own; number < task.all_rows;
       number += cuda::block_count() * at_once) {
    const RowAt<T> row = row_at<T>(task, number);
    Held<kSteps> held;
    load<T, kSteps, kPaired>(task, row, part, held);
    float sums[2];
    add_chains<kSteps, kPaired>(task, held, sums);
    double joined = 0.0;
    if constexpr (kShared) {
      joined = cuda::join_parts<cuda::WarpChains<kPaired>, kMostWarps>(task.warps_of_row, sums);
    } else {
      joined = cuda::WarpChains<kPaired>::join_lanes(
          {static_cast<double>(sums[0]), static_cast<double>(sums[1])});
    }
    const auto sum = static_cast<float>(joined);
    double exact = 0.0;
    bool is_exact_row = false;
    if (!is_ordinary(task, sum)) {
      is_exact_row = find_exact<T, kShared>(task, row, held, sum, exact);
    }
    write<T, kSteps, kPaired>(task, row, part, held, sum, is_exact_row, exact);
  }
}

// Rows of at most fifteen elements, `width` threads a row.
template <class T>
__global__ void __launch_bounds__(kWarpLanes* kTuning.warps) short_rows(Task task, int width) {
  const int lane = cuda::lane_index();
  const int column = lane % width;
  const int64_t rows_of_warp = kWarpLanes / width;
  const int64_t warps = cuda::block_count() * cuda::warp_count();
  const int64_t warp = cuda::block_index() * cuda::warp_count() + cuda::warp_index();
  for (int64_t first = warp * rows_of_warp; first < task.all_rows; first += warps * rows_of_warp) {
    const int64_t number = first + lane / width;
    const bool present = number < task.all_rows && column < task.cols;
    const RowAt<T> row = row_at<T>(task, present ? number : first);
    const float dy = present ? cuda::widen(row.dy[column]) : 0.0f;
    const float y = present ? cuda::widen(row.y[column]) : 0.0f;
    // Idle lanes are +0, whatever the factor is.
    float sum = present ? dy * task.factors.on_dy * y : 0.0f;
    if (task.cols > 1)
      sum = cuda::join_halves(sum, width / 2);
    else
      sum = __shfl_sync(kAllLanes, sum, lane - column);
    double exact = 0.0;
    bool is_exact_row = false;
    if (__any_sync(kAllLanes, is_ordinary(task, sum) ? 0 : 1) != 0) {
      const unsigned over = __ballot_sync(kAllLanes, fabsf(y) > 1.0f ? 1 : 0);
      const unsigned of_row = ((1u << width) - 1u) << (lane - column);
      const double product = static_cast<double>(dy) * static_cast<double>(y);
      for (int c = 0; c < task.cols; ++c) {
        exact += __shfl_sync(kAllLanes, product, lane - column + c);
      }
      is_exact_row = !is_ordinary(task, sum) && is_exact<T>(task, sum, (over & of_row) != 0);
    }
    if (!present) continue;
    float dx = is_exact_row ? exact_dx_of(task, dy, y, exact) : dx_of(task, dy, y, sum);
    if (row.mask[column] != 0) dx = 0.0f;
    row.dx[column] = cuda::narrow<T>(dx);
  }
}

template <class T, bool kPaired>
cudaError_t launch_whole_rows(const cuda::AttentionPlan& plan, const Task& task,
                              const CudaQueue& queue) {
  constexpr int kMost = kTuning.steps[2];
  const auto start = [&](auto* kernel) { return cuda::launch(queue, plan.launch, kernel, task); };
  if (plan.warps_of_row > 1) return start(whole_rows<T, kMost, kPaired, true>);
  if (plan.steps == kTuning.steps[0]) {
    return start(whole_rows<T, kTuning.steps[0], kPaired, false>);
  }
  if (plan.steps == kTuning.steps[1]) {
    return start(whole_rows<T, kTuning.steps[1], kPaired, false>);
  }
  return start(whole_rows<T, kMost, kPaired, false>);
}

template <class T>
cudaError_t launch(const Problem& problem, const cuda::AttentionPlan& plan, const Task& task,
                   const CudaQueue& queue) {
  if (plan.width > 0) return cuda::launch(queue, plan.launch, short_rows<T>, task, plan.width);
  const bool paired = task.cols % 2 == 0 && cuda::row_pairs_fit(task.dy, problem.dy) &&
                      cuda::row_pairs_fit(task.y, problem.y) &&
                      cuda::row_pairs_fit(task.mask, problem.mask) &&
                      cuda::row_pairs_fit(task.dx, problem.dx);
  return paired ? launch_whole_rows<T, true>(plan, task, queue)
                : launch_whole_rows<T, false>(plan, task, queue);
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue) {
  const auto cols = static_cast<int>(problem.cols);
  const int64_t rows = problem.batches * problem.heads * problem.rows;
  const cuda::AttentionPlan plan = cuda::plan_attention(kTuning, rows, problem.cols);
  const Task task{at.dy,
                  at.y,
                  at.mask,
                  at.dx,
                  cuda::RowStrides(problem.dy),
                  cuda::RowStrides(problem.y),
                  cuda::RowStrides(problem.mask),
                  cuda::RowStrides(problem.dx),
                  problem.heads,
                  problem.rows,
                  rows,
                  cols,
                  plan.warps_of_row,
                  split_scale(problem.scale),
                  problem.scale,
                  ordinary_sums(problem.scale)};
  switch (problem.dx.dtype) {
    case ACL_FLOAT16:
      return launch<float16_t>(problem, plan, task, queue);
    case ACL_BF16:
      return launch<bfloat16_t>(problem, plan, task, queue);
    default:
      return launch<float>(problem, plan, task, queue);
  }
}

}  // namespace aclgrad::scaled_masked_softmax_backward

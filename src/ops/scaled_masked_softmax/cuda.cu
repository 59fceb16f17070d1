// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax on a GPU: a row is read once and stays in registers until y is written. A
// warp takes a row of up to 1024 elements, several take a longer one; of rows of at most sixteen
// elements a warp takes several. Sums are added in the order of tree.h, so the bits are the CPU's.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/checked.h"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/scaled_masked_softmax/plan.h"
#include "ops/scaled_masked_softmax/problem.h"
#include "ops/scaled_masked_softmax/task.cuh"
#include "ops/scaled_masked_softmax/tree.h"

namespace aclgrad::scaled_masked_softmax {
namespace {

using namespace gpu;

using cuda::kAllLanes;
using cuda::kWarpLanes;

static_assert(kTuning.steps[2] * cuda::kStrip == cuda::kFullChains);

constexpr int kMostWarps = static_cast<int>(kMaxCols) / cuda::kFullChains;
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// What a thread holds of a row: neighbouring elements of each strip.
template <int kSteps>
struct Held {
  float x[kSteps][2];
  uint32_t present = 0;  // bit 2 * step + k
  uint32_t masked = 0;
};

// Element k of this thread in a strip, -1 when there is none. The last pair of vectors of a row
// that is no multiple of it is the row's last elements, and counts only those that others left out.
__device__ int element_of(const Task& task, int part, int step, int k) {
  const int strip = part * static_cast<int>(kChain) + step;
  const int place = cuda::place_in_strip(true, cuda::lane_index(), k);
  return cuda::element_in_groups(task.cols, kPairCols, strip * cuda::kStrip + place);
}

template <class T, int kSteps>
__device__ void load(const Task& task, const RowAt<T>& row, int part, Held<kSteps>& held) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int first = element_of(task, part, step, 0);
    if (task.paired && first >= 0) {
      const cuda::Pair<T> pair = cuda::load_pair(row.x + first);
      const cuda::Pair<uint8_t> mask = cuda::load_pair(row.mask + first);
      held.x[step][0] = cuda::widen(pair.first);
      held.x[step][1] = cuda::widen(pair.second);
      held.present |= 3u << (2 * step);
      if (mask.first != 0) held.masked |= 1u << (2 * step);
      if (mask.second != 0) held.masked |= 2u << (2 * step);
    }
    if (task.paired) continue;
    for (int k = 0; k < 2; ++k) {
      const int at = k == 0 ? first : element_of(task, part, step, 1);
      if (at < 0) continue;
      held.x[step][k] = cuda::widen(row.x[at]);
      held.present |= 1u << (2 * step + k);
      if (row.mask[at] != 0) held.masked |= 1u << (2 * step + k);
    }
  }
}

__device__ float larger(float a, float b) { return a < b ? b : a; }

// The largest sign * x of the row, of those that are not masked. kShared: the whole block works at
// it.
template <bool kShared, int kSteps>
__device__ float largest_of(const Task& task, const Held<kSteps>& held) {
  float largest = kNothing;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    for (int k = 0; k < 2; ++k) {
      const int bit = 2 * step + k;
      const bool counts = ((held.present & ~held.masked) >> bit & 1) != 0;
      if (counts) largest = larger(largest, held.x[step][k] * task.sign);
    }
  }
  for (int bits = kWarpLanes / 2; bits > 0; bits /= 2) {
    largest = larger(largest, __shfl_xor_sync(kAllLanes, largest, bits));
  }
  if constexpr (kShared) {
    __shared__ float of_warps[kMostWarps];
    if (cuda::lane_index() == 0) of_warps[cuda::warp_index()] = largest;
    __syncthreads();
    for (int part = 0; part < task.warps_of_row; ++part) largest = larger(largest, of_warps[part]);
    __syncthreads();  // the next row's come to the same place
  }
  return largest;
}

// No element of the row counts. kShared: the whole block asks; it meets in largest_of() before it
// asks again.
template <bool kShared, int kSteps>
__device__ bool is_all_masked(const Task& task, const Held<kSteps>& held) {
  bool some = __any_sync(kAllLanes, (held.present & ~held.masked) != 0 ? 1 : 0) != 0;
  if constexpr (kShared) {
    __shared__ int some_of_warps[kMostWarps];
    if (cuda::lane_index() == 0) some_of_warps[cuda::warp_index()] = some ? 1 : 0;
    __syncthreads();
    for (int part = 0; part < task.warps_of_row; ++part) {
      if (some_of_warps[part] != 0) some = true;
    }
  }
  return !some;
}

// exp() of what is held, in its place, and the sum of the row.
template <class T, bool kShared, int kSteps, class Exp>
__device__ double exp_and_sum(const Task& task, Held<kSteps>& held, Exp&& exp_of) {
  using Chains = std::conditional_t<std::is_same_v<T, bfloat16_t>, cuda::InterleavedChains,
                                    cuda::WarpChains<true>>;
  float sums[2] = {0.0f, 0.0f};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    for (int k = 0; k < 2; ++k) {
      const int bit = 2 * step + k;
      if ((held.present >> bit & 1) == 0) continue;
      held.x[step][k] = exp_of(held.x[step][k], (held.masked >> bit & 1) != 0);
      sums[k] += held.x[step][k];
    }
  }
  Chains::join_vectors(sums);
  if constexpr (kShared) {
    return cuda::join_parts<Chains, kMostWarps>(task.warps_of_row, sums);
  } else {
    return Chains::join_lanes({static_cast<double>(sums[0]), static_cast<double>(sums[1])});
  }
}

template <class T, int kSteps>
__device__ void write(const Task& task, const RowAt<T>& row, int part, const Held<kSteps>& held,
                      double sum) {
  const Quotient by = quotient_of(sum);
  const bool has_nan = sum != sum;
  const auto value = [&](int step, int k) {
    return has_nan ? std::numeric_limits<float>::quiet_NaN() : divided<T>(held.x[step][k], by);
  };
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int first = element_of(task, part, step, 0);
    if (task.paired) {
      if (first >= 0) cuda::store_pair(row.y + first, value(step, 0), value(step, 1));
      continue;
    }
    if (first >= 0) row.y[first] = cuda::narrow<T>(value(step, 0));
    const int second = element_of(task, part, step, 1);
    if (second >= 0) row.y[second] = cuda::narrow<T>(value(step, 1));
  }
}

// Rows of thirty-two elements and more. kShared: the block's warps take a row together.
template <class T, int kSteps, bool kShared>
__global__ void __launch_bounds__(kWarpLanes*(kShared ? kMostWarps : kTuning.warps))
    whole_rows(Task task) {
  const int64_t at_once = kShared ? 1 : cuda::warp_count();
  const int64_t own = kShared ? 0 : cuda::warp_index();
  const int part = kShared ? cuda::warp_index() : 0;
  for (int64_t number = cuda::block_index() * at_once + own; number < task.all_rows;
       number += cuda::block_count() * at_once) {
    const RowAt<T> row = row_at<T>(task, number);
    Held<kSteps> held;
    load<T, kSteps>(task, row, part, held);
    const float largest = largest_of<kShared>(task, held);
    double sum = 0.0;
    if (is_usual(task, largest)) {
      const cuda::ExpTerms terms = cuda::exp_terms(task.factor, largest);
      sum = exp_and_sum<T, kShared>(task, held, [&](float x, bool masked) {
        return cuda::exp_below(masked ? kNothing : x * task.sign, terms);
      });
    } else if (is_all_masked<kShared>(task, held)) {
      // As common as padding, so without the way through the row of the others.
      for (auto& elements : held.x) elements[0] = elements[1] = kExpGain;
      sum = static_cast<double>(task.cols) * static_cast<double>(kExpGain);
    } else {
      const Exponents exponents(task, row);
      sum = exp_and_sum<T, kShared>(
          task, held, [&](float x, bool masked) { return exponents.exp_of(x, masked); });
      if (exponents.has_nan) sum = std::numeric_limits<double>::quiet_NaN();
    }
    write<T, kSteps>(task, row, part, held, sum);
  }
}

// Rows of less than thirty-two elements, `width` threads a row.
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
    const RowAt<T> row = row_at<T>(task, number < task.all_rows ? number : first);
    const float x = present ? cuda::widen(row.x[column]) : 0.0f;
    const bool masked = present && row.mask[column] != 0;
    float largest = present && !masked ? larger(kNothing, x * task.sign) : kNothing;
    for (int bits = width / 2; bits > 0; bits /= 2) {
      largest = larger(largest, __shfl_xor_sync(kAllLanes, largest, bits));
    }
    float value = 0.0f;
    bool has_nan = false;
    if (is_usual(task, largest)) {
      const cuda::ExpTerms terms = cuda::exp_terms(task.factor, largest);
      if (present) value = cuda::exp_below(masked ? kNothing : x * task.sign, terms);
    } else {
      const Exponents exponents(task, row);
      if (present) value = exponents.exp_of(x, masked);
      has_nan = !exponents.all_masked && exponents.has_nan;
    }
    // Sixteen lanes at most in FP32; idle ones are +0, which changes no sum of what is not
    // negative.
    const int half = width < cuda::kVector ? width / 2 : cuda::kVector / 2;
    const float joined = cuda::join_halves(value, half);
    const float first_sum = __shfl_sync(kAllLanes, joined, lane - column);
    float second_sum = __shfl_sync(kAllLanes, joined, (lane - column + cuda::kVector) % kWarpLanes);
    if (width <= cuda::kVector) second_sum = 0.0f;
    has_nan = has_nan || first_sum + second_sum != first_sum + second_sum;
    if (!present) continue;
    const float y = has_nan ? std::numeric_limits<float>::quiet_NaN()
                            : divided<T>(value, short_quotient_of(first_sum, second_sum));
    row.y[column] = cuda::narrow<T>(y);
  }
}

template <class T>
cudaError_t launch(const cuda::AttentionPlan& plan, const Task& task, const CudaQueue& queue) {
  constexpr int kMost = kTuning.steps[2];
  const auto start = [&](auto* kernel) { return cuda::launch(queue, plan.launch, kernel, task); };
  if (plan.width > 0) return cuda::launch(queue, plan.launch, short_rows<T>, task, plan.width);
  if (plan.warps_of_row > 1) return start(whole_rows<T, kMost, true>);
  if (plan.steps == kTuning.steps[0]) return start(whole_rows<T, kTuning.steps[0], false>);
  if (plan.steps == kTuning.steps[1]) return start(whole_rows<T, kTuning.steps[1], false>);
  return start(whole_rows<T, kMost, false>);
}

}  // namespace

CudaAnswer run_cuda(const Problem& problem, const Addresses& at, const CudaQueue& queue) {
  const double factor = std::abs(problem.scale) * kLog2OfE;
  const int64_t rows = problem.batches * problem.heads * problem.rows;
  const cuda::AttentionPlan plan = cuda::plan_attention(kTuning, rows, problem.cols);
  const Task task{at.x,
                  at.mask,
                  at.y,
                  cuda::RowStrides(problem.x),
                  cuda::RowStrides(problem.mask),
                  cuda::RowStrides(problem.y),
                  problem.heads,
                  problem.rows,
                  rows,
                  static_cast<int>(problem.cols),
                  plan.warps_of_row,
                  problem.scale,
                  factor,
                  std::signbit(problem.scale) ? -1.0f : 1.0f,
                  factor >= kSmallestFactor && factor <= kLargestFactor,
                  problem.cols % 2 == 0 && cuda::row_pairs_fit(at.x, problem.x) &&
                      cuda::row_pairs_fit(at.mask, problem.mask) &&
                      cuda::row_pairs_fit(at.y, problem.y)};
  switch (problem.y.dtype) {
    case ACL_FLOAT16:
      return launch<float16_t>(plan, task, queue);
    case ACL_BF16:
      return launch<bfloat16_t>(plan, task, queue);
    default:
      return launch<float>(plan, task, queue);
  }
}

}  // namespace aclgrad::scaled_masked_softmax

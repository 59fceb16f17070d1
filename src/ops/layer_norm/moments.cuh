// SPDX-License-Identifier: Apache-2.0
// The moments of a row on a GPU, in the order of the CPU's (moments-inl.h). A thread of a warp
// takes every 32nd column: those are one chain of the FP64 sum, and of the squares one (rows of
// more than 1024 columns) or two by turns.
#ifndef ACLGRAD_OPS_LAYER_NORM_MOMENTS_CUH_
#define ACLGRAD_OPS_LAYER_NORM_MOMENTS_CUH_

#include <type_traits>

#include "kernels/cpu/lane_count.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/layer_norm/plan.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"

namespace aclgrad::layer_norm {

using cuda::kAllLanes;
using cuda::kWarpLanes;

// tree.h's numbers as CUDA's code counts.
inline constexpr auto kChainCols = static_cast<int>(kChainColumns);
inline constexpr auto kSquareCols = static_cast<int>(kSquareColumns);

// Which threads hold the two vectors of sixteen columns among 32: BF16's even columns are the first
// one, the odd ones the second.
template <class T>
inline constexpr bool kInterleaved = std::is_same_v<T, bfloat16_t>;
// Threads that hold the same lane of both are apart by this; lanes i and i + 8, i + 4 and so on by
// kLaneBit and its halves.
template <class T>
inline constexpr int kVectorBit = kInterleaved<T> ? 1 : 16;
template <class T>
inline constexpr int kLaneBit = kInterleaved<T> ? 16 : 8;

// The sum over sixteen lanes, joined in pairs, in `Number`. All threads of the warp call it, and
// have it.
template <class T, class Number>
__device__ Number join_lanes(Number value) {
  int bit = kLaneBit<T>;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    value += __shfl_xor_sync(kAllLanes, value, bit);
    bit /= 2;
  }
  return value;
}
template <class T, class Number>
__device__ Number join_vectors(Number value) {
  return value + __shfl_xor_sync(kAllLanes, value, kVectorBit<T>);
}

// Calls add(k, value) for this thread's columns of `count` from `x` on, +0 for one that is not
// there; k counts them.
template <class T, class Add>
__device__ void each_column(const T* x, int count, Add&& add) {
  constexpr int kAtOnce = kGpu.at_once;
  const int lane = cuda::lane_index();
  for (int first = 0; first < count; first += kAtOnce * kWarpLanes) {
    T loaded[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int col = first + k * kWarpLanes + lane;
      if (col < count) loaded[k] = x[col];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int col = first + k * kWarpLanes + lane;
      if (first + k * kWarpLanes < count) add(k, col < count, loaded[k]);
    }
  }
}

// The squares around `centre` of up to kChainCols columns, which this thread's lane has of them.
template <class T>
__device__ float square_chains(const T* x, int count, float centre) {
  float chains[2] = {0.0f, 0.0f};
  each_column(x, count, [&](int k, bool present, T value) {
    const float apart = present ? cuda::widen(value) - centre : 0.0f;
    chains[k % 2] = fmaf(apart, apart, chains[k % 2]);
  });
  for (float& chain : chains) chain = join_vectors<T>(chain);
  return chains[0] + chains[1];
}

// Squares around a number, less what the step from there to the mean adds.
__device__ inline double less_step(double squares, double mean, float centre, int64_t count) {
  const double step = mean - static_cast<double>(centre);
  const double around = squares - step * step * static_cast<double>(count);
  return around < 0.0 ? 0.0 : around;
}

// The moments of a panel of a row of more than kChainCols columns, by a warp.
template <class T>
__device__ Moments panel_moments(const T* x, int count) {
  constexpr int kLanesOfVector = static_cast<int>(kLanes);
  float centre = 0.0f;
  const bool has_centre = count >= kLanesOfVector;
  if (has_centre) {
    centre = cuda::widen(x[cuda::lane_index() % kLanesOfVector]);
    for (int bit = kLanesOfVector / 2; bit > 0; bit /= 2) {
      centre += __shfl_xor_sync(kAllLanes, centre, bit);
    }
    centre *= 1.0f / static_cast<float>(kLanesOfVector);
  }
  double sum = 0.0;
  double squares = 0.0;
  for (int begin = 0; begin < count; begin += kSquareCols) {
    const int columns = count - begin < kSquareCols ? count - begin : kSquareCols;
    float chain = 0.0f;
    each_column(x + begin, columns, [&](int, bool present, T value) {
      const float number = present ? cuda::widen(value) : 0.0f;
      const float apart = present ? number - centre : 0.0f;
      sum += static_cast<double>(number);
      chain = fmaf(apart, apart, chain);
    });
    squares += static_cast<double>(join_vectors<T>(chain));
  }
  const double mean = join_lanes<T>(join_vectors<T>(sum)) / static_cast<double>(count);
  const double around = join_lanes<T>(squares);
  const double step = mean - static_cast<double>(centre);
  const double added = step * step * static_cast<double>(count);
  if (has_centre && added <= kMostAdded * around) return {mean, around - added};
  // There was none, or it was not near enough.
  const auto near = static_cast<float>(mean);
  double again = 0.0;
  for (int begin = 0; begin < count; begin += kChainCols) {
    const int columns = count - begin < kChainCols ? count - begin : kChainCols;
    again += static_cast<double>(square_chains(x + begin, columns, near));
  }
  return {mean, less_step(join_lanes<T>(again), mean, near, count)};
}

// The moments of a row of up to kChainCols columns, of which this thread holds every 32nd one; +0
// behind the last.
template <class T, int kHeld>
__device__ Moments held_moments(const float (&held)[kHeld], int count, double reciprocal_cols) {
  // Two vectors are added to each other; chains of more begin at +0.
  const bool two = count <= static_cast<int>(kTwo);
  double sum = two ? -0.0 : 0.0;
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    if (k * kWarpLanes < count) sum += static_cast<double>(held[k]);
  }
  const double mean = join_lanes<T>(join_vectors<T>(sum)) * reciprocal_cols;
  const auto near = static_cast<float>(mean);
  const int lane = cuda::lane_index();
  float squares = 0.0f;
  if (two) {
    const float apart = lane < count ? held[0] - near : 0.0f;
    const float first = __shfl_sync(kAllLanes, apart, lane & ~kVectorBit<T>);
    const float second = __shfl_sync(kAllLanes, apart, lane | kVectorBit<T>);
    squares = fmaf(second, second, first * first);
  } else {
    float chains[2] = {0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const float apart = k * kWarpLanes + lane < count ? held[k] - near : 0.0f;
      chains[k % 2] = fmaf(apart, apart, chains[k % 2]);
    }
    for (float& chain : chains) chain = join_vectors<T>(chain);
    squares = chains[0] + chains[1];
  }
  const auto around = static_cast<double>(join_lanes<T>(squares));
  return {mean, less_step(around, mean, near, count)};
}

// Panels joined in order, as RowMoments does.
class JoinedMoments {
 public:
  __device__ void add(const Moments& panel, int64_t columns) {
    const auto count = static_cast<double>(columns);
    const double total = count_ + count;
    const double apart = panel.mean - all_.mean;
    all_.mean += apart * (count / total);
    all_.squares += panel.squares + apart * apart * (count_ * count / total);
    count_ = total;
  }
  __device__ const Moments& all() const { return all_; }

 private:
  Moments all_{0.0, 0.0};
  double count_ = 0.0;
};

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_MOMENTS_CUH_

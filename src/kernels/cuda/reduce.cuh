// SPDX-License-Identifier: Apache-2.0
// Sums of a row in the order of the CPU's (kernels/cpu/sums-inl.h), by a warp: 64 chains, two a
// thread (strips.h), so that every chain is added by one thread, in order, and the bits are the
// CPU's.
#ifndef ACLGRAD_KERNELS_CUDA_REDUCE_CUH_
#define ACLGRAD_KERNELS_CUDA_REDUCE_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/strips.h"

namespace aclgrad::cuda {

// The sum over the lanes of a warp whose numbers differ in the bits from `bits` down to 1; every
// lane has it. Halves are joined first.
template <class T>
__device__ T join_halves(T value, int bits) {
  for (; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}

// kPaired: as in place_in_strip().
template <bool kPaired>
struct WarpChains {
  __host__ __device__ static int place(int lane, int k) { return place_in_strip(kPaired, lane, k); }

  // Joins the four vectors of a strip, in pairs. Afterwards lane_of() says which of the sixteen
  // sums each value is.
  __device__ static void join_vectors(float (&sum)[2]) {
    if constexpr (kPaired) {
      for (float& each : sum) each += __shfl_xor_sync(kAllLanes, each, 8);
      for (float& each : sum) each += __shfl_xor_sync(kAllLanes, each, 16);
    } else {
      for (float& each : sum) each += __shfl_xor_sync(kAllLanes, each, 16);
      sum[0] += sum[1];
      sum[1] = sum[0];
    }
  }
  // In place of that for a row of one vector.
  __device__ static void spread_vector(float (&sum)[2]) {
    constexpr int kThreads = kPaired ? kVector / 2 : kVector;
    const int source = lane_index() % kThreads;
    for (float& each : sum) each = __shfl_sync(kAllLanes, each, source);
    if constexpr (!kPaired) sum[1] = sum[0];
  }
  __host__ __device__ static int lane_of(int lane, int k) {
    return kPaired ? place(lane, k) % kVector : lane % kVector;
  }

  // Joins the sixteen sums in FP64: i and i + 8, then i + 4, i + 2, i + 1.
  __device__ static double join_lanes(const double (&sum)[2]) {
    if constexpr (kPaired) {
      const double even = join_halves(sum[0], 4);
      const double odd = join_halves(sum[1], 4);
      return even + odd;
    } else {
      return join_halves(sum[0], kVector / 2);
    }
  }
};

// The same for rows whose even elements stand in one vector and the odd ones in the next (the CPU's
// BF16, kernels/cpu/pairs-inl.h): a thread's chains are those of neighbouring elements, too.
struct InterleavedChains {
  __device__ static void join_vectors(float (&sum)[2]) {
    const float joined = sum[0] + sum[1];
    sum[0] = joined + __shfl_xor_sync(kAllLanes, joined, 16);
    sum[1] = sum[0];
  }
  __host__ __device__ static int lane_of(int lane, int) { return lane % kVector; }
  __device__ static double join_lanes(const double (&sum)[2]) {
    return join_halves(sum[0], kVector / 2);
  }
};

// The sum of a row from the parts of a block's warps (at most kMostParts), which all threads of the
// block call. A part is what full chains hold; its sixteen sums go to FP64 totals, in order.
template <class Chains, int kMostParts>
__device__ double join_parts(int parts, const float (&sum)[2]) {
  __shared__ double totals[kMostParts][kVector];
  const int lane = lane_index();
  for (int k = 0; k < 2; ++k) {
    totals[warp_index()][Chains::lane_of(lane, k)] = static_cast<double>(sum[k]);
  }
  __syncthreads();
  double joined[2] = {0.0, 0.0};
  for (int part = 0; part < parts; ++part) {
    for (int k = 0; k < 2; ++k) joined[k] += totals[part][Chains::lane_of(lane, k)];
  }
  __syncthreads();  // the next row's come to the same place
  return Chains::join_lanes(joined);
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_REDUCE_CUH_

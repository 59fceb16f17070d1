// SPDX-License-Identifier: Apache-2.0
// Searching in sorted numbers by a warp: thirty-two places at a time, because what counts is how
// often memory is waited for.
#ifndef ACLGRAD_KERNELS_CUDA_SEARCH_CUH_
#define ACLGRAD_KERNELS_CUDA_SEARCH_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"

namespace aclgrad::cuda {

// The first index in [low, high) that is not `before`, or high: before(index) is true up to there
// and false from there on. All lanes of the warp call it with the same range.
template <class Before>
__device__ int64_t warp_partition_point(int64_t low, int64_t high, Before&& before) {
  while (low < high) {
    const int64_t step = (high - low + kWarpLanes - 1) / kWarpLanes;
    const int64_t probe = low + (lane_index() + 1) * step - 1;
    const unsigned yes = __ballot_sync(kAllLanes, probe < high && before(probe) ? 1 : 0);
    low += __popc(yes) * step;
    // The first probe that said no; where all said yes nothing is left.
    high = low + step - 1 < high ? low + step - 1 : high;
  }
  return high;
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_SEARCH_CUH_

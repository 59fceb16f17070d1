// SPDX-License-Identifier: Apache-2.0
// The size of a launch, for code that knows nothing of CUDA. Indices are 64 bits wide: a grid has
// at most 2^31 - 1 blocks, so where a problem may need more a block takes several of its pieces, as
// many apart as there are blocks.
#ifndef ACLGRAD_KERNELS_CUDA_GEOMETRY_H_
#define ACLGRAD_KERNELS_CUDA_GEOMETRY_H_

#include <cstddef>
#include <cstdint>

namespace aclgrad::cuda {

// More than any GPU runs at a time, and few enough that a block's start is no cost.
inline constexpr int64_t kMostBlocks = int64_t{1} << 20;

constexpr int64_t blocks_for(int64_t pieces) { return pieces < kMostBlocks ? pieces : kMostBlocks; }

inline constexpr int kWarpLanes = 32;

struct Geometry {
  int64_t blocks = 0;    // at most kMostBlocks
  unsigned threads = 0;  // of a block
  size_t shared = 0;     // bytes that shared_memory() (shared.cuh) has
};

// What a block may have without asking for more.
inline constexpr size_t kSharedBytes = size_t{48} << 10;

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_GEOMETRY_H_

// SPDX-License-Identifier: Apache-2.0
// Where the elements of a row lie among the threads of a warp, so that every chain of the CPU's
// sums (kernels/cpu/sums-inl.h) is one thread's: element c in lane c mod 16 of vector c / 16,
// vector v in chain v mod 4. For the kernels and for tests on the host.
#ifndef ACLGRAD_KERNELS_CUDA_STRIPS_H_
#define ACLGRAD_KERNELS_CUDA_STRIPS_H_

#include "kernels/cpu/lane_count.h"
#include "kernels/cuda/geometry.h"

namespace aclgrad::cuda {

inline constexpr int kVector = static_cast<int>(kLanes);
inline constexpr int kChains = static_cast<int>(kRowChains);
// What a warp takes in one step.
inline constexpr int kStrip = kChains * kVector;
// After so many elements the chains are full.
inline constexpr int kFullChains = static_cast<int>(kRowChainElements);
static_assert(kStrip == 2 * kWarpLanes);

// Of chain k of thread `lane`, where its elements lie in a strip. `paired`: a thread's two chains
// are those of neighbouring elements, which one access brings. Otherwise they lie half a strip
// apart, and every access of the warp is to neighbours.
constexpr int place_in_strip(bool paired, int lane, int k) {
  return paired ? 2 * lane + k : lane + kWarpLanes * k;
}

// The element at a place of the row's vectors, -1 where there is none. What is left of a row behind
// its whole groups of `group` elements (vectors, or pairs of them) stands at the end of a group
// that the row's last elements make up, and of which only what the groups before left out counts.
constexpr int element_in_groups(int cols, int group, int place) {
  const int whole = cols / group * group;
  if (place < whole) return place;
  const int last = cols - group + place - whole;
  return place < whole + group && last >= whole && last < cols ? last : -1;
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_STRIPS_H_

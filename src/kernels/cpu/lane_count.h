// SPDX-License-Identifier: Apache-2.0
// The two numbers that every reduction tree of the library is built from.
#ifndef ACLGRAD_KERNELS_CPU_LANE_COUNT_H_
#define ACLGRAD_KERNELS_CPU_LANE_COUNT_H_

#include <cstddef>

namespace aclgrad {

// Logical lanes of a vector, whatever the registers' width.
inline constexpr size_t kLanes = 16;

// The longest serial FP32 chain. Equal terms in a chain of 16 are off by at most 4 units of
// 2^-24 * sum, one of 32 by 7 (measured), and the library promises 8 for the whole reduction.
inline constexpr size_t kChain = 16;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_LANE_COUNT_H_

// SPDX-License-Identifier: Apache-2.0
// The numbers that the reduction trees of several operators are built from, on the CPU and on GPUs.
#ifndef ACLGRAD_KERNELS_CPU_LANE_COUNT_H_
#define ACLGRAD_KERNELS_CPU_LANE_COUNT_H_

#include <cstddef>

namespace aclgrad {

// Logical lanes of a vector, whatever the registers' width.
inline constexpr size_t kLanes = 16;

// Elements of two vectors, which sixteen-bit types are loaded and stored in.
inline constexpr size_t kPair = 2 * kLanes;

// The longest serial FP32 chain. Equal terms in a chain of 16 are off by at most 4 units of
// 2^-24 * sum, one of 32 by 7 (measured), and the library promises 8 for the whole reduction.
inline constexpr size_t kChain = 16;

// Chains of an FP32 sum along a row: vector i goes to chain i mod 4. After so many elements the
// chains are full, and are joined in pairs. Four also hide the latency of an fma.
inline constexpr size_t kRowChains = 4;
inline constexpr size_t kRowChainElements = kRowChains * kLanes * kChain;

// A strip of columns, one line of 64 bytes: a vector of FP32, or two of a sixteen-bit type.
template <class T>
inline constexpr size_t kStripVectors = sizeof(T) == 4 ? 1 : 2;
template <class T>
inline constexpr size_t kStrip = kStripVectors<T>* kLanes;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_LANE_COUNT_H_

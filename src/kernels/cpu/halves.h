// SPDX-License-Identifier: Apache-2.0
// Vectors of 64 bytes that a core takes in two halves, so that AVX2's kernels, with registers of
// 32, lose nothing there, and gain where they leave out what rows do not fill.
#ifndef ACLGRAD_KERNELS_CPU_HALVES_H_
#define ACLGRAD_KERNELS_CPU_HALVES_H_

#include "kernels/cpu/prefetch.h"

// Inside a target's part: whether N_AVX2, which comes before it, holds the same kernel for a
// machine that has both.
#define ACLGRAD_HAS_HALVES (HWY_TARGET <= HWY_AVX3 && (HWY_TARGETS & HWY_AVX2))

namespace aclgrad {

// Zen 4. The vendor tells, as of prefetches, and ACLGRAD_PREFETCHES may say otherwise.
inline const bool kTakesHalves = kDropsPrefetches;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_HALVES_H_

// SPDX-License-Identifier: Apache-2.0
// Vectors of 64 bytes that a core takes in two halves. AVX2's kernels, with registers of 32, are no
// slower for their size there, and those that leave out what short rows do not fill are faster.
#ifndef ACLGRAD_KERNELS_CPU_HALVES_H_
#define ACLGRAD_KERNELS_CPU_HALVES_H_

#include "kernels/cpu/prefetch.h"

// Inside AVX-512's part: whether N_AVX2 came before it, with the same kernel (a static target comes
// last).
#define ACLGRAD_HAS_HALVES \
  (HWY_TARGET <= HWY_AVX3 && (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2)

namespace aclgrad {

inline bool takes_halves() noexcept {
#if defined(__x86_64__)
  // Zen 4; Zen 5 has whole ones. In tests ACLGRAD_PREFETCHES=dropped makes one of Intel's, too.
  return kDropsPrefetches && (!__builtin_cpu_is("amd") || __builtin_cpu_is("amdfam19h"));
#else
  return false;
#endif
}
inline const bool kTakesHalves = takes_halves();

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_HALVES_H_

// SPDX-License-Identifier: Apache-2.0
// What AVX2's masked loads cost a core.
#ifndef ACLGRAD_KERNELS_CPU_MASKED_LOADS_H_
#define ACLGRAD_KERNELS_CPU_MASKED_LOADS_H_

#include "base/knobs.h"

namespace aclgrad {

// Whether they take several times as long as loads do: Zen 1 does them in microcode (12 cycles of
// 32 bytes, 7 of 16; a load 1). Not Zen 3, nor Intel's cores. Zen 2 was not measured. What
// ACLGRAD_MASKED_LOADS says counts first.
inline bool masks_loads_slowly() noexcept {
  const int chosen = chosen_word("ACLGRAD_MASKED_LOADS", {"slow", "fast"}, "slow or fast");
  if (chosen >= 0) return chosen == 0;
#if defined(__x86_64__)
  return __builtin_cpu_is("znver1") != 0;
#else
  return false;
#endif
}

inline const bool kMasksLoadsSlowly = masks_loads_slowly();

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_MASKED_LOADS_H_

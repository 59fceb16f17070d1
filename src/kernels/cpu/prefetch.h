// SPDX-License-Identifier: Apache-2.0
// Asking the memory for lines, and what a core makes of prefetches that it has no room for.
#ifndef ACLGRAD_KERNELS_CPU_PREFETCH_H_
#define ACLGRAD_KERNELS_CPU_PREFETCH_H_

#include <cstdint>
#include <cstring>

#include "base/knobs.h"
#include "base/verbose.h"

namespace aclgrad {

// What ACLGRAD_PREFETCHES says, else what cores of this vendor do.
inline bool drops_prefetches() noexcept {
  const char* const value = knob("ACLGRAD_PREFETCHES");
  if (value != nullptr) {
    if (std::strcmp(value, "dropped") == 0) return true;
    if (std::strcmp(value, "waiting") == 0) return false;
    aclgrad_reject_knob("ACLGRAD_PREFETCHES", value, "dropped or waiting");
  }
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

// True: a prefetch that finds all buffers for misses in use is dropped, and what must be there in
// time has to be asked for more than once (AMD; measured on Zen 4). False: it waits for a buffer,
// and the loads behind it wait, too, so that it belongs where most of them hit (Intel; measured on
// Granite Rapids. LayerNormBackward f32 2048x12288, whose first visit asks too: 9.1 to 13.7 ms).
inline const bool kDropsPrefetches = drops_prefetches();

// Ask for the line `ahead` bytes behind p. An address, not a pointer: it may lie behind the tensor,
// which harms nobody. Always inlined: kernels of every instruction set use them.
[[gnu::always_inline]] inline void prefetch_to_l2(const void* p, intptr_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(p) + ahead), 0, 2);
}
[[gnu::always_inline]] inline void prefetch_to_l1(const void* p, intptr_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(p) + ahead));
}

// To L2 where prefetches are dropped, else to L1.
[[gnu::always_inline]] inline void prefetch_once(const void* p) {
  if (kDropsPrefetches) {
    prefetch_to_l2(p);
  } else {
    prefetch_to_l1(p);
  }
}

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_PREFETCH_H_

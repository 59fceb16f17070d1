// SPDX-License-Identifier: Apache-2.0
// Asking the memory for lines, and what a core makes of prefetches that it has no room for.
#ifndef ACLGRAD_KERNELS_CPU_PREFETCH_H_
#define ACLGRAD_KERNELS_CPU_PREFETCH_H_

#include <cstdint>

#include "base/knobs.h"

namespace aclgrad {

// What a core makes of a prefetch that finds all buffers for misses in use.
// In the order in which prefetches_of_this_core() names them.
enum class Prefetches : uint8_t {
  // It is dropped, and what must be there in time has to be asked for more than once (AMD; measured
  // on Zen 4).
  kDropped,
  // It waits for a buffer, and the loads behind it wait, too, so that it belongs where most of them
  // hit (Intel; measured on Granite Rapids. LayerNormBackward f32 2048x12288, whose first visit
  // asks too: 9.1 to 13.7 ms).
  kWaiting,
  // There is room, so that one stream may be asked for far ahead; but the core follows the stride
  // of each load instruction by itself, and what is asked for beside it only costs (Zen 5. A sum
  // down sixteen FP32 rows of 11.5 KB, a load instruction each, part of the pace of a mere read:
  // 0.93 to 1.0 without prefetches, 0.8 to 0.9 with them; rows of 16 bits one after the other 0.7
  // to 0.87 without, 0.9 to 1.0 where lines 4 to 8 KiB ahead are asked for).
  kTaken
};

inline bool is_zen5_or_later() noexcept {
#if defined(__x86_64__)
  // g++ 12 has no name for them: an AMD that is none of those it knows.
  return __builtin_cpu_is("amd") != 0 && __builtin_cpu_supports("avx512bf16") != 0 &&
         __builtin_cpu_is("amdfam19h") == 0;
#else
  return false;
#endif
}

// What ACLGRAD_PREFETCHES says, else what cores of this vendor and family do.
inline Prefetches prefetches_of_this_core() noexcept {
  const int chosen = chosen_word("ACLGRAD_PREFETCHES", {"dropped", "waiting", "taken"},
                                 "dropped, waiting or taken");
  if (chosen >= 0) return static_cast<Prefetches>(chosen);
  if (is_zen5_or_later()) return Prefetches::kTaken;
#if defined(__x86_64__)
  if (__builtin_cpu_is("amd") != 0) return Prefetches::kDropped;
#endif
  return Prefetches::kWaiting;
}

inline const Prefetches kPrefetches = prefetches_of_this_core();
inline const bool kDropsPrefetches = kPrefetches == Prefetches::kDropped;
inline const bool kPrefetchesWait = kPrefetches == Prefetches::kWaiting;
inline const bool kTakesPrefetches = kPrefetches == Prefetches::kTaken;

// Ask for the line `ahead` bytes behind p. An address, not a pointer: it may lie behind the tensor,
// which harms nobody. Always inlined: kernels of every instruction set use them.
[[gnu::always_inline]] inline void prefetch_to_l2(const void* p, intptr_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(p) + ahead), 0, 2);
}
[[gnu::always_inline]] inline void prefetch_to_l1(const void* p, intptr_t ahead = 0) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(p) + ahead));
}

// To L1 where prefetches wait, else to L2.
[[gnu::always_inline]] inline void prefetch_once(const void* p) {
  if (kPrefetchesWait) {
    prefetch_to_l1(p);
  } else {
    prefetch_to_l2(p);
  }
}

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_PREFETCH_H_

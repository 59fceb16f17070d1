// SPDX-License-Identifier: Apache-2.0
// What a core makes of prefetches that it has no room for.
#ifndef ACLGRAD_KERNELS_CPU_PREFETCH_H_
#define ACLGRAD_KERNELS_CPU_PREFETCH_H_

namespace aclgrad {

// True: a prefetch that finds all buffers for misses in use is dropped, and what must be there in
// time has to be asked for more than once (AMD; measured on Zen 4). False: it waits for a buffer,
// and the loads behind it wait, too, so that it belongs where most of them hit (Intel; measured on
// Granite Rapids. LayerNormBackward f32 2048x12288, whose first visit asks too: 9.1 to 13.7 ms).
#if defined(__x86_64__)
inline const bool kDropsPrefetches = __builtin_cpu_is("amd") != 0;
#else
inline constexpr bool kDropsPrefetches = false;
#endif

// Asks for the line at p, to come to L2 where prefetches are dropped, else to L1. Always inlined:
// kernels of every instruction set use it.
[[gnu::always_inline]] inline void prefetch_once(const void* p) {
  if (kDropsPrefetches) {
    __builtin_prefetch(p, 0, 2);
  } else {
    __builtin_prefetch(p);
  }
}

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_PREFETCH_H_

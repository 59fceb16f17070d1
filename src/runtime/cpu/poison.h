// SPDX-License-Identifier: Apache-2.0
// Tells AddressSanitizer what of our own memory may be touched; nothing in other builds.
#ifndef ACLGRAD_RUNTIME_CPU_POISON_H_
#define ACLGRAD_RUNTIME_CPU_POISON_H_

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace aclgrad {

#if defined(__SANITIZE_ADDRESS__)
inline void poison(void* memory, size_t bytes) { __asan_poison_memory_region(memory, bytes); }
inline void unpoison(void* memory, size_t bytes) { __asan_unpoison_memory_region(memory, bytes); }
#else
inline void poison(void*, size_t) {}
inline void unpoison(void*, size_t) {}
#endif

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_CPU_POISON_H_

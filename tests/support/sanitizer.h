// SPDX-License-Identifier: Apache-2.0
// Which sanitizer watches the libraries. Asked of the process, and not of the compiler: operators'
// tests are compiled without one in every build.
#ifndef ACLGRAD_TESTS_SUPPORT_SANITIZER_H_
#define ACLGRAD_TESTS_SUPPORT_SANITIZER_H_

#include <dlfcn.h>

#include <cstddef>

namespace aclgrad::test {

// A function of a sanitizer's own library; null where that is not in the process.
template <class Function>
Function* find_sanitizer_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

inline bool under_address_sanitizer() {
  static const bool found = find_sanitizer_function<void()>("__asan_init") != nullptr;
  return found;
}

inline bool under_thread_sanitizer() {
  static const bool found = find_sanitizer_function<void()>("__tsan_init") != nullptr;
  return found;
}

// Marks memory as not to be touched, or as usable again; nothing without AddressSanitizer.
inline void forbid_access(const void* memory, size_t bytes) {
  using Poison = void(const volatile void*, size_t);
  static Poison* const poison = find_sanitizer_function<Poison>("__asan_poison_memory_region");
  if (poison != nullptr) poison(memory, bytes);
}

inline void allow_access(const void* memory, size_t bytes) {
  using Poison = void(const volatile void*, size_t);
  static Poison* const unpoison = find_sanitizer_function<Poison>("__asan_unpoison_memory_region");
  if (unpoison != nullptr) unpoison(memory, bytes);
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_SANITIZER_H_

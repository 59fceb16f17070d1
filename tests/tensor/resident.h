// SPDX-License-Identifier: Apache-2.0
// Resident memory of the process, for tests that nothing is left behind.
#ifndef ACLGRAD_TESTS_TENSOR_RESIDENT_H_
#define ACLGRAD_TESTS_TENSOR_RESIDENT_H_

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace aclgrad::test {

inline int64_t resident_bytes() {
  long pages = 0;
  long resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return -1;
  const int read = std::fscanf(file, "%ld %ld", &pages, &resident);
  std::fclose(file);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : -1;
}

// What a million pairs may add. The sanitizers keep freed memory for a while, and shadows of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int64_t kFlat = int64_t{1} << 30;
inline constexpr int kPairs = 200'000;
#else
inline constexpr int64_t kFlat = int64_t{2} << 20;
inline constexpr int kPairs = 1'000'000;
#endif

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_TENSOR_RESIDENT_H_

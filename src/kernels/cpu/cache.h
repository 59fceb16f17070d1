// SPDX-License-Identifier: Apache-2.0
// Cache lines, and when outputs should bypass the caches.
#ifndef ACLGRAD_KERNELS_CPU_CACHE_H_
#define ACLGRAD_KERNELS_CPU_CACHE_H_

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace aclgrad {

// Bytes of a cache line.
inline constexpr size_t kLineBytes = 64;

// Bytes of the last-level cache that one core shares with others, as the machine tells it.
inline int64_t last_level_bytes() {
  static const int64_t bytes = [] {
    // glibc counts the whole package's cache on AMD (320 MB where a core reaches 32): the kernel's
    // figure is the one that one core shares.
    const long total = sysconf(_SC_LEVEL3_CACHE_SIZE);
    int64_t least = total > 0 ? int64_t{total} : int64_t{32} << 20;
    std::FILE* file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    if (file != nullptr) {
      long kilobytes = 0;
      if (std::fscanf(file, "%ldK", &kilobytes) == 1 && kilobytes > 0) {
        least = std::min(least, int64_t{kilobytes} << 10);
      }
      std::fclose(file);
    }
    return least;
  }();
  return bytes;
}

// Whether a core's L2 cache has less than 1 MiB, as the machine tells it: Zen 3 and earlier have
// 512 KiB, Zen 4 1 MiB, recent Xeons 2.
inline bool has_small_l2() {
  static const bool small = [] {
    const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 && bytes < 1 << 20;
  }();
  return small;
}

// An ordinary store first reads the line it overwrites; a streaming store does not (a copy moves 2
// instead of 3 streams: 1.27x on a 2-core Zen 5), but throws away what the cache could have kept.
// So outputs stream from half of the last-level cache on, of which 32 MiB are believed: a virtual
// machine is told the socket's, and two of its cores kept about 64 of 480 MB (Granite Rapids, where
// streaming copies of 128 MB are 1.65 times as fast).
inline int64_t kept_output_bytes() {
  constexpr int64_t kBelieved = int64_t{32} << 20;
  return std::min(last_level_bytes(), kBelieved) / 2;
}
inline bool outputs_should_stream(int64_t output_bytes) {
  return output_bytes > kept_output_bytes();
}

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_CACHE_H_

// SPDX-License-Identifier: Apache-2.0
// When outputs should bypass the caches.
#ifndef ACLGRAD_KERNELS_CPU_CACHE_H_
#define ACLGRAD_KERNELS_CPU_CACHE_H_

#include <unistd.h>

#include <cstdint>

namespace aclgrad {

// An ordinary store first reads the line it overwrites; a streaming store does not (a copy moves 2
// instead of 3 streams: 1.27x on a 2-core Zen 5), but throws away what the cache could have kept.
// So outputs stream from half of the last-level cache on.
inline bool outputs_should_stream(int64_t output_bytes) {
  static const int64_t half_of_last_level = [] {
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? int64_t{bytes} / 2 : int64_t{16} << 20;
  }();
  return output_bytes > half_of_last_level;
}

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_CACHE_H_

// SPDX-License-Identifier: Apache-2.0
// What the machine, or the cgroup the process runs in, has to give.
#ifndef ACLGRAD_RUNTIME_CPU_MACHINE_H_
#define ACLGRAD_RUNTIME_CPU_MACHINE_H_

#include <cstddef>
#include <cstdint>

#include "runtime/backend.h"

namespace aclgrad::machine {

// Total and free RAM under the limits of the cgroups (both versions).
MemoryInfo memory_info();
// Processors this process may run on.
int64_t processors() noexcept;
// Bytes of the last-level cache.
int64_t last_level_cache() noexcept;

}  // namespace aclgrad::machine

#endif  // ACLGRAD_RUNTIME_CPU_MACHINE_H_

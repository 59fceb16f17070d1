// SPDX-License-Identifier: Apache-2.0
// The instruction set that all kernels of the process use (AVX-512's leave some short rows to
// AVX2's, halves.h). Chosen once when the library is loaded: the best one the machine has, or the
// one that ACLGRAD_TARGET names.
//
// Choosing before the first dispatch matters: on Highway 1.0.3 an unchosen dispatch table detects
// the CPU on every call (17 us on a virtual machine, where CPUID traps).
#ifndef ACLGRAD_KERNELS_CPU_TARGET_H_
#define ACLGRAD_KERNELS_CPU_TARGET_H_

namespace aclgrad {

extern "C" {
// "AVX3", "AVX2", "SSE4", "SCALAR", "NEON": the name of the one in use.
[[gnu::visibility("default")]] const char* aclgrad_active_target() noexcept;
// Uses the named instruction set from now on; false (and no change) when this machine or this build
// does not have it. Null: the best. For tests and benchmarks; not while kernels run.
[[gnu::visibility("default")]] bool aclgrad_use_target(const char* name) noexcept;
// The names that can be used here, separated by spaces, best first.
[[gnu::visibility("default")]] const char* aclgrad_usable_targets() noexcept;
}

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_TARGET_H_

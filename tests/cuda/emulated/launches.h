// SPDX-License-Identifier: Apache-2.0
// What launches of emulated kernels may ask for, and the end of a kernel that faults.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_LAUNCHES_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_LAUNCHES_H_

#include <cstddef>

namespace emulated {

// Bytes of shared memory that one may ask for (an H200's).
inline constexpr size_t kMostShared = size_t{227} << 10;

// From then on a kernel's access to memory without rights ends the kernel, not the process.
void handle_faults();

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_LAUNCHES_H_

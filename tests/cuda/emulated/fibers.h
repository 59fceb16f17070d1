// SPDX-License-Identifier: Apache-2.0
// The threads of one block of a kernel as fibers of one thread of the host.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_FIBERS_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_FIBERS_H_

#include <functional>
#include <string>

#include "cuda_runtime.h"

namespace emulated {

// Runs all blocks one after the other; what went wrong, or "", and CUDA's code for it.
std::string run_grid(const cudaLaunchConfig_t& config,
                     const std::function<void()>& thread_of_kernel, cudaError_t& kind);

// For the handler of a fault at `address`: does not return if a fiber runs on this thread.
void leave_kernel(const void* address);

inline constexpr unsigned kMostThreads = 1024;

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_FIBERS_H_

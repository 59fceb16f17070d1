// SPDX-License-Identifier: Apache-2.0
// The threads of one block of a kernel as fibers of one thread of the host.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_FIBERS_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_FIBERS_H_

#include <functional>
#include <string>

#include "cuda_runtime.h"

namespace emulated {

// Runs the block at `at` of a grid; what went wrong, or "", and CUDA's code for it.
std::string run_block(const cudaLaunchConfig_t& config, const uint3& at,
                      const std::function<void()>& thread_of_kernel, cudaError_t& kind);

// For the handler of a fault at `address`: does not return if a fiber runs on this thread.
void leave_kernel(const void* address);

// ACLGRAD_EMULATED_ORDER=backward: the last thread and the last block run first. Whoever reads what
// another has not written yet, because a barrier is missing, reads something else then.
bool backward();

inline constexpr unsigned kMostThreads = 1024;

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_FIBERS_H_

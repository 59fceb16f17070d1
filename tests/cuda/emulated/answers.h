// SPDX-License-Identifier: Apache-2.0
// What calls of the emulated runtime answer: what a kernel did wrong before, what a test asked for
// (faults.h), and the last error of the thread.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_ANSWERS_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_ANSWERS_H_

#include <string>

#include "cuda_runtime.h"
#include "devices.h"

namespace emulated {

// What a kernel did wrong. It sticks until its device is reset.
cudaError_t sticky(int device = current_device());
void set_fault(int device, cudaError_t error, const std::string& text);
void forget_fault(int device);

// The error, which is the thread's last one from now on if it is one.
cudaError_t noted(cudaError_t error);

// What a call answers before it does anything.
cudaError_t answer_first();

// For launches().
void count_launch();

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_ANSWERS_H_

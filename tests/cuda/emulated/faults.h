// SPDX-License-Identifier: Apache-2.0
// What a test makes the emulated devices do wrong.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_FAULTS_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_FAULTS_H_

#include "cuda_runtime.h"

namespace emulated {

// The call number `call` from now on, of those that allocate, make or hand something over or look
// at a kernel, answers `error`, which sticks if it is one of a kernel's. 0: none does.
[[gnu::visibility("default")]] void fail_call(int call, cudaError_t error);
// So do the calls behind it, `count` of them together.
[[gnu::visibility("default")]] void fail_calls(int call, int count, cudaError_t error);
// Whether the call that should fail has come.
[[gnu::visibility("default")]] bool call_failed();
// Kernels launched since fail_call(), and those of them before the call that failed last.
[[gnu::visibility("default")]] int launches();
[[gnu::visibility("default")]] int launches_before_failure();

// cudaDeviceReset() brings no device back.
[[gnu::visibility("default")]] void refuse_resets(bool refuse);

// Whether some call made a context on the device.
[[gnu::visibility("default")]] bool has_context(int device);

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_FAULTS_H_

// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that a thread does not wait for. They take effect as late as
// CUDA allows: when the thread waits.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_CUDA_PIPELINE_PRIMITIVES_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_CUDA_PIPELINE_PRIMITIVES_H_

#include <cstddef>

#include "cuda_runtime.h"

inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) {
  emulated::copy_async(to, from, bytes);
}
inline void __pipeline_commit() { emulated::commit_copies(); }
inline void __pipeline_wait_prior(size_t pending) { emulated::wait_copies(pending); }

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_CUDA_PIPELINE_PRIMITIVES_H_

// SPDX-License-Identifier: Apache-2.0
// Functions of CUDA's driver for which its runtime has no counterpart, looked up when they are
// first needed. One that is missing is null.
#ifndef ACLGRAD_RUNTIME_CUDA_DRIVER_H_
#define ACLGRAD_RUNTIME_CUDA_DRIVER_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace aclgrad::cuda {

// As in cuda.h, which not every machine has that builds this: a CUresult is an int whose values are
// those of cudaError_t, and a context is known by its address.
struct Driver {
  int (*stream_wait_value)(cudaStream_t stream, uint64_t address, uint32_t value, unsigned flags);
  int (*current_context)(void** context);
  int (*set_current_context)(void* context);
};

const Driver& driver() noexcept;

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_RUNTIME_CUDA_DRIVER_H_

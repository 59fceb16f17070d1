// SPDX-License-Identifier: Apache-2.0
// Memory of the device for what one call hands over, beyond its workspace.
#ifndef ACLGRAD_KERNELS_CUDA_SCRATCH_CUH_
#define ACLGRAD_KERNELS_CUDA_SCRATCH_CUH_

#include <cstddef>

#include "kernels/cuda/launch.cuh"

namespace aclgrad::cuda {

// Where there is none, what the library keeps for later is given back first.
inline cudaError_t take_scratch(const CudaQueue& queue, size_t bytes, void*& memory) {
  const auto stream = static_cast<cudaStream_t>(queue.stream);
  cudaError_t error = taken(cudaMallocAsync(&memory, bytes, stream));
  if (error == cudaErrorMemoryAllocation && queue.make_room != nullptr) {
    queue.make_room();
    error = taken(cudaMallocAsync(&memory, bytes, stream));
  }
  return error;
}

inline cudaError_t give_scratch(const CudaQueue& queue, void* memory) {
  return taken(cudaFreeAsync(memory, static_cast<cudaStream_t>(queue.stream)));
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_SCRATCH_CUH_

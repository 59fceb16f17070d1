// SPDX-License-Identifier: Apache-2.0
// Launching, the same for all kernels.
#ifndef ACLGRAD_KERNELS_CUDA_LAUNCH_CUH_
#define ACLGRAD_KERNELS_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/cuda/geometry.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/shared.cuh"

namespace aclgrad::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// Which device is current in this library's copy of CUDA's runtime is the thread's own affair; it
// is the queue's afterwards.
inline cudaError_t use_device(const CudaQueue& queue) {
  int current = -1;
  const bool there = cudaGetDevice(&current) == cudaSuccess && current == queue.device;
  return there ? cudaSuccess : cudaSetDevice(queue.device);
}

// What this library's copy of CUDA's runtime answered, taken off it: as its last error CUB would
// meet it in another call.
inline cudaError_t taken(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

// Lets the kernel have as much shared memory as there is: a limit just large enough for one launch
// could be lowered by another thread's before it takes place.
inline cudaError_t allow_most_shared(const void* kernel, int device) {
  cudaFuncAttributes known;
  if (const cudaError_t error = cudaFuncGetAttributes(&known, kernel)) return error;
  const auto most =
      static_cast<int>(most_shared(device) - static_cast<int64_t>(known.sharedSizeBytes));
  if (known.maxDynamicSharedSizeBytes >= most) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

// Nothing runs for no blocks.
template <class... Parameters, class... Given>
cudaError_t launch(const CudaQueue& queue, const Geometry& geometry, void (*kernel)(Parameters...),
                   Given&&... given) {
  if (geometry.blocks == 0) return cudaSuccess;
  if (const cudaError_t error = use_device(queue); error != cudaSuccess) return taken(error);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(geometry.blocks));
  config.blockDim = dim3(geometry.threads);
  config.dynamicSmemBytes = geometry.shared;
  config.stream = static_cast<cudaStream_t>(queue.stream);
  if (geometry.shared > kSharedBytes) {
    const cudaError_t error =
        allow_most_shared(reinterpret_cast<const void*>(kernel), queue.device);
    if (error != cudaSuccess) return taken(error);
  }
  return taken(cudaLaunchKernelEx(&config, kernel, std::forward<Given>(given)...));
}

// Of the running thread.
__device__ inline int64_t block_index() { return static_cast<int64_t>(blockIdx.x); }
__device__ inline int64_t block_count() { return static_cast<int64_t>(gridDim.x); }
__device__ inline int thread_index() { return static_cast<int>(threadIdx.x); }
__device__ inline int thread_count() { return static_cast<int>(blockDim.x); }
__device__ inline int lane_index() { return thread_index() % kWarpLanes; }
__device__ inline int warp_index() { return thread_index() / kWarpLanes; }
__device__ inline int warp_count() { return thread_count() / kWarpLanes; }

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_LAUNCH_CUH_

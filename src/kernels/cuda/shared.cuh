// SPDX-License-Identifier: Apache-2.0
// A block's shared memory whose size the launch decides (Geometry::shared), and copies to it that
// the thread does not wait for.
#ifndef ACLGRAD_KERNELS_CUDA_SHARED_CUH_
#define ACLGRAD_KERNELS_CUDA_SHARED_CUH_

#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace aclgrad::cuda {

#if defined(__CUDACC__)
// The name is the linker's: one for all kernels.
extern __shared__ uint4 aclgrad_shared_memory[];
__device__ inline std::byte* shared_memory() {
  return reinterpret_cast<std::byte*>(aclgrad_shared_memory);
}
#else
inline std::byte* shared_memory() { return emulated::shared_memory(); }
#endif

// Bytes of shared memory that a block may have on this device.
inline int64_t most_shared(int device) {
  int bytes = 0;
  const auto kind = cudaDevAttrMaxSharedMemoryPerBlockOptin;
  return cudaDeviceGetAttribute(&bytes, kind, device) == cudaSuccess ? bytes : 0;
}

// Sixteen bytes from global to shared memory, both aligned to them, past L1. They are there for the
// thread after arrive() and a wait() for it, for its block after a barrier behind that.
__device__ inline void copy_async(void* shared, const void* global) {
  __pipeline_memcpy_async(shared, global, 16);
}
// Closes a group of copies, which may be empty.
__device__ inline void arrive() { __pipeline_commit(); }
// Until all groups but the last kPending are there.
template <int kPending>
__device__ void wait() {
  __pipeline_wait_prior(kPending);
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_SHARED_CUH_

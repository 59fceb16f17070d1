// SPDX-License-Identifier: Apache-2.0
// Where kernels are launched, for code that knows nothing of CUDA.
#ifndef ACLGRAD_KERNELS_CUDA_QUEUE_H_
#define ACLGRAD_KERNELS_CUDA_QUEUE_H_

namespace aclgrad {

struct CudaQueue {
  void* stream = nullptr;  // a cudaStream_t
  int device = 0;          // CUDA's number
};

// What launching answered: a cudaError_t, 0 if all is well.
using CudaAnswer = int;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CUDA_QUEUE_H_

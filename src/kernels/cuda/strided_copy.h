// SPDX-License-Identifier: Apache-2.0
// Copies one strided view to another of the same shape, on a GPU: its only pack and unpack.
#ifndef ACLGRAD_KERNELS_CUDA_STRIDED_COPY_H_
#define ACLGRAD_KERNELS_CUDA_STRIDED_COPY_H_

#include "base/view.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {

// As strided_copy() of kernels/cpu. `sequential`: by one thread, in row-major order of the indices,
// for targets that may name one address twice.
CudaAnswer cuda_strided_copy(const View& from, const void* source, const View& to, void* target,
                             bool sequential, const CudaQueue& queue) noexcept;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CUDA_STRIDED_COPY_H_

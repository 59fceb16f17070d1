// SPDX-License-Identifier: Apache-2.0
// Sorting on a GPU: pairs of a key and a value by their keys; equal keys keep their order.
#ifndef ACLGRAD_KERNELS_CUDA_SORT_H_
#define ACLGRAD_KERNELS_CUDA_SORT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/queue.h"

namespace aclgrad {

// Unsigned keys and values of 32 bits (`wide`: of 64).
struct SortTask {
  bool wide = false;
  int64_t count = 0;
  int bits = 0;        // of a key, from the lowest on
  void* keys[2] = {};  // what is to be sorted stands in the first ones
  void* values[2] = {};
};

// Bytes of scratch that a sort of this count takes. The buffers do not matter.
CudaAnswer cuda_sort_scratch(const SortTask& task, const CudaQueue& queue, size_t& bytes) noexcept;

// `sorted` becomes 0 or 1: which of the buffers will have the result. The others are free then.
CudaAnswer cuda_sort(const SortTask& task, void* scratch, size_t scratch_bytes,
                     const CudaQueue& queue, int& sorted) noexcept;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CUDA_SORT_H_

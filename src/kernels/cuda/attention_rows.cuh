// SPDX-License-Identifier: Apache-2.0
// The rows of tensors [B, N, S1, S2]: where they lie, and whether neighbours can be taken in one
// access.
#ifndef ACLGRAD_KERNELS_CUDA_ATTENTION_ROWS_CUH_
#define ACLGRAD_KERNELS_CUDA_ATTENTION_ROWS_CUH_

#include <cstdint>

#include "base/view.h"
#include "kernels/cuda/vec.cuh"

namespace aclgrad::cuda {

// A row by the numbers of its batch, head and row.
struct RowIndex {
  int64_t batch, head, row;
  __device__ RowIndex(int64_t number, int64_t heads, int64_t rows)
      : batch(number / rows / heads), head(number / rows % heads), row(number % rows) {}
};

// Steps to the next batch, head and row, in elements.
struct RowStrides {
  int64_t batch, head, row;
  explicit RowStrides(const View& view)
      : batch(view.strides[0]), head(view.strides[1]), row(view.strides[2]) {}
  __device__ int64_t at(const RowIndex& index) const {
    return index.batch * batch + index.head * head + index.row * row;
  }
};

// Every row of the tensor begins where pairs of elements can be taken.
inline bool row_pairs_fit(const void* address, const View& view) {
  if (!pairs_fit(address, dtype_size(view.dtype))) return false;
  for (size_t i = 0; i < 3; ++i) {
    if (view.dims[i] != 1 && view.strides[i] % 2 != 0) return false;
  }
  return true;
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_ATTENTION_ROWS_CUH_

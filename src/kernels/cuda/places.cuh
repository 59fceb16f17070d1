// SPDX-License-Identifier: Apache-2.0
// Where the numbered elements of a view's leading dimensions lie, for kernels.
#ifndef ACLGRAD_KERNELS_CUDA_PLACES_CUH_
#define ACLGRAD_KERNELS_CUDA_PLACES_CUH_

#include <cstdint>

#include "base/view.h"
#include "kernels/cuda/launch.cuh"

namespace aclgrad::cuda {

struct Places {
  int rank = 0;
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};

  Places(const View& view, int dims_used) {
    const View joined = collapsed(view, 0, dims_used);
    for (rank = 0; rank < joined.rank; ++rank) {
      dims[rank] = joined.dims[static_cast<size_t>(rank)];
      strides[rank] = joined.strides[static_cast<size_t>(rank)];
    }
  }
  // In elements. The outermost dimension costs no division.
  __device__ int64_t at(int64_t number) const {
    int64_t offset = 0;
#pragma unroll 1  // one dimension is usual
    for (int i = rank - 1; i > 0; --i) {
      offset += number % dims[i] * strides[i];
      number /= dims[i];
    }
    return rank == 0 ? 0 : offset + number * strides[0];
  }
  // Every place is a multiple of `elements`.
  bool are_multiples_of(int64_t elements) const {
    for (int i = 0; i < rank; ++i) {
      if (strides[i] % elements != 0) return false;
    }
    return true;
  }
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_PLACES_CUH_

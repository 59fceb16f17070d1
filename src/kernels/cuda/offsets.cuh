// SPDX-License-Identifier: Apache-2.0
// Where the rows or elements of a strided view lie: RowOffsets (kernels/cpu/rows.h) for kernels.
#ifndef ACLGRAD_KERNELS_CUDA_OFFSETS_CUH_
#define ACLGRAD_KERNELS_CUDA_OFFSETS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "base/view.h"

namespace aclgrad::cuda {

class Offsets {
 public:
  Offsets() = default;
  // Of what lies at each index of the first `dims` dimensions.
  Offsets(const View& view, int dims) {
    const View outer = collapsed(view, 0, dims);
    rank_ = outer.rank;
    for (int i = 0; i < rank_; ++i) {
      dims_[i] = outer.dims[static_cast<size_t>(i)];
      strides_[i] = outer.strides[static_cast<size_t>(i)];
    }
  }

  // In elements. Contiguous and padded views cost a multiplication; every further dimension a
  // division.
  __device__ int64_t operator()(int64_t number) const {
    int64_t offset = 0;
#pragma unroll 1  // one dimension is usual, and registers are scarce
    for (int i = rank_ - 1; i > 0; --i) {
      offset += number % dims_[i] * strides_[i];
      number /= dims_[i];
    }
    return rank_ == 0 ? offset : offset + number * strides_[0];
  }

  // All offsets are multiples of `count` elements.
  bool multiples_of(int64_t count) const {
    for (int i = 0; i < rank_; ++i) {
      if (strides_[i] % count != 0) return false;
    }
    return true;
  }

 private:
  int rank_ = 0;
  int64_t dims_[kMaxRank] = {};
  int64_t strides_[kMaxRank] = {};
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_OFFSETS_CUH_

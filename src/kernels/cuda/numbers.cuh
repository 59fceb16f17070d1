// SPDX-License-Identifier: Apache-2.0
// Numbers that come one for each row or column, as views of any strides and float dtype.
#ifndef ACLGRAD_KERNELS_CUDA_NUMBERS_CUH_
#define ACLGRAD_KERNELS_CUDA_NUMBERS_CUH_

#include <cstdint>

#include "kernels/cuda/offsets.cuh"
#include "kernels/cuda/vec.cuh"

namespace aclgrad::cuda {

struct NumbersIn {
  const void* base = nullptr;
  Offsets places;
  aclDataType dtype = ACL_DT_UNDEFINED;

  NumbersIn() = default;
  NumbersIn(const View& view, const void* at)
      : base(at), places(view, view.rank), dtype(view.dtype) {}
  __device__ float at(int64_t number) const { return load_number(base, dtype, places(number)); }
};

// Not wanted where base is null.
struct NumbersOut {
  void* base = nullptr;
  Offsets places;
  aclDataType dtype = ACL_DT_UNDEFINED;

  NumbersOut() = default;
  NumbersOut(const View& view, void* at) : base(at), places(view, view.rank), dtype(view.dtype) {}
  __device__ void put(int64_t number, float value) const {
    if (base != nullptr) store_number(base, dtype, places(number), value);
  }
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_NUMBERS_CUH_

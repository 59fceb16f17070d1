// SPDX-License-Identifier: Apache-2.0
// Elements of FP32, FP16 and BF16 as FP32, one and two at a time. The same bits as on the CPU:
// exact in, nearest even and the canonical NaN out.
#ifndef ACLGRAD_KERNELS_CUDA_VEC_CUH_
#define ACLGRAD_KERNELS_CUDA_VEC_CUH_

#include <cuda_runtime.h>
#if defined(__CUDACC__)
#include <cuda_fp16.h>
#endif

#include <bit>
#include <cstdint>

#include "base/half.h"

namespace aclgrad::cuda {

__host__ __device__ inline uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}
__host__ __device__ inline float float_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

__host__ __device__ inline float widen(float value) { return value; }
__host__ __device__ inline float widen(bfloat16_t value) { return to_float(value); }
// FP16 by the instruction that a GPU has for it.
__host__ __device__ inline float widen(float16_t value) {
#if defined(__CUDA_ARCH__)
  return __half2float(__ushort_as_half(value.bits));
#else
  return to_float(value);
#endif
}

template <class T>
__host__ __device__ T narrow(float value) {
  return from_float<T>(value);
}
template <>
__host__ __device__ inline float16_t narrow<float16_t>(float value) {
#if defined(__CUDA_ARCH__)
  const uint16_t bits = __half_as_ushort(__float2half_rn(value));
  return {value != value ? kCanonicalNanF16 : bits};  // the instruction's own NaN is 0x7FFF
#else
  return from_float<float16_t>(value);
#endif
}

// Two elements in one access; `at` is aligned to both of them.
template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T first, second;
};
template <class T>
__device__ Pair<T> load_pair(const T* at) {
  return *reinterpret_cast<const Pair<T>*>(at);
}
template <class T>
__device__ void store_pair(T* at, float first, float second) {
  *reinterpret_cast<Pair<T>*>(at) = Pair<T>{narrow<T>(first), narrow<T>(second)};
}

// Whether pairs of elements of `size` bytes can be taken from `address` on.
inline bool pairs_fit(const void* address, size_t size) {
  return reinterpret_cast<uintptr_t>(address) % (2 * size) == 0;
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_VEC_CUH_

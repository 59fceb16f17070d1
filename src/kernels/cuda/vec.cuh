// SPDX-License-Identifier: Apache-2.0
// Elements of FP32, FP16 and BF16 as FP32, one and two at a time. The same bits as on the CPU:
// exact in, nearest even and the canonical NaN out.
#ifndef ACLGRAD_KERNELS_CUDA_VEC_CUH_
#define ACLGRAD_KERNELS_CUDA_VEC_CUH_

#include <cuda_runtime.h>
#if defined(__CUDACC__)
#include <cuda_bf16.h>
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

// What one access of sixteen bytes takes.
inline constexpr int kAccessBytes = 16;
template <class T>
inline constexpr int kAccess = kAccessBytes / static_cast<int>(sizeof(T));

// kCount neighbours in one access.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Several {
  T each[kCount];
};
template <int kCount, class T>
__device__ Several<T, kCount> load_several(const T* at) {
  return *reinterpret_cast<const Several<T, kCount>*>(at);
}

// Two numbers, neither a NaN, in one instruction.
__device__ inline void narrow_clean(const float* from, float* to) {
  to[0] = from[0];
  to[1] = from[1];
}
__device__ inline void narrow_clean(const float* from, float16_t* to) {
#if defined(__CUDA_ARCH__)
  const __half2 both = __floats2half2_rn(from[0], from[1]);
  to[0].bits = __half_as_ushort(__low2half(both));
  to[1].bits = __half_as_ushort(__high2half(both));
#else
  for (int i = 0; i < 2; ++i) to[i] = from_float<float16_t>(from[i]);
#endif
}
__device__ inline void narrow_clean(const float* from, bfloat16_t* to) {
#if defined(__CUDA_ARCH__)
  const __nv_bfloat162 both = __floats2bfloat162_rn(from[0], from[1]);
  to[0].bits = __bfloat16_as_ushort(__low2bfloat16(both));
  to[1].bits = __bfloat16_as_ushort(__high2bfloat16(both));
#else
  for (int i = 0; i < 2; ++i) to[i] = from_float<bfloat16_t>(from[i]);
#endif
}

// As narrow() of each. Whether one is a NaN is asked once for all of them.
template <class T, int kCount>
__device__ Several<T, kCount> narrow_several(const float (&values)[kCount]) {
  static_assert(kCount % 2 == 0);
  Several<T, kCount> out;
  bool any_nan = false;
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    narrow_clean(values + i, out.each + i);
    any_nan = any_nan || values[i] != values[i] || values[i + 1] != values[i + 1];
  }
  if (any_nan) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (values[i] != values[i]) out.each[i] = from_float<T>(float_of(kCanonicalNanF32));
    }
  }
  return out;
}

// An element of any float dtype.
__device__ inline float load_number(const void* base, aclDataType dtype, int64_t at) {
  if (dtype == ACL_FLOAT16) return widen(static_cast<const float16_t*>(base)[at]);
  if (dtype == ACL_BF16) return widen(static_cast<const bfloat16_t*>(base)[at]);
  return static_cast<const float*>(base)[at];
}
__device__ inline void store_number(void* base, aclDataType dtype, int64_t at, float value) {
  if (dtype == ACL_FLOAT16) {
    static_cast<float16_t*>(base)[at] = narrow<float16_t>(value);
  } else if (dtype == ACL_BF16) {
    static_cast<bfloat16_t*>(base)[at] = narrow<bfloat16_t>(value);
  } else {
    static_cast<float*>(base)[at] = narrow<float>(value);
  }
}

inline bool access_fits(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kAccessBytes == 0;
}

// Whether pairs of elements of `size` bytes can be taken from `address` on.
inline bool pairs_fit(const void* address, size_t size) {
  return reinterpret_cast<uintptr_t>(address) % (2 * size) == 0;
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_VEC_CUH_

// SPDX-License-Identifier: Apache-2.0
// One run of ScaledMaskedSoftmax as its kernels on a GPU see it, its rows, the exponents of unusual
// ones, and what the elements of a row are divided by.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_TASK_CUH_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_TASK_CUH_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/exp.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/scaled_masked_softmax/tree.h"

namespace aclgrad::scaled_masked_softmax::gpu {

struct Task {
  const void *x, *mask;
  void* y;
  cuda::RowStrides x_strides, mask_strides, y_strides;
  int64_t heads, rows, all_rows;
  int cols;
  int warps_of_row;
  double scale;
  double factor;  // abs(scale) / log(2)
  float sign;     // of the scale
  bool usual;     // the factor leaves room for FP32 corrections
  bool paired;    // neighbours can be taken in one access
};

template <class T>
struct RowAt {
  const T* x;
  const uint8_t* mask;
  T* y;
};
template <class T>
__device__ RowAt<T> row_at(const Task& task, int64_t number) {
  const cuda::RowIndex index(number, task.heads, task.rows);
  return {static_cast<const T*>(task.x) + task.x_strides.at(index),
          static_cast<const uint8_t*>(task.mask) + task.mask_strides.at(index),
          static_cast<T*>(task.y) + task.y_strides.at(index)};
}

__device__ inline bool is_usual(const Task& task, float largest) {
  const float exponent = largest * static_cast<float>(task.factor);
  return task.usual && exponent > kLowestUsual && exponent < kHighestUsual;
}

// The exponents of an unusual row, base 2, in FP64 (exponents.h says the same).
struct Exponents {
  double scale;
  double largest = 0.0;
  bool has_nan = false;
  bool from_mask = false;
  bool all_masked = true;

  template <class T>
  __device__ Exponents(const Task& task, const RowAt<T>& row) : scale(task.scale) {
    double top = -std::numeric_limits<double>::infinity();
    bool any_masked = false;
    for (int c = 0; c < task.cols; ++c) {
      if (row.mask[c] != 0) {
        any_masked = true;
        continue;
      }
      all_masked = false;
      const auto value = static_cast<double>(cuda::widen(row.x[c]));
      const double z = scale * value;
      has_nan = has_nan || z != z;
      if (z >= top) {
        top = z;
        largest = value;
      }
    }
    from_mask = any_masked && !(top > kMasked);
  }
  // kExpGain * exp() of an element.
  __device__ float exp_of(float x, bool masked) const {
    if (all_masked) return kExpGain;
    if (masked) {
      return cuda::exp2_below(from_mask ? 0.0 : (kMasked - scale * largest) * kLog2OfE);
    }
    const auto value = static_cast<double>(x);
    return cuda::exp2_below((from_mask ? scale * value - kMasked : scale * (value - largest)) *
                            kLog2OfE);
  }
};

// What the elements of a row are multiplied by after exp(): 1 / sum, in two parts.
struct Quotient {
  float high, low;
};
__device__ inline Quotient quotient_of(double sum) {
  const double exact = 1.0 / sum;
  const auto high = static_cast<float>(exact);
  return {high, static_cast<float>(exact - static_cast<double>(high))};
}
// Of a short row, whose sixteens have these sums: in FP32, as the CPU does it for many rows at once
// (short-inl.h). Elsewhere `low` differs in its last bits, which a quotient near a tie shows.
__device__ inline Quotient short_quotient_of(float first, float second) {
  const float sum = first + second;
  const float back = sum - first;
  const float lost = (first - (sum - back)) + (second - back);
  const float high = 1.0f / sum;
  return {high, high * fmaf(-high, lost, fmaf(-high, sum, 1.0f))};
}
template <class T>
__device__ float divided(float value, const Quotient& by) {
  if constexpr (std::is_same_v<T, float>) return fmaf(value, by.high, value * by.low);
  return value * by.high;
}

}  // namespace aclgrad::scaled_masked_softmax::gpu

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_TASK_CUH_

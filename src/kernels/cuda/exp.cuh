// SPDX-License-Identifier: Apache-2.0
// exp() of numbers that are not above the highest of them: operation by operation what the CPU does
// (kernels/cpu/exp-inl.h, where it is explained), so the bits are its own.
#ifndef ACLGRAD_KERNELS_CUDA_EXP_CUH_
#define ACLGRAD_KERNELS_CUDA_EXP_CUH_

#include "kernels/cuda/vec.cuh"

namespace aclgrad::cuda {

inline constexpr float kExpGain = 0x1p24f;
inline constexpr float kExpRounder = 0x1.8p23f + 127.0f + 24.0f;
inline constexpr float kExpLeast = kExpRounder - 150.0f;

struct ExpTerms {
  float factor, factor_low, rounder, rest;
};
__device__ inline ExpTerms exp_terms(double factor, float highest) {
  ExpTerms out;
  out.factor = static_cast<float>(factor);
  out.factor_low = static_cast<float>(factor - static_cast<double>(out.factor));
  const float whole = (out.factor * highest + kExpRounder) - kExpRounder;
  out.rounder = kExpRounder - whole;
  out.rest = fmaf(out.factor_low, highest, fmaf(out.factor, highest, -whole));
  return out;
}

__device__ inline float exp2_split(float shifted, float fraction) {
  float power = 0x1.3e0794p-13f;
  power = fmaf(power, fraction, 0x1.5f13d4p-10f);
  power = fmaf(power, fraction, 0x1.3b3342p-7f);
  power = fmaf(power, fraction, 0x1.c6af6ap-5f);
  power = fmaf(power, fraction, 0x1.ebfbd4p-3f);
  power = fmaf(power, fraction, 0x1.62e430p-1f);
  power = fmaf(power, fraction, 1.0f);
  const float value = power * float_of(bits_of(shifted) << 23);
  return shifted < kExpLeast ? 0.0f : value;
}

// kExpGain * exp(scale * (x - highest)).
__device__ inline float exp_below(float x, const ExpTerms& terms) {
  const float shifted = fmaf(x, terms.factor, -terms.rest) + terms.rounder;
  const float n = shifted - terms.rounder;
  const float product = fmaf(terms.factor_low, x, fmaf(terms.factor, x, -n));
  return exp2_split(shifted, product - terms.rest);
}

// kExpGain * 2^exponent, not above 0.
__device__ inline float exp2_below(double exponent) {
  const double kept = exponent < -1000.0 ? -1000.0 : exponent;
  const auto high = static_cast<float>(kept);
  const auto low = static_cast<float>(kept - static_cast<double>(high));
  const float shifted = high + kExpRounder;
  const float n = shifted - kExpRounder;
  return exp2_split(shifted, (high - n) + low);
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_EXP_CUH_

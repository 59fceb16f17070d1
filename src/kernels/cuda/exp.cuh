// SPDX-License-Identifier: Apache-2.0
// exp() of numbers that are not above the highest of them: operation by operation what the CPU does
// (kernels/cpu/exp-inl.h, where it is explained), so the bits are its own.
#ifndef ACLGRAD_KERNELS_CUDA_EXP_CUH_
#define ACLGRAD_KERNELS_CUDA_EXP_CUH_

#include "kernels/cuda/vec.cuh"
#include "kernels/exp_numbers.h"

namespace aclgrad::cuda {

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
  float power = kExp6;
  power = fmaf(power, fraction, kExp5);
  power = fmaf(power, fraction, kExp4);
  power = fmaf(power, fraction, kExp3);
  power = fmaf(power, fraction, kExp2);
  power = fmaf(power, fraction, kExp1);
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
  const double kept = exponent < kExpLeastWide ? kExpLeastWide : exponent;
  const auto high = static_cast<float>(kept);
  const auto low = static_cast<float>(kept - static_cast<double>(high));
  const float shifted = high + kExpRounder;
  const float n = shifted - kExpRounder;
  return exp2_split(shifted, (high - n) + low);
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_EXP_CUH_

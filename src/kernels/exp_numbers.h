// SPDX-License-Identifier: Apache-2.0
// The numbers of exp(), which the CPU (cpu/exp-inl.h, where it is explained) and GPUs
// (cuda/exp.cuh) compute operation by operation alike.
#ifndef ACLGRAD_KERNELS_EXP_NUMBERS_H_
#define ACLGRAD_KERNELS_EXP_NUMBERS_H_

namespace aclgrad {

// All results are this much too large, so that what is subnormal in FP32 after a division by a sum
// of them is a normal number here, and is rounded once.
inline constexpr float kExpGain = 0x1p24f;

// Added to a number it rounds it to an integer n, and leaves the exponent field of 2^n * kExpGain
// in the sum's low bits: 127 + 24 is the bias, with the gain.
inline constexpr float kExpRounder = 0x1.8p23f + 127.0f + 24.0f;

// Numbers below 2^-150 of the highest become +0, so that what is left has an exponent field.
inline constexpr float kExpLeast = kExpRounder - 150.0f;

// Exponents in FP64 are kept from here up, so that as FP32 they are finite.
inline constexpr double kExpLeastWide = -1000.0;

// 2^x for x of at most 0.505 in magnitude, 1 + kExp1 x + kExp2 x^2 + ...: the polynomial of this
// degree with the least relative error; 0.08 units of 2^-24 with these coefficients.
inline constexpr float kExp1 = 0x1.62e430p-1f;
inline constexpr float kExp2 = 0x1.ebfbd4p-3f;
inline constexpr float kExp3 = 0x1.c6af6ap-5f;
inline constexpr float kExp4 = 0x1.3b3342p-7f;
inline constexpr float kExp5 = 0x1.5f13d4p-10f;
inline constexpr float kExp6 = 0x1.3e0794p-13f;

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_EXP_NUMBERS_H_

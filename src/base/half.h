// SPDX-License-Identifier: Apache-2.0
// FP16 and BF16 scalars: round to nearest even, subnormals kept, every NaN becomes the canonical
// quiet one. Integer arithmetic only, so the caller's rounding mode has no influence.
#ifndef ACLGRAD_BASE_HALF_H_
#define ACLGRAD_BASE_HALF_H_

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace aclgrad {

inline constexpr uint32_t kCanonicalNanF32 = 0x7FC00000u;
inline constexpr uint16_t kCanonicalNanF16 = 0x7E00u;
inline constexpr uint16_t kCanonicalNanBf16 = 0x7FC0u;

constexpr float to_float(float value) { return value; }

constexpr float to_float(bfloat16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

constexpr float to_float(float16_t value) {
  const uint32_t sign = (uint32_t{value.bits} & 0x8000u) << 16;
  const uint32_t exponent = (uint32_t{value.bits} >> 10) & 0x1Fu;
  uint32_t mantissa = uint32_t{value.bits} & 0x3FFu;
  if (exponent == 31) {  // Inf and NaN
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // Subnormal: shift the leading one into place; 2^-14 is the weight of bit 10.
  const int shift = std::countl_zero(mantissa) - 21;
  mantissa = (mantissa << shift) & 0x3FFu;
  return std::bit_cast<float>(sign | (static_cast<uint32_t>(113 - shift) << 23) | (mantissa << 13));
}

template <class T>
constexpr T from_float(float value);

template <>
constexpr float from_float<float>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return nan ? std::bit_cast<float>(kCanonicalNanF32) : value;
}

template <>
constexpr bfloat16_t from_float<bfloat16_t>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {kCanonicalNanBf16};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

template <>
constexpr float16_t from_float<float16_t>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {kCanonicalNanF16};
  if (magnitude >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // >= 2^16
  if (magnitude >= 0x38800000u) {  // normal: a carry out of the mantissa may reach Inf
    const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
    return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  }
  if (magnitude < 0x33000000u) return {sign};  // below half of the smallest subnormal, 2^-25
  const uint32_t shift = 126u - (magnitude >> 23);
  const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
  const uint32_t half = (1u << (shift - 1)) - 1u;
  return {static_cast<uint16_t>(sign | ((mantissa + half + ((mantissa >> shift) & 1u)) >> shift))};
}

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_HALF_H_

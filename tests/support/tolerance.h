// SPDX-License-Identifier: Apache-2.0
// What the library promises of each output: |got - exact| <= 0.5 ulp + 8 * 2^-24 * A + terms *
// 2^-149, A being the sum of the magnitudes of the element's terms.
#ifndef ACLGRAD_TESTS_SUPPORT_TOLERANCE_H_
#define ACLGRAD_TESTS_SUPPORT_TOLERANCE_H_

#include <algorithm>
#include <cmath>
#include <limits>

#include "acl/acl_base.h"

namespace aclgrad::test {

// Exponent range and precision of a floating dtype.
struct FloatFormat {
  int precision;         // bits of the significand, the leading one included
  int least_exponent;    // of the smallest normal number
  int largest_exponent;  // of the largest number
};

constexpr FloatFormat float_format(aclDataType dtype) {
  if (dtype == ACL_FLOAT16) return {11, -14, 15};
  if (dtype == ACL_BF16) return {8, -126, 127};
  return {24, -126, 127};
}

// Distance of neighbouring numbers of the dtype at x; from the largest number on that of its
// binade.
inline double ulp(double x, aclDataType dtype) {
  const FloatFormat format = float_format(dtype);
  int exponent = format.least_exponent;
  if (x != 0.0 && std::isfinite(x)) exponent = std::max(exponent, std::ilogb(x));
  if (std::isinf(x)) exponent = format.largest_exponent;
  exponent = std::min(exponent, format.largest_exponent);
  return std::ldexp(1.0, exponent - format.precision + 1);
}

// x rounded once to the dtype, to nearest even; Inf where it overflows.
inline double rounded(double x, aclDataType dtype) {
  if (!std::isfinite(x)) return x;
  const FloatFormat format = float_format(dtype);
  const double unit = ulp(x, dtype);
  const double result = std::nearbyint(x / unit) * unit;
  const double overflow = std::ldexp(1.0, format.largest_exponent + 1);
  if (std::abs(result) >= overflow) {
    return std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  return result;
}

inline double tolerance(double exact, double magnitude, aclDataType dtype, double terms) {
  return 0.5 * ulp(exact, dtype) + 8 * 0x1p-24 * magnitude + terms * 0x1p-149;
}

// Inf counts as the first number too large for the dtype, so that a sum which is Inf only by its
// last rounding is judged like any other.
inline bool is_close(double got, double exact, double magnitude, aclDataType dtype, double terms) {
  if (std::isnan(exact)) return std::isnan(got);
  if (std::isinf(exact)) return got == exact;
  if (magnitude >= 0x1p127) return true;  // an FP32 intermediate may have overflowed
  if (std::isnan(got)) return false;
  if (got == rounded(exact, dtype)) return true;
  const double overflow = std::ldexp(1.0, float_format(dtype).largest_exponent + 1);
  const double value = std::isinf(got) ? std::copysign(overflow, got) : got;
  return std::abs(value - exact) <= tolerance(exact, magnitude, dtype, terms);
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_TOLERANCE_H_

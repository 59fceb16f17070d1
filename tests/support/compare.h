// SPDX-License-Identifier: Apache-2.0
// The promise on numbers: |got - exact| <= 0.5 ulp of the dtype + 8 * 2^-24 * A + terms * 2^-149,
// A being the sum of the magnitudes of the terms.
#ifndef ACLGRAD_TESTS_SUPPORT_COMPARE_H_
#define ACLGRAD_TESTS_SUPPORT_COMPARE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "base/half.h"
#include "support/tensor.h"
#include "support/tolerance.h"

namespace aclgrad::test {

// Compares every element; reports the first that is off, and how many are. `name` should let the
// problem be run again ("layer_norm_backward/f16/4096x1024 dx, AVX2, seed 7").
// Returns the largest error in units of the tolerance.
inline double expect_close(const std::string& name, const std::vector<double>& got,
                           const std::vector<double>& exact, const std::vector<double>& magnitude,
                           aclDataType dtype, double terms = 0) {
  if (got.size() != exact.size() || magnitude.size() != exact.size()) {
    ADD_FAILURE() << name << ": " << got.size() << " values, " << exact.size() << " expected, "
                  << magnitude.size() << " magnitudes";
    return std::numeric_limits<double>::infinity();
  }
  size_t wrong = 0;
  double worst = 0;
  std::ostringstream first;
  for (size_t i = 0; i < got.size(); ++i) {
    const double allowed = tolerance(exact[i], magnitude[i], dtype, terms);
    const double error = std::abs(got[i] - exact[i]);
    if (std::isfinite(error) && allowed > 0) worst = std::max(worst, error / allowed);
    if (is_close(got[i], exact[i], magnitude[i], dtype, terms)) continue;
    if (wrong++ == 0) {
      first << std::setprecision(17) << "element " << i << " is " << got[i] << ", exact "
            << exact[i] << ", off by " << error << ", allowed " << allowed << " (A " << magnitude[i]
            << ")";
    }
  }
  EXPECT_EQ(wrong, 0u) << name << ": " << wrong << " of " << got.size() << " wrong; "
                       << first.str();
  return worst;
}

// Every NaN of the tensor is the canonical quiet one.
inline void expect_canonical_nan(const std::string& name, const Tensor& got) {
  const std::vector<uint8_t> bits = got.bits();
  const std::vector<double> values = got.values();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isnan(values[i])) continue;
    const uint8_t* at = &bits[i * got.element_size()];
    if (got.dtype() == ACL_FLOAT) {
      EXPECT_EQ(load_as<uint32_t>(at), kCanonicalNanF32) << name << ": element " << i;
    } else {
      EXPECT_EQ(load_as<uint16_t>(at),
                got.dtype() == ACL_FLOAT16 ? kCanonicalNanF16 : kCanonicalNanBf16)
          << name << ": element " << i;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

// The tensor's numbers, its NaNs' bits, and its guard bytes.
inline double expect_close(const std::string& name, const Tensor& got,
                           const std::vector<double>& exact, const std::vector<double>& magnitude,
                           double terms = 0) {
  EXPECT_TRUE(got.untouched_outside()) << name << ": bytes outside the view were written";
  expect_canonical_nan(name, got);
  return expect_close(name, got.values(), exact, magnitude, got.dtype(), terms);
}

inline void expect_same_bits(const std::string& name, const std::vector<uint8_t>& got,
                             const std::vector<uint8_t>& expected) {
  ASSERT_EQ(got.size(), expected.size()) << name;
  const auto place = std::mismatch(got.begin(), got.end(), expected.begin());
  EXPECT_TRUE(place.first == got.end()) << name << ": other bits, first at byte "
                                        << place.first - got.begin() << " of " << got.size();
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_COMPARE_H_

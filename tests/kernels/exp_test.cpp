// SPDX-License-Identifier: Apache-2.0
// exp() on every instruction set, against double over its whole range.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "kernels/each_target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/exp_test.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

void exp_all(const float* in, float* out, size_t n, double factor, float highest) {
  const ExpTerms terms = exp_terms(factor, set16(highest));
  for (size_t i = 0; i < n; i += kLanes) store_raw(exp_below(load16(in + i), terms), out + i);
}
void exp2_all(const double* in, float* out, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) store_raw(exp2_below(in + i), out + i);
}
float gain() { return kExpGain; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad {
namespace {

HWY_EXPORT(exp_all);
HWY_EXPORT(exp2_all);
HWY_EXPORT(gain);

constexpr double kUnit = 0x1p-24;
constexpr double kMostUnits = 2.0;
constexpr double kLog2OfE = 0x1.71547652b82fep0;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<float> exp_of(const std::vector<float>& x, double scale, float highest) {
  std::vector<float> out(x.size());
  HWY_DYNAMIC_DISPATCH(exp_all)(x.data(), out.data(), x.size(), scale * kLog2OfE, highest);
  for (float& value : out) value /= HWY_DYNAMIC_DISPATCH(gain)();  // exact: none is that small
  return out;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& expected) {
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i])) << i;
  }
}

// Numbers up to `highest`, close to it and as far below as exp() goes; a multiple of sixteen.
std::vector<float> numbers_below(float highest, double scale) {
  std::vector<float> out = {highest, highest};
  const double reach = 105.0 / scale;
  constexpr int kSteps = 200000;
  for (int i = 0; i < kSteps; ++i) {
    out.push_back(static_cast<float>(double{highest} - reach * i / kSteps));
  }
  float near = highest;
  for (int i = 0; i < 1000; ++i) {
    near = std::nextafter(near, -std::numeric_limits<float>::infinity());
    out.push_back(near);
  }
  while (out.size() % 16 != 0) out.push_back(highest);
  return out;
}

// The results of the first target, right to the promise; those of the others are the same bits.
void check(const std::vector<float>& x, double scale, float highest) {
  std::vector<float> expected;
  for_each_target([&](bool first) {
    const std::vector<float> got = exp_of(x, scale, highest);
    if (!first) {
      expect_same_bits(got, expected);
      return;
    }
    expected = got;
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exponent = scale * (static_cast<double>(x[i]) - static_cast<double>(highest));
      const double exact = std::exp(exponent);
      // What is below 2^-150 may be 0, and FP32's subnormals are rounded by the division here.
      const double allowed = kMostUnits * kUnit * exact + 0x1p-149;
      const double error = std::abs(static_cast<double>(got[i]) - exact);
      ASSERT_LE(error, allowed) << "exp of " << exponent << " is " << got[i];
      if (exact > 0x1p-120) worst = std::max(worst, error / exact / kUnit);
    }
    EXPECT_EQ(got[0], 1.0f) << "of the highest";
    EXPECT_GT(worst, 0.5) << "no rounding error at all?";
    testing::Test::RecordProperty("worst_units", std::to_string(worst));
  });
}

TEST(Exp, TheWholeRangeHoldsTheTolerance) {
  for (const float highest : {0.0f, 1.0f, -0.37f, 17.3f, -88.0f, 1000.25f, -9700.1f, 30000.7f}) {
    for (const double scale : {1.0, 0.125, 0.08838834764831845, 2.9999999}) {
      if (std::abs(static_cast<double>(highest)) * scale > 90000.0) continue;
      SCOPED_TRACE(std::to_string(highest) + " * " + std::to_string(scale));
      check(numbers_below(highest, scale), scale, highest);
    }
  }
  check(numbers_below(1e-20f, 1e21), 1e21, 1e-20f);
  check(numbers_below(-3e25f, 1e-22), 1e-22, -3e25f);
}

TEST(Exp, EveryBinadeOfArguments) {
  std::mt19937 random(1);
  std::vector<float> x = {0.0f, -0.0f};
  while (x.size() < 400000) {
    x.push_back(-std::abs(std::bit_cast<float>(static_cast<uint32_t>(random()))));
    if (!std::isfinite(x.back())) x.pop_back();
  }
  check(x, 1.0, 0.0f);
}

TEST(Exp, SpecialNumbers) {
  for_each_target([](bool) {
    const auto low = static_cast<float>(-kInf);
    const std::vector<float> x = {low,
                                  static_cast<float>(kNan),
                                  std::bit_cast<float>(0x7F800001u),
                                  std::bit_cast<float>(0xFFFFFFFFu),
                                  std::bit_cast<float>(0x7FA00055u),
                                  -3e38f,
                                  -104.0f,
                                  0.0f,
                                  low,
                                  low,
                                  low,
                                  low,
                                  low,
                                  low,
                                  low,
                                  -103.0f};
    const std::vector<float> got = exp_of(x, 1.0, 0.0f);
    for (size_t i = 1; i < 5; ++i) EXPECT_TRUE(std::isnan(got[i])) << i;
    for (const size_t i : {0u, 5u, 6u, 8u}) EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), 0u) << i;
    EXPECT_EQ(got[7], 1.0f);
    EXPECT_EQ(got[15], 0x1p-149f);
  });
}

TEST(Exp, Exponents) {
  std::vector<double> in = {0.0, -0.0, -kInf, kNan, -1e300, -151.0, -1.0, -149.0};
  for (int i = 0; i < 100000; ++i) in.push_back(-i * 0.00151);
  while (in.size() % 16 != 0) in.push_back(-0.5);
  std::vector<float> expected;
  for_each_target([&](bool first) {
    std::vector<float> got(in.size());
    HWY_DYNAMIC_DISPATCH(exp2_all)(in.data(), got.data(), in.size());
    if (!first) {
      expect_same_bits(got, expected);
      return;
    }
    expected = got;
    for (size_t i = 0; i < in.size(); ++i) {
      const double exact = std::isnan(in[i]) ? kNan : std::exp2(in[i]) * 0x1p24;
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(got[i]));
        continue;
      }
      const double error = std::abs(static_cast<double>(got[i]) - exact);
      ASSERT_LE(error, kMostUnits * kUnit * exact + 0x1p-125) << in[i];
    }
    EXPECT_EQ(got[0], 0x1p24f);
    EXPECT_EQ(got[6], 0x1p23f);
  });
}

}  // namespace
}  // namespace aclgrad
#endif  // HWY_ONCE

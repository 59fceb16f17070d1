// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax of NaN, infinities, masks of all or nothing, and every magnitude.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ops/scaled_masked_softmax/test_problem.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

// Everywhere in rows of every kind: a NaN, an Inf, a -Inf, masked or not, in place of one element
// or of all.
TEST(ScaledMaskedSoftmax, NanAndInfFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t cols : {1, 3, 16, 33, 150}) {
    for (const double special : {inf, -inf, nan}) {
      for (const double scale : {0.125, -3.0, 0.0, nan, inf}) {
        for (const aclDataType dtype : kFloats) {
          for (const bool masked : {true, false}) {
            Options options = all_of(dtype);
            options.scale = scale;
            Problem problem({1, 2, 4, cols}, options);
            std::vector<double> values = problem.x.values(), mask = problem.mask.values();
            const auto row = static_cast<size_t>(cols);
            values[row + row / 2] = special;
            mask[row + row / 2] = masked;
            std::fill_n(values.begin() + 2 * cols, cols, special);
            std::fill_n(values.begin() + 3 * cols, cols, special);
            std::fill_n(mask.begin() + 3 * cols, cols, 0.0);
            problem.x.fill(values);
            problem.mask.fill(mask);
            SCOPED_TRACE(std::to_string(special) + " times " + std::to_string(scale) + ", S2 " +
                         std::to_string(cols));
            for_each_target([&](const std::string&) {
              ASSERT_TRUE(problem.run_it().ok());
              problem.expect_right();
            });
          }
        }
      }
    }
  }
}

// FP32 NaNs of every kind of bits come out as the canonical one, on every target.
TEST(ScaledMaskedSoftmax, NansWithAnyBitsMakeTheirRowsCanonical) {
  for (const uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFC12345u, 0x7FA00055u}) {
    Problem problem({1, 1, 2, 40}, Options());
    problem.mask.fill_constant(0);
    std::vector<uint8_t> bytes = problem.x.bits();
    std::memcpy(&bytes[size_t{4} * 57], &bits, 4);
    problem.x.fill_bits(bytes);
    for_each_target([&](const std::string&) {
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right();
    });
  }
}

TEST(ScaledMaskedSoftmax, FullyMaskedRowsAreUniformWhateverStandsInThem) {
  for (const int64_t cols : {1, 3, 31, 32, 100, 4096}) {
    for (const double filler : {1.0, std::numeric_limits<double>::quiet_NaN(), -1e4, 6e4}) {
      for (const aclDataType dtype : kFloats) {
        Problem problem({1, 2, 3, cols}, all_of(dtype));
        problem.x.fill_constant(filler);
        problem.mask.fill_constant(128);
        ASSERT_TRUE(problem.run_it().ok());
        const std::vector<double> y = problem.y.values();
        EXPECT_EQ(y,
                  std::vector<double>(y.size(), rounded(1.0 / static_cast<double>(cols), dtype)));
      }
    }
  }
}

// Whoever computes the other parts of such a row has nothing but masked elements there.
TEST(ScaledMaskedSoftmax, RowsOfWhichOneElementCounts) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const int64_t cols : {2, 40, 300, 4096}) {
    for (const double value : {1.0, inf, -inf, 6e4, std::numeric_limits<double>::quiet_NaN()}) {
      for (const aclDataType dtype : kFloats) {
        Problem problem({1, 1, 3, cols}, all_of(dtype));
        std::vector<double> values = problem.x.values(), mask(values.size(), 1.0);
        for (const int64_t at : {int64_t{0}, cols + cols / 2, 3 * cols - 1}) {
          values[static_cast<size_t>(at)] = value;
          mask[static_cast<size_t>(at)] = 0.0;
        }
        problem.x.fill(values);
        problem.mask.fill(mask);
        SCOPED_TRACE(std::to_string(value) + ", S2 " + std::to_string(cols));
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right();
      }
    }
  }
}

// Rows between -10000 and the masked elements, rows of huge numbers whose differences are small,
// subnormal ones, under scales that FP32 holds badly or not at all.
TEST(ScaledMaskedSoftmax, EveryMagnitudeOfDataAndScaleHoldsTheTolerance) {
  for (const double scale : {1.0, -1.5, 0.08838834764831845, 1000.0 / 3, -1e9, 1e39, 1e-3, 1e-42,
                             -1e-60, 1e-320, 0.0, -0.0}) {
    for (const double reach : {1.0, 1e-39, 20.0, 1e3, 1e20, 1e36}) {
      for (const double middle : {0.0, -10000.0, 30000.0, 2e5, -1e7, 1e30}) {
        for (const int64_t cols : {5, 72}) {
          for (const aclDataType dtype : kFloats) {
            const double unit = std::abs(scale) > 1e-30 ? 1 / scale : 1.0;
            const double largest = std::max(std::abs(reach * unit), std::abs(middle * unit));
            if (largest > (dtype == ACL_FLOAT16 ? 10000.0 : 1e37)) continue;
            SCOPED_TRACE(std::to_string(scale) + " * " + std::to_string(middle * unit) + " +- " +
                         std::to_string(reach * unit));
            Options options = all_of(dtype);
            options.scale = scale;
            Problem problem({1, 1, 3, cols}, options);
            problem.x.fill_normal(3, middle * unit, reach * unit);
            ASSERT_TRUE(problem.run_it().ok());
            problem.expect_right();
          }
        }
      }
    }
  }
}

// Elements as far below the largest as FP32 goes: y is subnormal there, rounded once.
TEST(ScaledMaskedSoftmax, SubnormalResultsAreRoundedOnce) {
  for (const aclDataType dtype : kFloats) {
    Problem problem({1, 1, 1, 2100}, all_of(dtype));
    problem.mask.fill_constant(0);
    std::vector<double> values;
    values.reserve(2100);
    for (int i = 0; i < 2100; ++i) values.push_back(i == 7 ? 3.0 : 3.0 - i * 0.4);
    problem.x.fill(values);
    ASSERT_TRUE(problem.run_it().ok());
    problem.expect_right();
    const std::vector<double> y = problem.y.values();
    const double least = ulp(0.0, dtype);
    EXPECT_GT(std::count_if(y.begin(), y.end(), [&](double v) { return v > 0 && v < 64 * least; }),
              0);
  }
}

}  // namespace
}  // namespace aclgrad::test

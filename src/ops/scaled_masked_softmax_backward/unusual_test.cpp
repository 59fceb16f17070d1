// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward of NaN, infinities, masks of all or nothing, subnormals and every
// magnitude.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/scaled_masked_softmax_backward/test_problem.h"
#include "support/random.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

TEST(ScaledMaskedSoftmaxBackward, NanAndInfFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t cols : {3, 16, 21, 90, 150}) {
    for (const double special : {inf, -inf, nan}) {
      for (const double scale : {0.125, -3.0, 0.0}) {
        for (const aclDataType dtype : kFloats) {
          for (const bool on_dy : {true, false}) {
            for (const bool masked : {true, false}) {
              Options options = all_of(dtype);
              options.scale = scale;
              Problem problem({1, 2, 3, cols}, options);
              Tensor& tensor = on_dy ? problem.dy : problem.y;
              std::vector<double> values = tensor.values(), mask = problem.mask.values();
              values[static_cast<size_t>(cols + 1)] = special;
              mask[static_cast<size_t>(cols + 1)] = masked;
              tensor.fill(values);
              problem.mask.fill(mask);
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
}

// By selection: +0 to the bit, with NaN, Inf and negative results below the mask.
TEST(ScaledMaskedSoftmaxBackward, MaskedElementsArePlusZero) {
  for (const double scale : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    for (const aclDataType dtype : kFloats) {
      Options options = all_of(dtype);
      options.scale = scale;
      Problem problem({2, 2, 3, 37}, options);
      problem.y.fill_constant(std::numeric_limits<double>::infinity());
      problem.mask.fill_constant(128);
      ASSERT_TRUE(problem.run_it().ok());
      EXPECT_EQ(problem.dx.bits(), std::vector<uint8_t>(problem.dx.bits().size(), 0));
    }
  }
}

// Subnormal and huge data under scales that FP32 holds badly or not at all.
TEST(ScaledMaskedSoftmaxBackward, EveryMagnitudeOfDataAndScaleHoldsTheTolerance) {
  for (const double scale :
       {1.0, -1.5, 1000.0, 1e9, 1e39, 1e-3, 1e-42, -1e-60, 1e-320, 0.0, -0.0}) {
    for (const double size : {1.0, 1e-39, 1e-42, 1e-30, 1e36, 1e20}) {
      for (const double y_size : {1.0, 1e-3, 1e-20}) {
        for (const int64_t cols : {5, 40}) {
          for (const aclDataType dtype : kFloats) {
            if (dtype == ACL_FLOAT16 && size > 1.0) continue;
            SCOPED_TRACE(std::to_string(scale) + " * " + std::to_string(size));
            Options options = all_of(dtype);
            options.scale = scale;
            Problem problem({1, 1, 3, cols}, options);
            problem.dy.fill_normal(3, 0.0, size);
            problem.y.fill_uniform(4, 0.0, y_size);
            ASSERT_TRUE(problem.run_it().ok());
            problem.expect_right();
          }
        }
      }
    }
  }
}

// Sizes down to the least subnormals, another one for every row, and y far over 1; now and then an
// element of another size or a zero.
void fill_with_every_size(Problem& problem, uint64_t seed) {
  Random random(seed);
  const std::vector<double> dy_sizes = {1.0,   1e10,  1e-20, 1e-30, 1e-36,
                                        1e-38, 1e-40, 1e-42, 1e-44, 0.0};
  const std::vector<double> y_sizes = {1.0, 1.0, 30.0, 1e4, 1e12, 1e-20, 1e-40};
  const double most = problem.options.dtype == ACL_FLOAT16 ? 1e3 : 1e12;  // no Inf from here
  const auto pick = [&](const std::vector<double>& sizes) {
    return std::min(random.pick(sizes), most);
  };
  std::vector<double> dy, y;
  const auto cols = static_cast<size_t>(problem.dy.dims()[3]);
  const size_t rows = static_cast<size_t>(problem.dy.numel()) / cols;
  for (size_t r = 0; r < rows; ++r) {
    const double dy_size = pick(dy_sizes), y_size = pick(y_sizes);
    for (size_t c = 0; c < cols; ++c) {
      const double dy_scale = random.chance(0.02) ? pick(dy_sizes) : dy_size;
      const double y_scale = random.chance(0.05) ? pick(y_sizes) : y_size;
      dy.push_back(random.normal() * dy_scale);
      y.push_back(random.normal() * y_scale);
      if (random.chance(0.1)) (random.chance(0.5) ? dy : y).back() = 0.0;
    }
  }
  problem.dy.fill(dy);
  problem.y.fill(y);
}

TEST(ScaledMaskedSoftmaxBackward, SubnormalIntermediatesHoldTheToleranceWithTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(1);
  for (const double scale : {1.0, -0.125, 3.0, 1e6, -1e30, 1e39, 1e-42, 1e-60, 1e300}) {
    for (const int64_t cols : {5, 16, 21, 40, 150, 1025}) {
      for (const aclDataType dtype : kFloats) {
        Options options = all_of(dtype);
        options.scale = scale;
        SCOPED_TRACE(replay(++seed) + ", scale " + std::to_string(std::log10(std::abs(scale))));
        Problem problem({1, 2, 11, cols}, options);
        fill_with_every_size(problem, seed);
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right();
        const std::vector<uint8_t> bits = problem.dx.bits();
        expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.dx});
        for (const Arrangement in : {Arrangement::kRowPadded, Arrangement::kTransposed}) {
          options.in = in;
          for (const bool on_dy : {true, false}) {
            Problem same({1, 2, 11, cols}, options);
            fill_with_every_size(same, seed);
            const Tensor& out = on_dy ? same.dy : same.y;
            ASSERT_TRUE(same.run_it(out.handle()).ok());
            expect_same_bits("in place", out.bits(), bits);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

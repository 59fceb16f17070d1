// SPDX-License-Identifier: Apache-2.0
// LayerNorm through the C interface, against the formula in double: dtypes, modes, shapes, eps.
// Views, large and unusual numbers have files of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ops/layer_norm/cases.h"
#include "ops/layer_norm/test_problem.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

TEST(LayerNorm, SmallExample) {
  Problem problem({2, 4}, Options());
  problem.options.eps = 0.0;
  problem.x.fill({1, 3, 1, 3, -2, 2, 2, -2});
  problem.weight.fill({1, 2, 3, 4});
  problem.bias.fill({0, 0, 0.5, -1});
  ASSERT_TRUE(problem.run_it().ok());
  EXPECT_EQ(problem.y.values(), (std::vector<double>{-1, 2, -2.5, 3, -1, 2, 3.5, -5}));
  EXPECT_EQ(problem.mean.values(), (std::vector<double>{2, 0}));
  EXPECT_EQ(problem.rstd.values(), (std::vector<double>{1, 0.5}));
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(LayerNorm, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& shape : layer_norm::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.cols));
      Problem problem({shape.rows, shape.cols}, all_of(dtype));
      const auto expect_same = [&] {
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
      };
      problem.run_and_check();
      expect_same();
      // Means that show the order of the additions.
      const auto cols = static_cast<size_t>(shape.cols);
      problem.x.fill_cancelling(7, [&](size_t i) { return i / cols; });
      ASSERT_TRUE(problem.run_it().ok());
      expect_same();
    }
  }
}

TEST(LayerNorm, EveryDtypeCombination) {
  uint64_t seed = 0;
  const std::optional<aclDataType> none;
  for (const aclDataType dtype : kFloats) {
    for (const aclDataType y : kFloats) {
      for (const std::optional<aclDataType> weight :
           {none, std::optional(ACL_FLOAT), std::optional(dtype)}) {
        for (const std::optional<aclDataType> bias :
             {none, std::optional(ACL_FLOAT), std::optional(dtype)}) {
          if (weight && bias && *weight != *bias) continue;
          Options options;
          options.dtype = dtype;
          options.y = y;
          options.weight = weight;
          options.bias = bias;
          options.mean = seed % 4 == 3 ? none : std::optional(kFloats[seed % 3]);
          options.rstd = seed % 5 == 4 ? none : std::optional(kFloats[seed / 3 % 3]);
          SCOPED_TRACE("seed " + std::to_string(seed));
          Problem({5, 37}, options, ++seed).run_and_check();
        }
      }
    }
  }
}

TEST(LayerNorm, ImplModesGiveTheSameBits) {
  Options options = all_of(ACL_FLOAT16);
  options.mean = options.rstd = ACL_FLOAT16;
  Problem plain({30, 70}, options);
  plain.run_and_check();
  for (const int32_t mode : {0, 1, 2}) {
    options.impl_mode = mode;
    Problem problem({30, 70}, options);
    problem.run_and_check();
    expect_same_bits("implMode", problem.output_bits(), plain.output_bits());
  }
}

TEST(LayerNorm, RanksOneToEight) {
  Dims dims;
  for (size_t rank = 1; rank <= 8; ++rank) {
    dims.push_back(rank % 3 == 0 ? 3 : 2);
    for (size_t normalized = 1; normalized <= rank; ++normalized) {
      Options options;
      options.normalized = normalized;
      SCOPED_TRACE(std::to_string(rank) + " dims, " + std::to_string(normalized) + " normalized");
      Problem(dims, options).run_and_check();
    }
  }
}

// mean and rstd may have any shape of one element a row: [2,1,1] here, and [1,2].
TEST(LayerNorm, StatisticsOfAnyShape) {
  Problem problem({2, 5}, Options());
  problem.run_and_check();
  const Tensor mean({2, 1, 1}, ACL_FLOAT), rstd({1, 2}, ACL_FLOAT);
  const IntArray normalized({5});
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnLayerNormGetWorkspaceSize(problem.x.handle(), normalized.handle(), nullptr,
                                              nullptr, 1e-5, problem.y.handle(), mean.handle(),
                                              rstd.handle(), size, executor);
      },
      aclnnLayerNorm);
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(mean.values(), problem.mean.values());
  EXPECT_EQ(rstd.values(), problem.rstd.values());
}

TEST(LayerNorm, EmptyTensors) {
  Problem no_rows({0, 5}, Options());
  ASSERT_TRUE(no_rows.run_it().ok());
  Problem no_columns({5, 0}, Options());
  ASSERT_TRUE(no_columns.run_it().ok());
  EXPECT_EQ(no_columns.mean.values(), std::vector<double>(5, 0.0));
  for (const double value : no_columns.rstd.values()) EXPECT_TRUE(std::isnan(value));
  expect_canonical_nan("rstd", no_columns.rstd);
  Problem nothing({0, 0}, Options());
  ASSERT_TRUE(nothing.run_it().ok());
}

// Sixteen rows at a time: rows of nothing but -0 and rows with an infinity or a NaN beside usual
// ones, rows that follow each other and rows with gaps.
TEST(LayerNorm, SixteenShortRowsHaveTheSameBitsOnEveryTarget) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  uint64_t seed = seed_of_test(1);
  for (const int64_t cols : short_lengths(1)) {
    for (const aclDataType dtype : kFloats) {
      for (const int64_t rows : {16, 17, 18, 19, 22, 23, 53}) {
        // Rows that are read together need up to fifteen columns of the rows behind them.
        if (cols > 3 && rows > 16 && rows < 53) continue;
        for (const Arrangement in : {Arrangement::kContiguous, Arrangement::kRowPadded}) {
          Options options = all_of(dtype);
          options.in = in;
          SCOPED_TRACE(std::to_string(cols) + " columns, " + replay(++seed));
          Problem problem({rows, cols}, options);
          const auto expect_right = [&] {
            problem.run_and_check();
            expect_same_bits_everywhere([&] { return problem.run_it(); },
                                        {&problem.y, &problem.mean, &problem.rstd});
          };
          expect_right();
          fill_with_every_size(problem, seed);
          std::vector<double> x = problem.x.values();
          std::fill_n(x.begin() + 2 * cols, cols, -0.0);
          x[static_cast<size_t>(3 * cols + 1)] = kInf;
          x[static_cast<size_t>(5 * cols)] = kNan;
          problem.x.fill(x);
          expect_right();
        }
      }
    }
  }
}

TEST(LayerNorm, AnyEps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double eps :
       {0.0, 1e-300, 1.0, 1e30, 1e300, -1.0, -1e9, nan, std::numeric_limits<double>::infinity()}) {
    SCOPED_TRACE(std::to_string(eps));
    Options options;
    options.eps = eps;
    Problem({7, 33}, options).run_and_check();
  }
}

// What a negative eps takes from the variance leaves the variance's own error.
TEST(LayerNorm, NegativeEpsThatLeavesLittle) {
  for (const Dims& dims : {Dims{1, 40}, Dims{1, 1000}, Dims{1, 9000}}) {
    Problem problem(dims, Options());
    const std::vector<double> x = problem.x.values();
    const auto count = static_cast<double>(x.size());
    double mean = 0.0, variance = 0.0;
    for (const double value : x) mean += value / count;
    for (const double value : x) variance += (value - mean) * (value - mean) / count;
    for (const double part : {0.5, 0.9, 0.99, 0.9999, 0.999999}) {
      SCOPED_TRACE(std::to_string(dims[1]) + " " + std::to_string(part));
      problem.options.eps = -part * variance;
      problem.run_and_check();
    }
  }
}

TEST(LayerNorm, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({33, 100}, all_of(ACL_FLOAT16));
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); },
                                       {&problem.y, &problem.mean, &problem.rstd});
}

}  // namespace
}  // namespace aclgrad::test

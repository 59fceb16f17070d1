// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward through the C interface, against the formula in double: dtypes, masks, shapes,
// dx in place. Views, large and unusual numbers have files of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/layer_norm_backward/cases.h"
#include "ops/layer_norm_backward/test_problem.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

TEST(LayerNormBackward, DocumentedExample) {
  Problem problem({2, 2}, Options());
  problem.dy.fill({2, 3, 4, 5});
  problem.x.fill({2, 3, 4, 5});
  problem.mean.fill({2, 3});
  problem.rstd.fill({4, 5});
  problem.gamma.fill({1, 1});
  ASSERT_TRUE(problem.run_it().ok());
  EXPECT_EQ(problem.dx.values(), (std::vector<double>{-2, -94, -877.5, -1747.5}));
  EXPECT_EQ(problem.dgamma.values(), (std::vector<double>{20, 62}));
  EXPECT_EQ(problem.dbeta.values(), (std::vector<double>{6, 8}));
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(LayerNormBackward, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& shape : layer_norm_backward::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.cols));
      Problem problem({shape.rows, shape.cols}, all_of(dtype));
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
      const auto expect_same = [&] {
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      };
      expect_same();
      // Sums of the columns, then of the rows, that show the order of the additions.
      for (Tensor* tensor : {&problem.x, &problem.rstd, &problem.gamma}) tensor->fill_constant(1);
      problem.mean.fill_constant(0);
      const auto cols = static_cast<size_t>(shape.cols);
      problem.dy.fill_cancelling(7, [&](size_t i) { return i % cols; });
      ASSERT_TRUE(problem.run_it().ok());
      expect_same();
      problem.dy.fill_cancelling(9, [&](size_t i) { return i / cols; });
      ASSERT_TRUE(problem.run_it().ok());
      expect_same();
    }
  }
}

TEST(LayerNormBackward, EveryDtypeCombination) {
  uint64_t seed = 0;
  for (const aclDataType dtype : kFloats) {
    for (const aclDataType mean : kFloats) {
      for (const aclDataType rstd : kFloats) {
        for (const std::optional<aclDataType> gamma :
             {std::optional<aclDataType>(), std::optional(ACL_FLOAT), std::optional(dtype)}) {
          for (const aclDataType dx : kFloats) {
            Options options;
            options.dtype = dtype;
            options.mean = mean;
            options.rstd = rstd;
            options.gamma = gamma;
            options.dx = dx;
            options.dgamma = kFloats[seed % 3];
            options.dbeta = kFloats[seed / 3 % 3];
            run_and_check({5, 37}, options, ++seed);
          }
        }
      }
    }
  }
}

TEST(LayerNormBackward, EveryMask) {
  for (int mask = 0; mask < 8; ++mask) {
    // The third has a last slab that is half as long as others.
    for (const Dims& dims : {Dims{20, 35}, Dims{3, 9000}, Dims{3841, 64}}) {
      Options options;
      for (int i = 0; i < 3; ++i) options.want[i] = (mask >> i & 1) != 0;
      SCOPED_TRACE("mask " + std::to_string(mask));
      run_and_check(dims, options);
    }
  }
}

TEST(LayerNormBackward, RanksOneToEight) {
  Dims dims;
  for (size_t rank = 1; rank <= 8; ++rank) {
    dims.push_back(rank % 3 == 0 ? 3 : 2);
    for (size_t normalized = 1; normalized <= rank; ++normalized) {
      Options options;
      options.normalized = normalized;
      SCOPED_TRACE(std::to_string(rank) + " dims, " + std::to_string(normalized) + " normalized");
      run_and_check(dims, options);
    }
  }
}

TEST(LayerNormBackward, InPlaceOnGradOutOrInputGivesTheSameBits) {
  for (const Dims& dims : {Dims{100, 300}, Dims{3, 9000}, Dims{40, 3000}}) {
    for (const aclDataType dtype : kFloats) {
      Problem apart(dims, all_of(dtype));
      ASSERT_TRUE(apart.run_it().ok());
      for (const bool on_dy : {true, false}) {
        Problem same(dims, all_of(dtype));
        const Tensor& out = on_dy ? same.dy : same.x;
        const Outcome outcome = same.run_it(out.handle());
        ASSERT_TRUE(outcome.ok()) << outcome;
        expect_same_bits("dx", out.bits(), apart.dx.bits());
        expect_same_bits("dgamma", same.dgamma.bits(), apart.dgamma.bits());
        expect_same_bits("dbeta", same.dbeta.bits(), apart.dbeta.bits());
      }
    }
  }
}

TEST(LayerNormBackward, EmptyTensors) {
  Problem no_rows({0, 5}, Options());
  ASSERT_TRUE(no_rows.run_it().ok());
  EXPECT_EQ(no_rows.dgamma.values(), std::vector<double>(5, 0.0));
  EXPECT_EQ(no_rows.dbeta.values(), std::vector<double>(5, 0.0));
  Problem no_columns({5, 0}, Options());
  ASSERT_TRUE(no_columns.run_it().ok());
  Problem nothing({0, 0}, Options());
  ASSERT_TRUE(nothing.run_it().ok());
}

TEST(LayerNormBackward, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({33, 100}, all_of(ACL_FLOAT16));
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); },
                                       {&problem.dx, &problem.dgamma, &problem.dbeta});
}

// The gradient against central differences of L = sum(dy * layer_norm(x)) in double.
TEST(LayerNormBackward, FiniteDifferences) {
  constexpr size_t kCols = 7;
  Problem problem({1, kCols}, Options());
  std::vector<double> x = problem.x.values();
  const std::vector<double> dy = problem.dy.values();
  const auto gamma = problem.gamma.values();
  const auto statistics = [](const std::vector<double>& v) {
    double mean = 0, variance = 0;
    for (const double value : v) mean += value / kCols;
    for (const double value : v) variance += (value - mean) * (value - mean) / kCols;
    return std::pair(mean, 1.0 / std::sqrt(variance + 1e-5));
  };
  const auto loss = [&](const std::vector<double>& v, const std::vector<double>& w) {
    const auto [mean, rstd] = statistics(v);
    double sum = 0;
    for (size_t i = 0; i < kCols; ++i) sum += dy[i] * (v[i] - mean) * rstd * w[i];
    return sum;
  };
  const auto [mean, rstd] = statistics(x);
  problem.mean.fill({mean});
  problem.rstd.fill({rstd});
  ASSERT_TRUE(problem.run_it().ok());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < kCols; ++i) {
    std::vector<double> up = x, down = x, gamma_up = gamma, gamma_down = gamma;
    up[i] += kStep;
    down[i] -= kStep;
    gamma_up[i] += kStep;
    gamma_down[i] -= kStep;
    EXPECT_NEAR(problem.dx.values()[i], (loss(up, gamma) - loss(down, gamma)) / (2 * kStep), 2e-5);
    EXPECT_NEAR(problem.dgamma.values()[i], (loss(x, gamma_up) - loss(x, gamma_down)) / (2 * kStep),
                2e-5);
  }
}

}  // namespace
}  // namespace aclgrad::test

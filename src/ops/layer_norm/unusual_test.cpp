// SPDX-License-Identifier: Apache-2.0
// LayerNorm of NaN, infinities, subnormals, padding, and means and variances that cancel: the
// formula's numbers, the same bits everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ops/layer_norm/test_problem.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

TEST(LayerNorm, NanAndInfFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double special : {inf, -inf, nan}) {
    for (const int where : {0, 1, 2}) {
      for (const Dims& dims : {Dims{19, 21}, Dims{3, 12000}, Dims{2, 33000}}) {
        for (const aclDataType dtype : kFloats) {
          Problem problem(dims, all_of(dtype));
          Tensor* tensors[] = {&problem.x, &problem.weight, &problem.bias};
          std::vector<double> values = tensors[where]->values();
          values[3] = special;
          tensors[where]->fill(values);
          if (where == 1) {  // opposite infinities give a NaN of the machine's own
            values = problem.bias.values();
            values[3] = -special;
            problem.bias.fill(values);
          }
          problem.run_and_check();
          expect_canonical_nan("y", problem.y);
        }
      }
    }
  }
}

// Squares that leave FP32, or that would vanish in it: eps decides whether they count.
TEST(LayerNorm, HugeAndTinyNumbers) {
  for (const double eps : {0.0, 1e-40, 1e-5}) {
    for (const double scale : {1e18, 1e25, 1e38, 1e-15, 1e-25, 1e-38, 0x1p-149}) {
      for (const Dims& dims : {Dims{4, 40}, Dims{2, 9000}, Dims{2, 33000}}) {
        if (eps == 0.0 && scale < 1e-38) continue;  // rstd itself would leave FP32
        SCOPED_TRACE(std::to_string(std::log10(eps)) + " " + std::to_string(std::log10(scale)));
        Options options;
        options.eps = eps;
        Problem problem(dims, options);
        problem.x.fill_uniform(3, -2 * scale, 3 * scale);
        problem.run_and_check();
      }
    }
  }
}

TEST(LayerNorm, SubnormalIntermediatesHoldTheToleranceWithTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(1);
  for (const Dims& dims : {Dims{40, 7}, Dims{70, 33}, Dims{20, 1000}, Dims{3, 9000}}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
      for (const double eps : {1e-5, 1e-12, 1e-30}) {
        Options options = all_of(dtype);
        options.weight = ACL_FLOAT;
        options.bias.reset();
        options.eps = eps;
        options.y = seed % 2 == 0 ? ACL_FLOAT : dtype;
        SCOPED_TRACE(replay(++seed));
        Problem problem(dims, options);
        fill_with_every_size(problem, seed);
        problem.run_and_check();
        const std::vector<uint8_t> bits = problem.output_bits();
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
        options.in = options.out = Arrangement::kRowPadded;
        Problem padded(dims, options);
        fill_with_every_size(padded, seed);
        padded.run_and_check();
        expect_same_bits("padded", padded.output_bits(), bits);
      }
    }
  }
}

// A mean of 1 and half of an FP32 ulp more, to which three terms of half an ulp of the FP64 sum add
// something or nothing, as the order of the additions has it: that of the row's vectors, wherever
// the row lies and on every target. (Any sum of so many f16 numbers is exact in FP64.)
TEST(LayerNorm, MeansThatTheOrderOfTheSumDecides) {
  constexpr int64_t kRowCount = 40;
  constexpr size_t kSpecial = 5;
  uint64_t seed = seed_of_test(1);
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    for (const int64_t cols : short_lengths(17)) {
      std::mt19937_64 random(++seed);
      std::vector<size_t> places(static_cast<size_t>(cols));
      std::iota(places.begin(), places.end(), size_t{0});
      for (int turn = 0; turn < 6; ++turn) {
        SCOPED_TRACE(std::to_string(cols) + " columns, " + replay(seed));
        std::shuffle(places.begin(), places.end(), random);
        const auto whole = static_cast<double>(cols);
        const double least = std::ldexp(1.0, std::ilogb(whole) - 53);
        const double terms[kSpecial] = {whole, std::ldexp(whole, -24), least, least, least};
        std::vector<double> x(static_cast<size_t>(kRowCount * cols));
        for (size_t r = 0; r < static_cast<size_t>(kRowCount); ++r) {
          for (size_t i = 0; i < kSpecial; ++i) x[r * places.size() + places[i]] = terms[i];
        }
        Options options = all_of(dtype);
        options.mean = ACL_FLOAT;
        Problem problem({kRowCount, cols}, options);
        problem.x.fill(x);
        ASSERT_TRUE(problem.run_it().ok());
        const std::vector<double> means = problem.mean.values();
        EXPECT_EQ(means, std::vector<double>(means.size(), means[0]));
        const std::vector<uint8_t> bits = problem.output_bits();
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
        options.in = options.out = Arrangement::kRowPadded;
        Problem padded({kRowCount, cols}, options);
        padded.weight.fill(problem.weight.values());
        padded.bias.fill(problem.bias.values());
        padded.x.fill(x);
        ASSERT_TRUE(padded.run_it().ok());
        expect_same_bits("padded", padded.output_bits(), bits);
      }
    }
  }
}

// One size everywhere; f16 has no numbers so small, but its weight may be FP32 and any eps is.
TEST(LayerNorm, SubnormalDistancesBesideLargeFactors) {
  struct Sizes {
    double x, eps, weight;
  };
  for (const Sizes& sizes : {Sizes{1e-40, 1e-5, 1.0}, Sizes{1e-40, 1e-5, 1e12},
                             Sizes{1e-36, 1.0, 1e12}, Sizes{1e-44, 1e-30, 1e20}}) {
    for (const Dims& dims : {Dims{6, 50}, Dims{3, 9000}}) {
      Options options;
      options.bias.reset();
      options.eps = sizes.eps;
      Problem problem(dims, options);
      problem.x.fill_normal(4, 0.0, sizes.x);
      problem.weight.fill_normal(5, 0.0, sizes.weight);
      problem.run_and_check();
    }
  }
  for (const aclDataType dtype : kFloats) {
    Options options = all_of(dtype);
    options.bias.reset();
    options.weight = ACL_FLOAT;
    options.eps = 1e80;
    Problem problem({6, 50}, options);
    problem.weight.fill_normal(5, 0.0, 1e35);
    problem.run_and_check();
  }
}

// Rows of one number have no variance: y is the bias, without eps 0 * Inf.
TEST(LayerNorm, ConstantRows) {
  for (const aclDataType dtype : kFloats) {
    for (const double number : {0.1, -1000.3, 0.0, 1e-30, 3e-41, 60001.0}) {
      for (const Dims& dims : {Dims{3, 100}, Dims{2, 10001}}) {
        Problem problem(dims, all_of(dtype));
        problem.x.fill_constant(number);
        problem.run_and_check();
        const std::vector<double> y = problem.y.values(), bias = problem.bias.values();
        for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], bias[i % bias.size()]);
      }
    }
  }
  Options options;
  options.eps = 1e-12;
  Problem large({2, 9000}, options);
  large.x.fill_constant(1e7 / 3);
  large.run_and_check();
  options.eps = 0.0;
  Problem problem({2, 50}, options);
  problem.x.fill_constant(0.0);
  problem.run_and_check();
  EXPECT_TRUE(std::isinf(problem.rstd.values()[0]));
  EXPECT_TRUE(std::isnan(problem.y.values()[0]));
}

// Padding, beside other rows and alone.
TEST(LayerNorm, RowsOfZerosHaveTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(400);
  for (const Dims& dims : {Dims{41, 1}, Dims{41, 24}, Dims{37, 64}, Dims{35, 192}, Dims{20, 1300},
                           Dims{3, 9000}, Dims{3, 70000}}) {
    for (const aclDataType dtype : kFloats) {
      for (const double eps : {1e-5, 0.0}) {
        SCOPED_TRACE(replay(++seed));
        Options options = all_of(dtype);
        options.eps = eps;
        if (dtype == ACL_FLOAT) options.bias.reset();  // beside which y is nothing
        Problem problem(dims, options, seed);
        std::vector<double> x = problem.x.values();
        const auto cols = static_cast<size_t>(dims[1]);
        for (size_t i = 0; i < x.size(); ++i) {
          const size_t row = i / cols;
          if (row % 3 != 0) x[i] = row % 3 == 1 ? 0.0 : -0.0;
        }
        // No zeros, though their sum and, in FP32, their squares are.
        if (dtype == ACL_FLOAT && cols > 1) {
          const size_t at = seed / 6 % 2 == 0 ? cols : 2 * cols - 2;
          x[at] = 1e-44;
          x[at + 1] = -1e-44;
          problem.weight.fill_constant(1e12);
        }
        problem.x.fill(x);
        problem.run_and_check();
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
      }
    }
  }
}

// Zeros but for two numbers whose sum and, in FP32, squares are 0, in any of the pieces that a row
// of several panels is read in.
TEST(LayerNorm, LongRowsOfZerosButForTwoElements) {
  const Dims dims = {3, 3, 2900};
  constexpr size_t kRow = 8700;  // elements
  for (const Form form : {Form::kContiguous, Form::kPermuted}) {
    for (const size_t at : {size_t{0}, size_t{4000}, size_t{5800}, kRow - 2}) {
      SCOPED_TRACE("beginning with element " + std::to_string(at));
      Options options;
      options.normalized = 2;
      options.bias.reset();
      options.x_strides = form_strides(dims, form);
      Problem problem(dims, options);
      std::vector<double> x(problem.x.values().size());
      x[kRow + at] = 1e-44;
      x[kRow + at + 1] = -1e-44;
      problem.x.fill(x);
      problem.weight.fill_constant(1e12);
      problem.run_and_check();
    }
  }
}

// The rest of a panel is less than a vector, and its own mean 0.
TEST(LayerNorm, LastColumnsWhoseMeanIsZero) {
  for (const int64_t cols : {int64_t{4104}, int64_t{8194}, int64_t{36866}}) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::to_string(cols) + " columns");
      Problem problem({2, cols}, all_of(dtype));
      std::vector<double> x = problem.x.values();
      const auto of_row = static_cast<size_t>(cols);
      for (size_t row = 0; row < 2; ++row) {
        for (size_t c = of_row / 4096 * 4096; c < of_row; ++c) {
          x[row * of_row + c] = c % 2 == 0 ? 1000.0 : -1000.0;
        }
      }
      problem.x.fill(x);
      problem.run_and_check();
    }
  }
}

// Elements near a mean that is small only because large numbers cancel.
TEST(LayerNorm, SmallMeanBetweenLargeNumbers) {
  for (const Dims& dims : {Dims{40, 15}, Dims{10, 1000}, Dims{3, 10000}}) {
    Problem problem(dims, Options());
    problem.options.bias.reset();
    std::vector<double> x = normal_values(problem.x.numel(), 11, 0.0, 3.0);
    for (size_t i = 0; i < x.size(); i += 5) x[i] *= 1e-6;
    problem.x.fill(x);
    problem.run_and_check();
  }
  // Sixteen lanes of each number in turn: sums of neighbouring vectors must not swallow the small.
  // Numbers of 1e20 leave nothing of the small ones in FP64 either.
  for (const auto& [dtype, large, small] :
       {std::tuple(ACL_FLOAT16, 60000.0, -0.001), std::tuple(ACL_FLOAT, 1e10, -39.0),
        std::tuple(ACL_BF16, 1e10, -39.0), std::tuple(ACL_FLOAT, 1e20, -39.0),
        std::tuple(ACL_BF16, 1e20, -39.0), std::tuple(ACL_FLOAT, 1e30, 1e-5)}) {
    Problem problem({1, 256}, all_of(dtype));
    std::vector<double> x(static_cast<size_t>(problem.x.numel()));
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t vector = i / 16 % 4;
      x[i] = vector % 2 == 1 ? small : vector == 0 ? large : -large;
    }
    problem.x.fill(x);
    problem.run_and_check();
  }
}

// A variance far below the square of the mean: E[x^2] - E[x]^2 would lose it.
TEST(LayerNorm, SmallVarianceBesideALargeMean) {
  for (const Dims& dims : {Dims{5, 1000}, Dims{3, 20000}}) {
    Options options;
    options.eps = 1e-12;
    Problem problem(dims, options);
    problem.x.fill_normal(5, 1000.0, 0.01);
    problem.run_and_check();
  }
}

// Long rows are visited once, for squares around the mean of their first columns: these are far
// from the others in some rows, and near in the next.
TEST(LayerNorm, FirstColumnsFarFromTheMean) {
  for (const Dims& dims : {Dims{7, 1100}, Dims{40, 4096}, Dims{35, 9001}}) {
    for (const aclDataType dtype : kFloats) {
      Problem problem(dims, all_of(dtype));
      std::vector<double> x = problem.x.values();
      const size_t cols = Problem::count(problem.tail);
      for (size_t r = 0; r < Problem::count(problem.head); ++r) {
        for (size_t c = 0; c < 16 && r % 3 != 0; ++c) x[r * cols + c] += r % 3 == 1 ? 500.0 : -3.0;
      }
      problem.x.fill(x);
      problem.run_and_check();
      expect_same_bits_everywhere([&] { return problem.run_it(); },
                                  {&problem.y, &problem.mean, &problem.rstd});
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

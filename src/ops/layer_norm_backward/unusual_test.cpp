// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward of NaN, infinities, subnormals and padding: the formula's numbers, the same
// bits everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ops/layer_norm_backward/test_problem.h"
#include "support/random.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

TEST(LayerNormBackward, NanInfAndSubnormalsFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double special : {inf, -inf, nan}) {
    for (const int where : {0, 1, 2, 3, 4}) {
      for (const aclDataType dtype : kFloats) {
        for (const Dims& dims : {Dims{19, 21}, Dims{6, 1300}}) {  // sixteen rows together; few
          Problem problem(dims, all_of(dtype));
          Tensor* tensors[] = {&problem.dy, &problem.x, &problem.mean, &problem.rstd,
                               &problem.gamma};
          std::vector<double> values = tensors[where]->values();
          values[3] = special;
          tensors[where]->fill(values);
          ASSERT_TRUE(problem.run_it().ok());
          problem.expect_right(problem.exact());
        }
      }
    }
  }
  Problem tiny({4, 40}, Options());
  tiny.dy.fill_uniform(3, 0x1p-149, 0x1p-128);
  tiny.x.fill_uniform(4, -0x1p-130, 0x1p-128);
  tiny.mean.fill_constant(0.0);
  ASSERT_TRUE(tiny.run_it().ok());
  tiny.expect_right(tiny.exact());
}

// FP32 has no number for dy * gamma, which an infinity multiplies all the same.
TEST(LayerNormBackward, InfinityBesideAProductThatUnderflows) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    for (const Dims& dims : {Dims{19, 21}, Dims{20, 1300}, Dims{3, 9000}}) {
      SCOPED_TRACE(std::to_string(dims[1]) + " columns");
      Problem problem(dims, all_of(dtype));
      std::vector<double> x = problem.x.values(), dy = problem.dy.values();
      std::vector<double> gamma = problem.gamma.values();
      const auto cols = static_cast<size_t>(dims[1]);
      gamma[5] = 1e-20;
      for (size_t row = 0; row < 3; ++row) {
        x[row * cols + 5] = row == 1 ? -inf : inf;
        dy[row * cols + 5] = row == 2 ? 0.0 : 1e-30;
      }
      problem.x.fill(x);
      problem.dy.fill(dy);
      problem.gamma.fill(gamma);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
      expect_same_bits_everywhere([&] { return problem.run_it(); },
                                  {&problem.dx, &problem.dgamma, &problem.dbeta});
    }
  }
}

// Sizes from 1e12 down to the least subnormals, another one for every row of every tensor; now and
// then an element of another size, a zero, or a row that is its mean. Nothing overflows.
void fill_with_every_size(Problem& problem, uint64_t seed) {
  Random random(seed);
  const std::vector<double> tiny = {1e-30, 1e-36, 1e-39, 1e-40, 1e-42, 1e-44};
  const auto size = [&](std::initializer_list<double> ordinary) {
    return random.chance(0.6) ? random.pick(tiny) : random.pick(std::vector<double>(ordinary));
  };
  const auto draw = [&](double usual) {
    if (random.chance(0.1)) return 0.0;
    const double scale = random.chance(0.05) ? size({1.0, 1e-20}) : usual;
    return random.normal() * scale;
  };
  const size_t rows = Problem::count(problem.head), cols = Problem::count(problem.tail);
  std::vector<double> dy, x, mean, rstd, gamma;
  const double gamma_size = random.chance(0.5) ? 1.0 : size({1e4, 1e-20});
  for (size_t c = 0; c < cols; ++c) gamma.push_back(draw(gamma_size));
  for (size_t r = 0; r < rows; ++r) {
    const double most = problem.options.dtype == ACL_FLOAT16 ? 1e3 : 1e12;
    const double dy_size = random.chance(0.1) ? 0.0 : std::min(size({1.0, 1e4, 1e12}), most);
    const double x_size = size({1.0, 1e-20});
    mean.push_back(random.chance(0.3) ? 0.0 : random.normal() * x_size);
    rstd.push_back(random.pick(std::vector<double>{0.5, -316.0, 316.0, 1e6, 1e-42}));
    const bool constant = random.chance(0.1);
    for (size_t c = 0; c < cols; ++c) {
      dy.push_back(draw(dy_size));
      x.push_back(constant ? mean.back() : draw(x_size));
    }
  }
  problem.dy.fill(dy);
  problem.x.fill(x);
  problem.mean.fill(mean);
  problem.rstd.fill(rstd);
  problem.gamma.fill(gamma);
}

// Short and long rows, gathered ones, several tiles, slabs and panels.
const std::vector<Segmented>& shapes_with_every_size() {
  static const std::vector<Segmented> shapes = {
      {{5, 7}, 1},     {{37, 24}, 1},     {{70, 33}, 1},  {{19, 1300}, 1}, {{21, 9, 5}, 2},
      {{6, 3, 40}, 2}, {{18, 25, 41}, 2}, {{3, 9000}, 1}, {{40, 1100}, 1}, {{3, 3, 2900}, 2}};
  return shapes;
}

TEST(LayerNormBackward, SubnormalIntermediatesHoldTheToleranceWithTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(1);
  for (const Segmented& shape : shapes_with_every_size()) {
    for (const aclDataType dtype : kFloats) {
      for (const std::optional<aclDataType> gamma :
           {std::optional<aclDataType>(), std::optional(ACL_FLOAT), std::optional(dtype)}) {
        Options options = all_of(dtype);
        options.gamma = gamma;
        options.normalized = shape.normalized;
        options.dx = options.dgamma = seed % 2 == 0 ? ACL_FLOAT : dtype;
        SCOPED_TRACE(replay(++seed));
        Problem problem(shape.dims, options);
        fill_with_every_size(problem, seed);
        const Outcome outcome = problem.run_it();
        ASSERT_TRUE(outcome.ok()) << outcome;
        problem.expect_right(problem.exact());
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      }
    }
  }
}

TEST(LayerNormBackward, SubnormalIntermediatesHaveTheSameBitsInEveryViewMaskAndPlace) {
  uint64_t seed = seed_of_test(100);
  for (const Segmented& shape : shapes_with_every_size()) {
    SCOPED_TRACE(replay(++seed));
    Options options = all_of(seed % 3 == 0 ? ACL_BF16 : ACL_FLOAT);
    options.gamma = ACL_FLOAT;
    options.normalized = shape.normalized;
    expect_same_bits_in_every_view_mask_and_place(
        shape.dims, options, [&](Problem& problem) { fill_with_every_size(problem, seed); });
  }
}

// What a whole problem of one kind gives, by hand.
TEST(LayerNormBackward, SubnormalFactorsBesideLargeOnes) {
  struct Sizes {
    double dy, x, rstd, gamma;
  };
  for (const Sizes& sizes : {Sizes{1e4, 1e-40, 1.0, 1.0}, Sizes{1e-40, 1.0, 316.0, 1.0},
                             Sizes{1.0, 1.0, 1e6, 1e-42}, Sizes{1e12, 1e-43, 10.0, 1e-40},
                             Sizes{1e-43, 1e-43, 1e6, 1.0}, Sizes{1e-43, 0.0, 1e6, 0.3}}) {
    for (const Dims& dims : {Dims{6, 50}, Dims{3, 9000}}) {
      Problem problem(dims, Options());
      problem.dy.fill_normal(3, 0.0, sizes.dy);
      problem.x.fill_normal(4, 0.0, sizes.x);
      problem.mean.fill_constant(0.0);
      problem.rstd.fill_constant(sizes.rstd);
      problem.gamma.fill_normal(5, 0.0, sizes.gamma);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
    }
  }
}

// g * (x - mean), whose sum rstd multiplies, is out of FP32's range at either end, but not g *
// xhat; in the last ones an infinite xhat meets a dy of 0, which is no number in dgamma.
TEST(LayerNormBackward, DistancesOfAnySizeBesideTheRstdThatUndoesThem) {
  struct Sizes {
    double dy, x, rstd;
  };
  for (const Sizes& sizes :
       {Sizes{1e12, 1e30, 1e-30}, Sizes{1e-25, 1e-20, 1e20}, Sizes{1e-30, 1e-35, 1e35},
        Sizes{0.0, 1e30, 1e30}, Sizes{0.0, 1e30, 1e18}, Sizes{0.0, 1e18, 1e30}}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
      for (const Dims& dims : {Dims{19, 21}, Dims{20, 1300}, Dims{3, 9000}}) {
        SCOPED_TRACE(std::to_string(dims[1]) + " columns, x " + std::to_string(sizes.x));
        Options options = all_of(dtype);
        options.want[1] = sizes.dy != 0.0;
        Problem problem(dims, options);
        problem.dy.fill_normal(3, 0.0, sizes.dy);
        problem.x.fill_normal(4, 0.0, sizes.x);
        problem.mean.fill_constant(0.0);
        problem.rstd.fill_constant(sizes.rstd);
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right(problem.exact());
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      }
    }
  }
}

// The same beside an infinity, and an infinite rstd, of which every term is infinite or no number.
TEST(LayerNormBackward, InfinitiesBesideDistancesOfAnySize) {
  const double inf = std::numeric_limits<double>::infinity();
  struct Row {
    double dy[2], x[2], rstd;
  };
  for (const Row& row :
       {Row{{1.0, -1e20}, {inf, 1e30}, 1e-20}, Row{{inf, -1e20}, {1.0, 1e30}, 1e-20},
        Row{{1.0, 1.0}, {inf, 1.0}, inf}, Row{{inf, 1.0}, {1.0, 1.0}, inf}}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
      for (const Dims& dims : {Dims{3, 8}, Dims{19, 21}, Dims{20, 1300}, Dims{3, 9000}}) {
        SCOPED_TRACE(std::to_string(dims[1]) + " columns, rstd " + std::to_string(row.rstd));
        Problem problem(dims, all_of(dtype));
        std::vector<double> dy = problem.dy.values(), x = problem.x.values();
        std::vector<double> rstd = problem.rstd.values();
        const auto cols = static_cast<size_t>(dims[1]);
        std::copy_n(row.dy, 2, dy.begin() + static_cast<ptrdiff_t>(cols));
        std::copy_n(row.x, 2, x.begin() + static_cast<ptrdiff_t>(cols));
        rstd[1] = row.rstd;
        problem.dy.fill(dy);
        problem.x.fill(x);
        problem.mean.fill_constant(0.0);
        problem.rstd.fill(rstd);
        problem.gamma.fill_constant(1.0);
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right(problem.exact());
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      }
    }
  }
}

// Products that underflow leave -0 in a chain that began with +0; the mean is +0, on GPUs as well.
TEST(LayerNormBackward, AMeanOfNothingButUnderflowsIsPositiveZero) {
  for (const int64_t cols : {128, 256, 1024}) {
    Problem problem({1, cols}, all_of(ACL_FLOAT));
    std::vector<double> dy(static_cast<size_t>(cols), -0.0);
    std::vector<double> x(static_cast<size_t>(cols), 0x1p-100);
    for (size_t c = 0; c < 64; ++c) {
      dy[c] = c % 2 == 0 ? -0.375 : 0.375;
      x[c] = c % 2 == 0 ? 0x1p-149 : -0x1p-149;
    }
    problem.dy.fill(dy);
    problem.x.fill(x);
    problem.mean.fill_constant(0.0);
    problem.rstd.fill_constant(1.0);
    problem.gamma.fill_constant(1.0);
    ASSERT_TRUE(problem.run_it().ok());
    const std::vector<double> dx = problem.dx.values();
    EXPECT_EQ(dx.back(), 0.0);
    EXPECT_TRUE(std::signbit(dx.back()));
  }
}

}  // namespace
}  // namespace aclgrad::test

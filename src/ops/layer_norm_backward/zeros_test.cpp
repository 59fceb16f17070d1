// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward of padding: rows whose x, dy or both are zeros are common and have a way of
// their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/layer_norm_backward/test_problem.h"
#include "support/random.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

// Among other rows those whose x is 0, whose dy is, or both; and, at last, what resembles them.
void make_padding(Problem& problem) {
  std::vector<double> x = problem.x.values(), dy = problem.dy.values();
  std::vector<double> mean = problem.mean.values();
  const size_t rows = mean.size(), cols = x.size() / rows;
  for (size_t r = 0; r < rows; ++r) {
    const size_t kind = r % 5;
    const auto begin = static_cast<std::ptrdiff_t>(r * cols),
               size = static_cast<std::ptrdiff_t>(cols);
    if (kind % 2 == 0) mean[r] = 0.0;
    if (kind % 2 == 0) std::fill_n(x.begin() + begin, size, kind == 2 ? -0.0 : 0.0);
    if (kind == 1 || kind == 2) std::fill_n(dy.begin() + begin, size, 0.0);
    if (kind == 4) {  // a g that FP32 rounds by much
      for (size_t c = 0; c < cols; ++c) dy[r * cols + c] *= 1e-43;
    }
  }
  problem.x.fill(x);
  problem.dy.fill(dy);
  problem.mean.fill(mean);
}

TEST(LayerNormBackward, RowsOfZerosHaveTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(300);
  for (const Dims& dims : {Dims{41, 1}, Dims{41, 24}, Dims{37, 64}, Dims{35, 192}, Dims{20, 1300},
                           Dims{9, 9000}, Dims{5, 66000}}) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(replay(++seed));
      Problem problem(dims, all_of(dtype), seed);
      make_padding(problem);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
      expect_same_bits_everywhere([&] { return problem.run_it(); },
                                  {&problem.dx, &problem.dgamma, &problem.dbeta});
    }
  }
}

TEST(LayerNormBackward, RowsOfZerosHaveTheSameBitsInEveryViewMaskAndPlace) {
  for (const auto& [dims, normalized] :
       {Segmented{{41, 24}, 1}, Segmented{{37, 64}, 1}, Segmented{{35, 192}, 1},
        Segmented{{9, 9000}, 1}, Segmented{{37, 9, 5}, 2}, Segmented{{18, 25, 41}, 2},
        Segmented{{6, 3, 2900}, 2}}) {
    for (const aclDataType dtype : kFloats) {
      for (const aclDataType other : kFloats) {  // dx's
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " and " + dtype_short_name(other) +
                     ", last of " + std::to_string(dims.back()));
        Options options = all_of(dtype);
        options.gamma = ACL_FLOAT;
        options.dx = other;
        options.normalized = normalized;
        expect_same_bits_in_every_view_mask_and_place(dims, options, make_padding);
      }
    }
  }
}

// A gamma of 0 hides what is not: the sums of these rows are those of padding, but xhat loses most
// of its digits in FP32, which shows in dgamma.
TEST(LayerNormBackward, RowsOfZerosButForOneElement) {
  for (const bool in_x : {true, false}) {
    for (const Dims& dims : {Dims{37, 24}, Dims{20, 1300}, Dims{3, 9000}}) {
      Problem problem(dims, Options());
      std::vector<double> x(problem.x.values().size()), dy = problem.dy.values();
      std::vector<double> gamma = problem.gamma.values();
      const size_t cols = gamma.size();
      gamma[cols - 1] = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        const bool last = i % cols == cols - 1;
        if (last || !in_x) x[i] = 1.23e-43;
        if (!last && !in_x) dy[i] = 0.0;
        if (last) dy[i] *= 1e4;
      }
      problem.x.fill(x);
      problem.dy.fill(dy);
      problem.gamma.fill(gamma);
      problem.mean.fill_constant(0.0);
      problem.rstd.fill_constant(0.7);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
    }
  }
}

TEST(LayerNormBackward, RowsOfZerosBesideAnInfiniteSumOfGradients) {
  for (const Dims& dims :
       {Dims{3, 8}, Dims{37, 24}, Dims{20, 1300}, Dims{3, 9000}, Dims{3, 66000}}) {
    Options options;
    options.gamma.reset();
    options.want[2] = false;  // dbeta is infinite
    Problem problem(dims, options);
    problem.dy.fill_constant(3e38);
    problem.x.fill_constant(0.0);
    problem.mean.fill_constant(0.0);
    ASSERT_TRUE(problem.run_it().ok());
    EXPECT_EQ(problem.dx.values(), std::vector<double>(problem.dx.values().size(), 0.0));
  }
}

}  // namespace
}  // namespace aclgrad::test

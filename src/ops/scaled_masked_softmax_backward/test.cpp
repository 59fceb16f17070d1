// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/scaled_masked_softmax_backward/cases.h"
#include "ops/scaled_masked_softmax_backward/test_problem.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

TEST(ScaledMaskedSoftmaxBackward, DocumentedExample) {
  for (const aclDataType dtype : kFloats) {
    Options options = all_of(dtype);
    options.scale = 1.0;
    options.over_batches = options.over_heads = false;
    Problem problem({2, 2, 2, 2}, options);
    std::vector<double> values, mask;
    for (int i = 0; i < 16; ++i) {
      values.push_back(i + 1);
      mask.push_back(i % 4 < 2);
    }
    problem.dy.fill(values);
    problem.y.fill(values);
    problem.mask.fill(mask);
    ASSERT_TRUE(problem.run_it().ok());
    problem.expect_right();
    if (dtype != ACL_FLOAT) continue;  // they have not enough digits for these numbers
    EXPECT_EQ(problem.dx.values(), (std::vector<double>{0, 0, -66, -84, 0, 0, -742, -840, 0, 0,
                                                        -2794, -3036, 0, 0, -6990, -7440}));
  }
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(ScaledMaskedSoftmaxBackward, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& shape : scaled_masked_softmax_backward::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      const Dims dims = {shape.batches, shape.heads, shape.rows, shape.cols};
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.batches) +
                   "x" + std::to_string(shape.heads) + "x" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.cols));
      Problem problem(dims, all_of(dtype));
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right();
      expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.dx});
      // Sums of rows that show the order of the additions.
      problem.mask.fill_constant(0);
      problem.y.fill_constant(0.25);
      const auto cols = static_cast<size_t>(shape.cols);
      problem.dy.fill_cancelling(7, [&](size_t i) { return i / cols; });
      ASSERT_TRUE(problem.run_it().ok());
      expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.dx});
    }
  }
}

TEST(ScaledMaskedSoftmaxBackward, EveryFormOfMask) {
  for_each_form_of_mask(
      [](const Dims& dims, const Options& options) { run_and_check(dims, options); });
}

TEST(ScaledMaskedSoftmaxBackward, EveryStridedViewGivesTheSameBits) {
  for (const Dims& dims : {Dims{3, 2, 6, 5}, Dims{2, 3, 5, 16}, Dims{2, 3, 5, 37}}) {
    for (const aclDataType dtype : kFloats) {
      Problem plain(dims, all_of(dtype));
      ASSERT_TRUE(plain.run_it().ok());
      for (const Arrangement in : kInputArrangements) {
        for (const Arrangement out : kOutputArrangements) {
          SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
          Options options = all_of(dtype);
          options.in = in;
          options.out = out;
          Problem view(dims, options);
          const Outcome outcome = view.run_it();
          ASSERT_TRUE(outcome.ok()) << outcome;
          view.expect_right();
          EXPECT_EQ(outcome.workspace_size == 0, rows_are_dense(in) && rows_are_dense(out));
          if (in != Arrangement::kBroadcast) {
            expect_same_bits("view", view.dx.bits(), plain.dx.bits());
          }
        }
      }
    }
  }
}

TEST(ScaledMaskedSoftmaxBackward, InPlaceOnGradOutputOrYGivesTheSameBits) {
  for (const Dims& dims : {Dims{2, 3, 50, 3}, Dims{1, 2, 9, 16}, Dims{2, 3, 5, 37},
                           Dims{1, 2, 9, 88}, Dims{1, 5, 40, 1025}, Dims{1, 1, 3, 4095}}) {
    for (const aclDataType dtype : kFloats) {
      for (const Arrangement in : {Arrangement::kContiguous, Arrangement::kOffset,
                                   Arrangement::kRowPadded, Arrangement::kTransposed}) {
        Options options = all_of(dtype);
        options.in = in;
        Problem apart(dims, options);
        ASSERT_TRUE(apart.run_it().ok());
        for (const bool on_dy : {true, false}) {
          Problem same(dims, options);
          const Tensor& out = on_dy ? same.dy : same.y;
          const Outcome outcome = same.run_it(out.handle());
          ASSERT_TRUE(outcome.ok()) << outcome;
          expect_same_bits("out", out.bits(), apart.dx.bits());
          EXPECT_TRUE(out.untouched_outside());
        }
      }
    }
  }
}

TEST(ScaledMaskedSoftmaxBackward, EmptyTensors) {
  for (size_t empty = 0; empty < 4; ++empty) {
    for (const bool repeats : {false, true}) {
      Dims dims = {2, 3, 4, 5};
      dims[empty] = 0;
      Options options;
      options.over_batches = options.over_heads = repeats;
      Problem problem(dims, options);
      const Outcome outcome = problem.run_it();
      EXPECT_TRUE(outcome.ok()) << outcome;
    }
  }
  Tensor nothing({0, 3, 4, 5}, ACL_FLOAT), one_batch({1, 3, 4, 5}, ACL_BOOL);
  one_batch.fill_constant(0);
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(nothing.handle(), nothing.handle(),
                                                                one_batch.handle(), 1.0, false,
                                                                nothing.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  EXPECT_TRUE(outcome.ok()) << outcome;
}

// Short rows are computed many at a time: one that takes FP64 or has a NaN changes none of the
// others.
TEST(ScaledMaskedSoftmaxBackward, ARowsBitsDoNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 100, kOther = 37;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t cols : {1, 2, 3, 5, 8, 11, 15, 16, 17, 40, 120}) {
    for (const aclDataType dtype : kFloats) {
      // A scale under 2 leaves dy as it is: rows of 33 and more are summed and written together.
      for (const auto& [filler, scale] :
           {std::pair(1e-30, -2.5), std::pair(6e4, -2.5), std::pair(kNan, -2.5),
            std::pair(1e-30, 0.125), std::pair(kNan, 0.125)}) {
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", S2 " + std::to_string(cols) +
                     ", scale " + std::to_string(scale));
        Options options = all_of(dtype);
        options.scale = scale;
        Problem problem({1, 1, kRows, cols}, options);
        ASSERT_TRUE(problem.run_it().ok());
        std::vector<double> dy = problem.dy.values(), y = problem.y.values();
        std::vector<uint8_t> bits = problem.dx.bits();
        std::fill_n(dy.begin() + kOther * cols, cols, filler);
        std::fill_n(y.begin() + kOther * cols, cols, 30.0);
        problem.dy.fill(dy);
        problem.y.fill(y);
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right();
        const std::vector<uint8_t> now = problem.dx.bits();
        const auto row_bytes = static_cast<int64_t>(bits.size()) / kRows;
        std::copy_n(now.begin() + kOther * row_bytes, row_bytes, bits.begin() + kOther * row_bytes);
        expect_same_bits("the other rows", now, bits);
        expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.dx});
      }
    }
  }
}

TEST(ScaledMaskedSoftmaxBackward, TheCallersFloatingPointEnvironmentHasNoInfluence) {
  Options options = all_of(ACL_FLOAT16);
  options.scale = 0.1;
  Problem problem({2, 3, 11, 41}, options);
  problem.y.fill_uniform(9, 0.0, 1e-6);  // subnormal in FP16
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); }, {&problem.dx});
  Problem tiny({2, 3, 11, 41}, Options());
  tiny.dy.fill_normal(7, 0.0, 1e-38);
  ASSERT_TRUE(tiny.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return tiny.run_it(); }, {&tiny.dx});
}

// The gradient against central differences of L = sum(dy * softmax(mask ? -3 : scale * x)).
TEST(ScaledMaskedSoftmaxBackward, FiniteDifferences) {
  constexpr size_t kCols = 9;
  Options options;
  options.scale = 0.7;
  Problem problem({1, 1, 1, kCols}, options);
  std::vector<double> x = normal_values(kCols, 11);
  const std::vector<double> dy = problem.dy.values(), mask = problem.mask.values();
  const auto softmax = [&](const std::vector<double>& v) {
    std::vector<double> out;
    double sum = 0;
    for (size_t i = 0; i < kCols; ++i) {
      out.push_back(std::exp(mask[i] != 0 ? -3.0 : options.scale * v[i]));
      sum += out.back();
    }
    for (double& value : out) value /= sum;
    return out;
  };
  const auto loss = [&](const std::vector<double>& v) {
    const std::vector<double> y = softmax(v);
    double sum = 0;
    for (size_t i = 0; i < kCols; ++i) sum += dy[i] * y[i];
    return sum;
  };
  problem.y.fill(softmax(x));
  ASSERT_TRUE(problem.run_it().ok());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < kCols; ++i) {
    std::vector<double> up = x, down = x;
    up[i] += kStep;
    down[i] -= kStep;
    EXPECT_NEAR(problem.dx.values()[i], (loss(up) - loss(down)) / (2 * kStep), 1e-6);
  }
}

}  // namespace
}  // namespace aclgrad::test

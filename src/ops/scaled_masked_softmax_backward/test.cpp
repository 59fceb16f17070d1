// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward through the C interface, against the formula in double. Over 500
// lines, because all of it is written with the one problem below.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "ops/scaled_masked_softmax_backward/cases.h"
#include "ops/scaled_masked_softmax_backward/reference.h"
#include "runtime/services.h"
#include "support/attention.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using scaled_masked_softmax_backward::Reference;
using scaled_masked_softmax_backward::reference;
using scaled_masked_softmax_backward::Sizes;

using Options = AttentionOptions;

Options all_of(aclDataType dtype) {
  Options options;
  options.dtype = dtype;
  return options;
}

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Dims& dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        dy(dims, chosen.dtype, chosen.in),
        y(dims, chosen.dtype, chosen.in),
        mask(mask_dims(dims, chosen), ACL_BOOL, chosen.mask),
        dx(dims, chosen.dtype, chosen.out) {
    dy.fill_normal(seed);
    y.fill_uniform(seed + 1, 0.0, 2.0 / static_cast<double>(std::max<int64_t>(dims[3], 1)));
    fill_mask(mask, seed + 2);
  }

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor, aclTensor* out = nullptr) {
    return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
        dy.handle(), y.handle(), mask.handle(), options.scale, false,
        out == nullptr ? dx.handle() : out, size, executor);
  }
  Outcome run_it(aclTensor* out = nullptr) {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor, out); },
               aclnnScaledMaskedSoftmaxBackward);
  }
  Reference exact() const {
    const auto size = [](const Tensor& t, size_t i) { return static_cast<size_t>(t.dims()[i]); };
    const Sizes sizes{size(dx, 0), size(dx, 1),   size(dx, 2),
                      size(dx, 3), size(mask, 0), size(mask, 1)};
    return reference(sizes, dy.values(), y.values(), mask.values(), options.scale);
  }
  void expect_right() const {
    const Reference r = exact();
    expect_close("out", dx, r.dx, r.dx_magnitude, static_cast<double>(dx.dims()[3] + 2));
  }

  Options options;
  Tensor dy, y, mask, dx;
};

void run_and_check(const Dims& dims, const Options& options, uint64_t seed = 1) {
  Problem problem(dims, options, seed);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_right();
}

constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

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

Outcome run_slice(const PlainRows& dy, const PlainRows& y, const PlainRows& mask,
                  const PlainRows& out, int64_t first, int64_t count) {
  aclTensor* tensors[] = {dy.slice(first, count), y.slice(first, count), mask.slice(first, count),
                          out.slice(0, count)};
  Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
            tensors[0], tensors[1], tensors[2], 0.3, false, tensors[3], size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  for (aclTensor* tensor : tensors) static_cast<void>(aclDestroyTensor(tensor));
  return outcome;
}

// Outputs that do not fit the cache are written past it, in whole lines: the same bits as from a
// few rows at a time, and nothing else is touched.
TEST(ScaledMaskedSoftmaxBackward, AnOutputLargerThanTheCacheHasTheBitsOfItsRows) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const Dims widths = {1, 7, 16, 23, 100, 1001, 4096};
  for (const int64_t cols : widths) {
    for (const aclDataType dtype : kFloats) {
      const int64_t count = rows_beyond_the_cache(cols, dtype);
      for (const int64_t lead : {0, 3}) {
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", S2 " + std::to_string(cols) +
                     ", offset " + std::to_string(lead));
        const PlainRows dy(count, cols, dtype, 0, 1), y(count, cols, dtype, 0, 2);
        const PlainRows mask(count, cols, ACL_BOOL, 0, 3), out(count, cols, dtype, lead, 4);
        const auto run_rows = [&](const PlainRows& to, int64_t first, int64_t rows) {
          return run_slice(dy, y, mask, to, first, rows);
        };
        const std::vector<uint8_t> bits = expect_bits_of_rows(out, count, run_rows);
        if (lead == 0) {
          ASSERT_TRUE(run_rows(y, 0, count).ok());
          EXPECT_TRUE(y.now() == bits) << "in place";
          continue;
        }
        for_each_target([&](const std::string& name) {
          ASSERT_TRUE(run_rows(out, 0, count).ok());
          EXPECT_EQ(std::memcmp(out.now().data(), bits.data(), bits.size()), 0) << name;
        });
      }
    }
  }
}

// The same of rows with a NaN or Inf and of rows that take FP64 (but for FP16, which has none),
// which take no turns with the rows beside them, or stand among eight that are written together.
TEST(ScaledMaskedSoftmaxBackward, UnusualRowsOfALargeOutputAreRight) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const auto& [dtype, cols] : {std::pair<aclDataType, size_t>{ACL_FLOAT, 1024},
                                    {ACL_BF16, 1024},
                                    {ACL_BF16, 100},
                                    {ACL_FLOAT16, 100}}) {
    const auto rows = static_cast<size_t>(rows_beyond_the_cache(static_cast<int64_t>(cols), dtype));
    SCOPED_TRACE(dtype_short_name(dtype));
    Problem problem({1, 1, static_cast<int64_t>(rows), static_cast<int64_t>(cols)}, all_of(dtype));
    std::vector<double> dy = problem.dy.values(), y = problem.y.values();
    dy[100 * cols + 5] = std::numeric_limits<double>::quiet_NaN();
    dy[103 * cols - 1] = std::numeric_limits<double>::infinity();
    for (const size_t row : {size_t{0}, size_t{1000}, size_t{1001}, rows - 2, rows - 1}) {
      for (size_t c = 0; c < cols; ++c) {
        dy[row * cols + c] *= 1e-30;
        y[row * cols + c] = 30.0;
      }
    }
    problem.dy.fill(dy);
    problem.y.fill(y);
    for_each_target([&](const std::string& name) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right();
    });
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

TEST(ScaledMaskedSoftmaxBackward, AMillionRowsAndConstantRowsHoldTheTolerance) {
  run_and_check({1, 1, 1000000, 3}, Options());
  for (const int64_t cols : {16, 1024, 4096}) {
    for (const aclDataType dtype : kFloats) {
      Problem constant({1, 1, 2, cols}, all_of(dtype));
      constant.dy.fill_constant(0.1);
      constant.y.fill_constant(0.1);
      ASSERT_TRUE(constant.run_it().ok());
      constant.expect_right();
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

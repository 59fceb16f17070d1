// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "ops/scaled_masked_softmax/cases.h"
#include "ops/scaled_masked_softmax/reference.h"
#include "runtime/services.h"
#include "support/attention.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using scaled_masked_softmax::reference;
using scaled_masked_softmax::Sizes;

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
        x(dims, chosen.dtype, chosen.in),
        mask(mask_dims(dims, chosen), ACL_BOOL, chosen.mask),
        y(dims, chosen.dtype, chosen.out) {
    x.fill_normal(seed, 0.0, 10.0);
    fill_mask(mask, seed + 2);
  }

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask.handle(), options.scale, false,
                                                    y.handle(), size, executor);
  }
  Outcome run_it() {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor); },
               aclnnScaledMaskedSoftmax);
  }
  std::vector<double> exact() const {
    const auto size = [](const Tensor& t, size_t i) { return static_cast<size_t>(t.dims()[i]); };
    const Sizes sizes{size(y, 0), size(y, 1), size(y, 2), size(y, 3), size(mask, 0), size(mask, 1)};
    return reference(sizes, x.values(), mask.values(), options.scale);
  }
  // Half a unit in the last place, where a whole one is promised. Returns the largest error.
  double expect_right() const {
    const std::vector<double> right = exact();
    return expect_close("y", y, right, right, 2);
  }

  Options options;
  Tensor x, mask, y;
};

void run_and_check(const Dims& dims, const Options& options, uint64_t seed = 1) {
  Problem problem(dims, options, seed);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_right();
}

constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

TEST(ScaledMaskedSoftmax, DocumentedExample) {
  for (const aclDataType dtype : kFloats) {
    Options options = all_of(dtype);
    options.scale = 1.0;
    Problem problem({1, 1, 4, 4}, options);
    problem.x.fill({0, 0, 0, 0, 5, 5, -3, 7, 1, 2, 3, 4, 9, -9, 9, 100});
    problem.mask.fill({0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1});
    ASSERT_TRUE(problem.run_it().ok());
    EXPECT_EQ(problem.y.values(), (std::vector<double>{0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0, 0, 0.25,
                                                       0.25, 0.25, 0.25, 0, 1, 0, 0}));
  }
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(ScaledMaskedSoftmax, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& shape : scaled_masked_softmax::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      const Dims dims = {shape.batches, shape.heads, shape.rows, shape.cols};
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.batches) +
                   "x" + std::to_string(shape.heads) + "x" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.cols));
      Problem problem(dims, all_of(dtype));
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right();
      expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.y});
    }
  }
}

TEST(ScaledMaskedSoftmax, EveryFormOfMask) {
  for_each_form_of_mask(
      [](const Dims& dims, const Options& options) { run_and_check(dims, options); });
}

TEST(ScaledMaskedSoftmax, EveryStridedViewGivesTheSameBits) {
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
            expect_same_bits("view", view.y.bits(), plain.y.bits());
          }
        }
      }
    }
  }
}

Outcome run_slice(const PlainRows& x, const PlainRows& mask, const PlainRows& y, int64_t first,
                  int64_t count) {
  aclTensor* tensors[] = {x.slice(first, count), mask.slice(first, count), y.slice(0, count)};
  Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxGetWorkspaceSize(tensors[0], tensors[1], 3.7, false,
                                                        tensors[2], size, executor);
      },
      aclnnScaledMaskedSoftmax);
  for (aclTensor* tensor : tensors) static_cast<void>(aclDestroyTensor(tensor));
  return outcome;
}

// Outputs that do not fit the cache are written past it, in whole lines: the same bits as from a
// few rows at a time, and nothing else is touched.
TEST(ScaledMaskedSoftmax, AnOutputLargerThanTheCacheHasTheBitsOfItsRows) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const Dims widths = {1, 9, 23, 96, 1001, 4096};
  for (const int64_t cols : widths) {
    for (const aclDataType dtype : kFloats) {
      const int64_t count = rows_beyond_the_cache(cols, dtype);
      for (const int64_t lead : {0, 3}) {
        if (lead == 0 && cols % 32 != 0) continue;  // lines at both ends of rows, or not
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", S2 " + std::to_string(cols) +
                     ", offset " + std::to_string(lead));
        const PlainRows x(count, cols, dtype, 0, 1), mask(count, cols, ACL_BOOL, 0, 3);
        const PlainRows y(count, cols, dtype, lead, 4);
        const auto run_rows = [&](const PlainRows& to, int64_t first, int64_t rows) {
          return run_slice(x, mask, to, first, rows);
        };
        const std::vector<uint8_t> bits = expect_bits_of_rows(y, count, run_rows);
        if (cols != 23 || lead == 0) continue;
        for_each_target([&](const std::string& name) {
          ASSERT_TRUE(run_rows(y, 0, count).ok());
          EXPECT_EQ(std::memcmp(y.now().data(), bits.data(), bits.size()), 0) << name;
        });
      }
    }
  }
}

TEST(ScaledMaskedSoftmax, EmptyTensors) {
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
        return aclnnScaledMaskedSoftmaxGetWorkspaceSize(nothing.handle(), one_batch.handle(), 1.0,
                                                        false, nothing.handle(), size, executor);
      },
      aclnnScaledMaskedSoftmax);
  EXPECT_TRUE(outcome.ok()) << outcome;
}

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

// Short rows are computed many at a time: one that takes FP64, is masked or has a NaN changes none
// of the others.
TEST(ScaledMaskedSoftmax, ARowsBitsDoNotDependOnItsNeighbours) {
  constexpr int64_t kRows = 100, kOther = 37;
  for (const int64_t cols : {1, 2, 3, 5, 8, 11, 16, 17, 24, 31, 40, 77, 128, 129, 160}) {
    for (const aclDataType dtype : kFloats) {
      for (const double filler : {6e4, -6e4, std::numeric_limits<double>::quiet_NaN()}) {
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", S2 " + std::to_string(cols));
        Options options = all_of(dtype);
        options.scale = 2.5;
        Problem problem({1, 1, kRows, cols}, options);
        ASSERT_TRUE(problem.run_it().ok());
        std::vector<double> values = problem.x.values(), mask = problem.mask.values();
        std::vector<uint8_t> bits = problem.y.bits();
        std::fill_n(values.begin() + kOther * cols, cols, filler);
        std::fill_n(mask.begin() + kOther * cols, cols, 0.0);
        std::fill_n(mask.begin() + (kOther + 4) * cols, cols, 1.0);
        problem.x.fill(values);
        problem.mask.fill(mask);
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right();
        const std::vector<uint8_t> now = problem.y.bits();
        const auto row_bytes = static_cast<int64_t>(bits.size()) / kRows;
        for (const int64_t row : {kOther, kOther + 4}) {
          std::copy_n(now.begin() + row * row_bytes, row_bytes, bits.begin() + row * row_bytes);
        }
        expect_same_bits("the other rows", now, bits);
        expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.y});
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

TEST(ScaledMaskedSoftmax, AMillionRowsAndConstantRowsHoldTheTolerance) {
  run_and_check({1, 1, 1000000, 3}, Options());
  for (const int64_t cols : {16, 77, 1024, 4096}) {
    for (const aclDataType dtype : kFloats) {
      Problem constant({1, 1, 2, cols}, all_of(dtype));
      constant.mask.fill_constant(0);
      constant.x.fill_constant(0.1);
      ASSERT_TRUE(constant.run_it().ok());
      const std::vector<double> y = constant.y.values();
      EXPECT_EQ(y, std::vector<double>(y.size(), rounded(1.0 / static_cast<double>(cols), dtype)));
      // One large element and many equal ones: the sum is a chain of equal terms.
      constant.x.fill_constant(-7.3);
      std::vector<double> values = constant.x.values();
      values[5] = 40.0;
      constant.x.fill(values);
      ASSERT_TRUE(constant.run_it().ok());
      constant.expect_right();
    }
  }
}

TEST(ScaledMaskedSoftmax, TheCallersFloatingPointEnvironmentHasNoInfluence) {
  Options options = all_of(ACL_FLOAT16);
  options.scale = 0.9;
  Problem problem({2, 3, 11, 41}, options);  // some results are subnormal in FP16
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); }, {&problem.y});
  Problem tiny({2, 3, 11, 41}, Options());
  tiny.x.fill_normal(7, 0.0, 300.0);  // subnormal results
  ASSERT_TRUE(tiny.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return tiny.run_it(); }, {&tiny.y});
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ops/scaled_masked_softmax/cases.h"
#include "ops/scaled_masked_softmax/test_problem.h"
#include "runtime/services.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

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

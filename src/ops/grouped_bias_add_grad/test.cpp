// SPDX-License-Identifier: Apache-2.0
// GroupedBiasAddGrad and its V2 through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/grouped_bias_add_grad/cases.h"
#include "ops/grouped_bias_add_grad/test_problem.h"
#include "runtime/services.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

TEST(GroupedBiasAddGrad, DocumentedExamples) {
  for (const aclDataType dtype : kFloats) {
    Problem first(40, 10, {5, 15, 30, 40}, in_dtype(dtype));
    first.dy.fill_constant(1.0);
    ASSERT_TRUE(first.run_it().ok());
    EXPECT_EQ(row_values(first.out), (std::vector<double>{5, 10, 15, 10}));
    Problem page(1000, 30, {400, 600, 1000}, in_dtype(dtype));
    page.dy.fill_constant(1.0);
    ASSERT_TRUE(page.run_it().ok());
    EXPECT_EQ(row_values(page.out), (std::vector<double>{400, 200, 400}));
    Problem equal({10, 100, 30}, in_dtype(dtype));
    equal.dy.fill_constant(1.0);
    ASSERT_TRUE(equal.run_it().ok());
    EXPECT_EQ(row_values(equal.out), std::vector<double>(10, 100));
    Options by_size = in_dtype(dtype);
    by_size.second = by_size.sizes = true;
    Problem sizes(40, 10, {5, 10, 15, 10}, by_size);
    sizes.dy.fill_constant(1.0);
    ASSERT_TRUE(sizes.run_it().ok());
    EXPECT_EQ(row_values(sizes.out), (std::vector<double>{5, 10, 15, 10}));
  }
}

TEST(GroupedBiasAddGrad, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& each : grouped_bias_add_grad::test_cases()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " cols " + std::to_string(each.cols) +
                   " groups " + std::to_string(each.sizes.size()) + " of " +
                   std::to_string(each.sizes[0]) + "...");
      Problem(sum(each.sizes), each.cols, running_sums(each.sizes), in_dtype(dtype))
          .run_everywhere();
    }
  }
  for (const Dims& dims : grouped_bias_add_grad::equal_cases()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " groups " + std::to_string(dims[0]) +
                   " rows " + std::to_string(dims[1]) + " cols " + std::to_string(dims[2]));
      Problem(dims, in_dtype(dtype)).run_everywhere();
    }
  }
}

// The right numbers, with the same bits from so many threads. `answer`: of the synchronise.
void expect_same_bits_of(const std::vector<int>& counts, Problem& problem, aclError answer) {
  const KeptBits kept({&problem.out});
  std::vector<uint8_t> bits;
  for_each_thread_count(counts, [&](int threads) {
    kept.poison();
    const Outcome outcome = problem.run_it();
    ASSERT_EQ(outcome.synchronise, answer) << outcome;
    ASSERT_TRUE(answer != 0 || outcome.ok()) << outcome;
    if (bits.empty()) bits = problem.out.bits();
    expect_same_bits(std::to_string(threads) + " threads", problem.out.bits(), bits);
  });
  problem.expect_right();
}

// For eight threads all rows are cut into ranges of columns, for two and four those of a run's last
// stretch. Of three runs the third is read in another way than the first, where there are two.
TEST(GroupedBiasAddGrad, WholeRowsAndPartsOfThemGiveTheSameBitsWhicheverWayTheyAreRead) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's threads";
  const std::vector<int> counts = {1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8};
  for (const aclDataType dtype : kFloats) {
    SCOPED_TRACE(dtype_short_name(dtype));
    Problem problem(6200, dtype == ACL_FLOAT ? 2080 : 4111, {300, 6200}, in_dtype(dtype));
    expect_same_bits_of(counts, problem, 0);
  }
  for (const int64_t cols : {300, 1000, 2881, 4111, 8719}) {  // the rests of tiles, chains, blocks
    for (const Arrangement in : {Arrangement::kContiguous, Arrangement::kReversedRows}) {
      for (const aclDataType dtype : kFloats) {
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " cols " + std::to_string(cols));
        Options options = in_dtype(dtype);
        options.in = in;
        // Problems of as many columns share what is known of the ways.
        const int64_t own = in == Arrangement::kContiguous ? cols : cols + 1;
        Problem problem(823, own, {9, 202, 300, 823}, options);
        expect_same_bits_of({1, 1, 1, 2, 2, 2}, problem, 0);
      }
    }
  }
}

// A single thread has all blocks of the first group, in one range of columns of several panels; of
// eight threads none has, and its totals are joined. Ends that name rows again and again, a data
// error, make for much work with little memory.
TEST(GroupedBiasAddGrad, GroupsOfSeveralBlocksHaveTheSameBitsFromOneTaskAndFromSeveral) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's threads";
  Numbers ends = {517};
  for (int again = 0; again < 24; ++again) {
    ends.push_back(261);
    ends.push_back(517);
  }
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    SCOPED_TRACE(dtype_short_name(dtype));
    Problem problem(517, 8419, ends, in_dtype(dtype));
    expect_same_bits_of({1, 2, 8}, problem, kDataError);
  }
}

// Two threads, too, have work enough to take whole rows. Groups of one block, and behind them one
// of three, which no task has to itself.
TEST(GroupedBiasAddGrad, ManyGroupsOfLongRowsHaveTheSameBitsFromOneThreadAndFromSeveral) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's threads";
  Numbers ends;
  for (int again = 0; again < 60; ++again) {
    ends.push_back(256);  // the first time; then below the one before it: no rows
    ends.push_back(512);
  }
  ends.push_back(0);
  ends.push_back(517);
  for (const Arrangement in : {Arrangement::kContiguous, Arrangement::kReversedRows}) {
    Options options;
    options.in = in;
    Problem problem(517, 4111, ends, options);
    expect_same_bits_of({1, 2, 8}, problem, kDataError);
  }
}

TEST(GroupedBiasAddGrad, BothVersionsBothTypesBothIndexDtypes) {
  const Numbers sizes = {3, 0, 40, 7, 300};
  for (const aclDataType index : {ACL_INT32, ACL_INT64}) {
    for (const Arrangement in : {Arrangement::kContiguous, Arrangement::kOffset,
                                 Arrangement::kInnerStrided, Arrangement::kReversed}) {
      Options options;
      options.index = index;
      options.index_in = in;
      Problem first(350, 37, running_sums(sizes), options);
      first.run_and_check();
      options.second = true;
      Problem ends(350, 37, running_sums(sizes), options);
      ends.run_and_check();
      options.sizes = true;
      Problem by_size(350, 37, sizes, options);
      by_size.run_and_check();
      expect_same_bits("V2", ends.out.bits(), first.out.bits());
      expect_same_bits("sizes", by_size.out.bits(), first.out.bits());
    }
  }
  Options broadcast;  // every entry is the same 20
  broadcast.index_in = Arrangement::kBroadcast;
  Problem(20, 5, {20, 20, 20}, broadcast).run_and_check();
  Options without;
  without.second = without.sizes = true;  // groupIdxType has no meaning then
  Problem({3, 20, 5}, without).run_and_check();
}

TEST(GroupedBiasAddGrad, LongRowsOfNothingButNegativeZeroHaveNoNegativeSum) {
  for (const aclDataType dtype : kFloats) {
    for (const int64_t rows : {1, 4, 7, 8, 9, 16, 17, 32}) {
      Problem problem({5, rows, 2100}, in_dtype(dtype));
      problem.dy.fill_constant(-0.0);
      problem.run_and_check();
      for (const double value : problem.out.values()) ASSERT_FALSE(std::signbit(value)) << rows;
    }
  }
}

TEST(GroupedBiasAddGrad, AGroupsBitsDoNotDependOnItsNeighbours) {
  for (const int64_t cols : {1, 3, 24, 300}) {
    constexpr int64_t kRows = 700;
    Problem alone(kRows, cols, {kRows}, Options());
    ASSERT_TRUE(alone.run_it().ok());
    const std::vector<double> rows = alone.dy.values();
    for (const int64_t before : {1, 15, 257}) {
      Problem among(before + kRows + 9, cols, {before, before + kRows, before + kRows + 9},
                    Options());
      std::vector<double> all = among.dy.values();
      std::copy(rows.begin(), rows.end(), all.begin() + before * cols);
      among.dy.fill(all);
      among.run_and_check();
      const std::vector<uint8_t> bits = among.out.bits();
      const auto row = static_cast<std::ptrdiff_t>(alone.out.bits().size());
      expect_same_bits("group", {bits.begin() + row, bits.begin() + 2 * row}, alone.out.bits());
    }
  }
}

TEST(GroupedBiasAddGrad, OneGiantGroupAmongEmptyOnes) {
  for (const int64_t cols : {24, 300}) {
    Numbers ends(2048, 20000);
    std::fill(ends.begin(), ends.begin() + 1000, 0);
    Problem(20000, cols, ends, in_dtype(ACL_BF16)).run_everywhere();
  }
}

TEST(GroupedBiasAddGrad, EmptyTensors) {
  Problem no_rows(0, 5, {0, 0, 0}, Options());
  no_rows.run_and_check();
  EXPECT_EQ(no_rows.out.values(), std::vector<double>(15, 0.0));
  Problem no_rows_each({3, 0, 300}, Options());
  no_rows_each.run_and_check();
  EXPECT_EQ(no_rows_each.out.values(), std::vector<double>(900, 0.0));
  // Without elements in out nothing runs, so nothing is reported.
  for (const Dims& dims : {Dims{0, 7, 5}, Dims{3, 7, 0}, Dims{0, 0, 0}}) {
    ASSERT_TRUE(Problem(dims, Options()).run_it().ok());
  }
  ASSERT_TRUE(Problem(7, 5, {}, Options()).run_it().ok());
  ASSERT_TRUE(Problem(7, 0, {1, 2}, Options()).run_it().ok());
  ASSERT_TRUE(Problem(0, 0, {}, Options()).run_it().ok());
}

TEST(GroupedBiasAddGrad, NanInfSubnormalsAndSignedZerosFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const aclDataType dtype : kFloats) {
    for (const int64_t cols : {3, 40, 80, 160, 240, 300, 2100}) {
      for (const auto& special :
           std::vector<std::vector<double>>{{inf}, {-inf}, {nan}, {inf, inf}, {inf, -inf}}) {
        Problem problem(100, cols, {20, 90, 100}, in_dtype(dtype));
        std::vector<double> values = problem.dy.values();
        for (size_t i = 0; i < special.size(); ++i) {
          values[static_cast<size_t>(cols) * (30 + 17 * i) + 1] = special[i];
        }
        problem.dy.fill(values);
        problem.run_and_check();
      }
    }
    for (const int64_t cols : {80, 160, 240, 300, 2100}) {
      Problem zeros(160, cols, {5, 25, 60, 160}, in_dtype(dtype));
      zeros.dy.fill_constant(-0.0);
      zeros.run_and_check();
      for (const double value : zeros.out.values()) EXPECT_FALSE(std::signbit(value));
    }
  }
  Problem tiny(600, 40, {300, 600}, Options());
  tiny.dy.fill_uniform(3, -0x1p-149, 0x1p-135);
  tiny.run_and_check();
}

TEST(GroupedBiasAddGrad, AMillionRowsAndConstantColumnsHoldTheTolerance) {
  Problem million(1000000, 1, {1000000}, Options());
  million.run_and_check();
  million.dy.fill_constant(0.1);
  million.run_and_check();
  for (const aclDataType dtype : kFloats) {  // chains and blocks of long rows
    Problem constant(9000, 260, {9000}, in_dtype(dtype));
    constant.dy.fill_constant(0.1);
    constant.run_and_check();
  }
}

TEST(GroupedBiasAddGrad, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem(300, 100, {100, 300}, in_dtype(ACL_FLOAT16));
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); }, {&problem.out});
}

// The gradient against central differences of L = sum(dy * (x + bias[group of the row])) in double.
TEST(GroupedBiasAddGrad, FiniteDifferences) {
  constexpr size_t kCols = 5;
  const Problem problem(12, kCols, {3, 3, 12}, Options());
  ASSERT_TRUE(problem.run_it().ok());
  const std::vector<double> dy = problem.dy.values();
  const auto loss = [&](const std::vector<double>& bias) {
    double total = 0;
    for (size_t i = 0; i < dy.size(); ++i) {
      const size_t group = i / kCols < 3 ? 0 : 2;
      total += dy[i] * (0.5 + bias[group * kCols + i % kCols]);
    }
    return total;
  };
  constexpr double kStep = 1e-3;
  for (size_t i = 0; i < 3 * kCols; ++i) {
    std::vector<double> up(3 * kCols, 0.25), down = up;
    up[i] += kStep;
    down[i] -= kStep;
    EXPECT_NEAR(problem.out.values()[i], (loss(up) - loss(down)) / (2 * kStep), 1e-5);
  }
}

}  // namespace
}  // namespace aclgrad::test

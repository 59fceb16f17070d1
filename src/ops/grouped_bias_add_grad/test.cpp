// SPDX-License-Identifier: Apache-2.0
// GroupedBiasAddGrad and its V2 through the C interface, against the formula in double. Over 500
// lines, because all of it is written with the one problem below.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "ops/grouped_bias_add_grad/cases.h"
#include "ops/grouped_bias_add_grad/plan.h"
#include "ops/grouped_bias_add_grad/reference.h"
#include "runtime/services.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using grouped_bias_add_grad::equal_groups;
using grouped_bias_add_grad::named_groups;
using grouped_bias_add_grad::RowRange;

using Numbers = std::vector<int64_t>;

constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr aclError kDataError = 507015;

Numbers running_sums(Numbers sizes) {
  std::partial_sum(sizes.begin(), sizes.end(), sizes.begin());
  return sizes;
}

int64_t sum(const Numbers& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType dtype = ACL_FLOAT;
  aclDataType index = ACL_INT64;
  bool second = false;  // V2
  bool sizes = false;   // groupIdxType 1
  Arrangement in = Arrangement::kContiguous;
  Arrangement index_in = Arrangement::kContiguous;
  Arrangement out = Arrangement::kContiguous;
};

// The tensors of one problem with random data, and its two phases.
struct Problem {
  // With groupIdx; `numbers` are ends or sizes as the options have it, right or wrong.
  Problem(int64_t rows, int64_t columns, const Numbers& numbers, const Options& chosen,
          uint64_t seed = 1)
      : options(chosen),
        cols(columns),
        groups(named_groups(numbers, chosen.sizes, rows)),
        dy({rows, columns}, chosen.dtype, chosen.in),
        index(std::in_place, Dims{std::ssize(numbers)}, chosen.index, chosen.index_in),
        out({std::ssize(numbers), columns}, chosen.dtype, chosen.out) {
    index->fill_bits(bytes_of(numbers));
    dy.fill_normal(seed, 0.25);
  }
  // Without.
  Problem(const Dims& dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        cols(dims[2]),
        groups(equal_groups(dims[0], dims[1])),
        dy(dims, chosen.dtype, chosen.in),
        out({dims[0], dims[2]}, chosen.dtype, chosen.out) {
    dy.fill_normal(seed, 0.25);
  }

  std::vector<uint8_t> bytes_of(const Numbers& numbers) const {
    const size_t size = dtype_size(options.index);
    std::vector<uint8_t> bytes(numbers.size() * size);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (size == sizeof(int64_t)) {
        store_as(&bytes[i * size], numbers[i]);
      } else {
        store_as(&bytes[i * size], static_cast<int32_t>(numbers[i]));
      }
    }
    return bytes;
  }
  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    const aclTensor* at = index ? index->handle() : nullptr;
    if (!options.second) {
      return aclnnGroupedBiasAddGradGetWorkspaceSize(dy.handle(), at, out.handle(), size, executor);
    }
    return aclnnGroupedBiasAddGradV2GetWorkspaceSize(dy.handle(), at, options.sizes ? 1 : 0,
                                                     out.handle(), size, executor);
  }
  Outcome run_it() const {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor); },
               options.second ? aclnnGroupedBiasAddGradV2 : aclnnGroupedBiasAddGrad);
  }
  void expect_right() const {
    const auto exact =
        grouped_bias_add_grad::reference(static_cast<size_t>(cols), dy.values(), groups);
    double terms = 0;
    for (const RowRange& group : groups) {
      terms = std::max(terms, static_cast<double>(group.end - group.first));
    }
    expect_close("out", out, exact.dbias, exact.dbias_magnitude, terms);
  }
  void run_and_check() const {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }
  // Right here; the same bits on every target and for every thread count, also where the sums show
  // the order of the additions.
  void run_everywhere() {
    run_and_check();
    expect_same_bits_everywhere([&] { return run_it(); }, {&out});
    std::vector<size_t> group_of_row;
    for (size_t g = 0; g < groups.size(); ++g) {
      group_of_row.resize(static_cast<size_t>(groups[g].end), g);
    }
    const auto width = static_cast<size_t>(cols);
    dy.fill_cancelling(7, [&](size_t i) { return group_of_row[i / width] * width + i % width; });
    ASSERT_TRUE(run_it().ok());
    expect_same_bits_everywhere([&] { return run_it(); }, {&out});
  }

  Options options;
  int64_t cols;
  std::vector<RowRange> groups;
  Tensor dy;
  std::optional<Tensor> index;
  Tensor out;
};

Options in_dtype(aclDataType dtype) {
  Options options;
  options.dtype = dtype;
  return options;
}

// Every row of out holds one number; gives those numbers.
std::vector<double> row_values(const Tensor& out) {
  const std::vector<double> values = out.values();
  const auto cols = static_cast<size_t>(out.dims()[1]);
  std::vector<double> rows;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % cols == 0) rows.push_back(values[i]);
    EXPECT_EQ(values[i], rows.back());
  }
  return rows;
}

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

TEST(GroupedBiasAddGrad, EveryStridedViewGivesTheSameBits) {
  const Numbers sizes = {3, 0, 40, 21};
  for (const int64_t cols : {1, 3, 24, 130, 300}) {
    for (const aclDataType dtype : kFloats) {
      Problem plain(sum(sizes), cols, running_sums(sizes), in_dtype(dtype));
      plain.run_and_check();
      Problem plain_equal({3, 40, cols}, in_dtype(dtype));
      plain_equal.run_and_check();
      for (const Arrangement in : kInputArrangements) {
        for (const Arrangement out : kOutputArrangements) {
          if (in != out && out != Arrangement::kContiguous && in != Arrangement::kContiguous) {
            continue;
          }
          SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
          Options options = in_dtype(dtype);
          options.in = in;
          options.out = out;
          Problem view(sum(sizes), cols, running_sums(sizes), options);
          view.run_and_check();
          Problem equal({3, 40, cols}, options);
          equal.run_and_check();
          if (in == Arrangement::kBroadcast) continue;
          expect_same_bits("view", view.out.bits(), plain.out.bits());
          expect_same_bits("equal groups", equal.out.bits(), plain_equal.out.bits());
        }
      }
    }
  }
}

// Sixteen groups and more at a time where all lie behind each other, one by one with groupIdx; a
// multiple of sixteen, and a few.
TEST(GroupedBiasAddGrad, NarrowRowsGiveTheSameBitsInEqualAndNamedGroups) {
  for (const int64_t cols : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16}) {
    for (const int64_t rows : grouped_bias_add_grad::narrow_rows()) {
      const int64_t groups = rows <= 16 ? 293 : 37;
      const aclDataType dtype = kFloats[static_cast<size_t>((rows + cols) % 3)];
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " rows " + std::to_string(rows) +
                   " cols " + std::to_string(cols));
      Problem equal({groups, rows, cols}, in_dtype(dtype));
      equal.run_everywhere();
      Problem named(groups * rows, cols, running_sums(Numbers(static_cast<size_t>(groups), rows)),
                    in_dtype(dtype));
      named.dy.fill_bits(equal.dy.bits());
      named.run_and_check();
      expect_same_bits("named groups", named.out.bits(), equal.out.bits());
    }
  }
}

TEST(GroupedBiasAddGrad, NarrowRowsGiveTheSameBitsInEveryView) {
  for (const int64_t cols : {1, 2, 3, 7, 8, 13}) {
    for (const int64_t rows : {1, 5, 16, 17, 40, 129, 300}) {
      const aclDataType dtype = kFloats[static_cast<size_t>((rows + cols) % 3)];
      const Dims dims = {37, rows, cols};
      Problem plain(dims, in_dtype(dtype));
      plain.run_and_check();
      for (const Arrangement in : kInputArrangements) {
        for (const Arrangement out : kOutputArrangements) {
          if (in != out && out != Arrangement::kContiguous && in != Arrangement::kContiguous) {
            continue;
          }
          SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(cols) + " " +
                       arrangement_name(in) + " to " + arrangement_name(out));
          Options options = in_dtype(dtype);
          options.in = in;
          options.out = out;
          Problem view(dims, options);
          view.run_and_check();
          if (in == Arrangement::kBroadcast) continue;
          expect_same_bits("view", view.out.bits(), plain.out.bits());
        }
      }
    }
  }
}

// Lanes of a vector belong to several groups, or to none.
TEST(GroupedBiasAddGrad, NanOfANarrowGroupStaysInItsColumnsAndRows) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const int64_t cols : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16}) {
    for (const int64_t rows : grouped_bias_add_grad::narrow_rows()) {
      constexpr int64_t kGroups = 160;
      Problem problem({kGroups, rows, cols}, in_dtype(ACL_BF16));
      std::vector<double> values = problem.dy.values();
      for (const int64_t group : {5, 16, 131}) {
        const int64_t row = group * rows + (rows > 1 ? group % (rows - 1) : 0);
        values[static_cast<size_t>(row * cols + group % cols)] = nan;
      }
      problem.dy.fill(values);
      ASSERT_TRUE(problem.run_it().ok());
      const std::vector<double> sums = problem.out.values();
      for (int64_t i = 0; i < kGroups * cols; ++i) {
        const int64_t group = i / cols;
        const bool bad = (group == 5 || group == 16 || group == 131) && i % cols == group % cols;
        ASSERT_EQ(std::isnan(sums[static_cast<size_t>(i)]), bad)
            << rows << "x" << cols << " group " << group << " column " << i % cols;
      }
    }
  }
}

TEST(GroupedBiasAddGrad, NarrowGroupsOfConstantsHoldTheToleranceAndHaveNoNegativeZero) {
  for (const aclDataType dtype : kFloats) {
    for (const int64_t cols : {1, 2, 3, 8, 9}) {
      for (const int64_t rows : grouped_bias_add_grad::narrow_rows()) {
        Problem problem({150, rows, cols}, in_dtype(dtype));
        problem.dy.fill_constant(0.1);
        problem.run_and_check();
        problem.dy.fill_constant(-0.0);
        problem.run_and_check();
        for (const double value : problem.out.values()) ASSERT_FALSE(std::signbit(value)) << rows;
      }
    }
  }
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

// Rows with gaps are read where they are, short ones by way of gathered copies: the same sums.
TEST(GroupedBiasAddGrad, RowsWithGapsGiveTheSameBitsOnEveryTarget) {
  const std::pair<int64_t, int64_t> shapes[] = {{35500, 1}, {71000, 1}, {12500, 3}, {700, 15},
                                                {2400, 16}, {3000, 24}, {900, 130}, {500, 300},
                                                {40, 2079}, {40, 2100}};
  for (const auto& [rows, cols] : shapes) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " " + std::to_string(rows) + "x" +
                   std::to_string(cols));
      Problem plain(rows, cols, {rows - 9, rows}, in_dtype(dtype));
      ASSERT_TRUE(plain.run_it().ok());
      for (const Arrangement in : {Arrangement::kRowPadded, Arrangement::kReversedRows}) {
        Options options = in_dtype(dtype);
        options.in = in;
        Problem view(rows, cols, {rows - 9, rows}, options);
        view.run_and_check();
        for_each_target([&](const std::string& name) {
          view.out.poison();
          ASSERT_TRUE(view.run_it().ok());
          expect_same_bits(name, view.out.bits(), plain.out.bits());
        });
      }
    }
  }
}

// The workspace is a function of the shape, at most 5 % of the data, and strided rows need no more
// of it: nothing is packed.
TEST(GroupedBiasAddGrad, RowsAreReadInPlace) {
  for (const int64_t cols : {3, 300, 2880}) {
    const int64_t rows = 800000 / cols;
    uint64_t contiguous = 0;
    for (const Arrangement in : {Arrangement::kContiguous, Arrangement::kRowPadded,
                                 Arrangement::kReversedRows, Arrangement::kBroadcast}) {
      Options options = in_dtype(ACL_BF16);
      options.in = in;
      const Problem problem(rows, cols, {rows / 3, rows}, options);
      const Outcome outcome = problem.run_it();
      ASSERT_TRUE(outcome.ok()) << outcome;
      if (in == Arrangement::kContiguous) contiguous = outcome.workspace_size;
      EXPECT_EQ(outcome.workspace_size, contiguous) << arrangement_name(in);
    }
    EXPECT_LE(static_cast<double>(contiguous), 0.05 * static_cast<double>(2 * rows * cols));
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
    for (const int64_t cols : {3, 40, 300}) {
      for (const auto& special :
           std::vector<std::vector<double>>{{inf}, {-inf}, {nan}, {inf, inf}, {inf, -inf}}) {
        Problem problem(80, cols, {20, 70, 80}, in_dtype(dtype));
        std::vector<double> values = problem.dy.values();
        for (size_t i = 0; i < special.size(); ++i) {
          values[static_cast<size_t>(cols) * (30 + 17 * i) + 1] = special[i];
        }
        problem.dy.fill(values);
        problem.run_and_check();
      }
    }
    Problem zeros(60, 300, {5, 25, 60}, in_dtype(dtype));
    zeros.dy.fill_constant(-0.0);
    zeros.run_and_check();
    for (const double value : zeros.out.values()) EXPECT_FALSE(std::signbit(value));
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

// A row of the README's table of data errors.
struct BadData {
  bool sizes;
  Numbers numbers;  // for 40 rows
  std::vector<std::string> message;
};

TEST(GroupedBiasAddGrad, DataErrors) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const BadData rows[] = {
      {false, {5, -3, 30, 40}, {"holds -3 at position 1", "expected 0 to 2147483647"}},
      {false, {-1, 15, -3, 40}, {"holds -1 at position 0"}},
      {false, {5, kMost + 1, 40}, {"holds 2147483648 at position 1", "at most 2147483647"}},
      {false, {5, 15, 10, 40}, {"holds 10 at position 2", "at least 15"}},
      {false, {5, 50, 40}, {"holds 40 at position 2", "at least 50"}},
      {false, {5, 15, 30, 39}, {"holds 39 at position 3", "the last", "expected 40"}},
      {false, {5, 15, 30, 41}, {"holds 41 at position 3", "the last", "expected 40"}},
      {false, {40, 0, 40, 0, 40}, {"holds 0 at position 1", "at least 40"}},
      {true, {5, -10, 30}, {"holds -10 at position 1", "expected 0 to 2147483647"}},
      {true, {5, kMost, 30}, {"holds 2147483647 at position 1", "add up to at most 2147483647"}},
      {true, {5, 10, 24}, {"holds 24 at position 2", "ends at 39", "expected 40"}},
      {true,
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max(), 3},
       {"holds 9223372036854775807 at position 0"}},
      {true,
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::min(), 3},
       {"holds -9223372036854775808 at position 0"}},
  };
  for (const BadData& row : rows) {
    Options options;
    options.second = row.sizes;
    options.sizes = row.sizes;
    for (const int64_t cols : {3, 300}) {
      SCOPED_TRACE(row.message[0]);
      const Problem problem(40, cols, row.numbers, options);
      const Outcome outcome = problem.run_it();
      EXPECT_EQ(outcome.synchronise, kDataError) << outcome;
      expect_message(outcome.message, {row.sizes ? "aclnnGroupedBiasAddGradV2: groupIdxOptional"
                                                 : "aclnnGroupedBiasAddGrad: groupIdxOptional"});
      for (const std::string& text : row.message) expect_message(outcome.message, {text});
      problem.expect_right();
      EXPECT_EQ(aclrtSynchronizeStream(stream()), 0) << "reported twice";
    }
  }
  // T = 0 has only one right end.
  EXPECT_EQ(Problem(0, 3, {0, 1}, Options()).run_it().synchronise, kDataError);
}

// Bad ends may name all rows again and again: more blocks than the workspace has room for at once.
// Whole numbers, so that sums of a block are exact, and no two alike.
TEST(GroupedBiasAddGrad, MoreBlocksThanAGpuJoinsAtOnce) {
  use_device();
  if (!aclgrad_has_device_queues()) GTEST_SKIP() << "the CPU joins them one by one";
  using namespace grouped_bias_add_grad;
  const int64_t rows = block_rows(most_folded_rows(1, 4)) * (kCudaTuning.join_rows + 2);
  Tensor dy({1, rows, 1}, ACL_FLOAT), out({1, 1}, ACL_FLOAT);
  dy.fill_integers(1, 0, 3);
  const std::vector<double> values = dy.values();
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnGroupedBiasAddGradGetWorkspaceSize(dy.handle(), nullptr, out.handle(), size,
                                                       executor);
      },
      aclnnGroupedBiasAddGrad);
  ASSERT_TRUE(outcome.ok()) << outcome;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  EXPECT_EQ(out.values(), std::vector<double>{static_cast<double>(static_cast<float>(sum))});
}

TEST(GroupedBiasAddGrad, BadEndsThatNameAllRowsManyTimes) {
  for (const int64_t cols : {3, 24, 300}) {
    const int64_t rows = 300000 / cols;
    Numbers ends;
    for (int i = 0; i < 9; ++i) {
      for (const int64_t end : {rows, rows / 2, rows - 1, int64_t{3}}) ends.push_back(end);
    }
    const Problem problem(rows, cols, ends, Options());
    EXPECT_EQ(problem.run_it().synchronise, kDataError);
    problem.expect_right();
  }
}

}  // namespace
}  // namespace aclgrad::test

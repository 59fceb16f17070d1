// SPDX-License-Identifier: Apache-2.0
// GroupedBiasAddGrad of tensors that lie in any way and of narrow rows: the bits of contiguous
// ones, and no copy.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/grouped_bias_add_grad/cases.h"
#include "ops/grouped_bias_add_grad/test_problem.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

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

// Rows with gaps are read where they are, short ones by way of gathered copies: the same sums.
TEST(GroupedBiasAddGrad, RowsWithGapsGiveTheSameBitsOnEveryTarget) {
  const std::pair<int64_t, int64_t> shapes[] = {{35500, 1}, {71000, 1}, {12500, 3}, {700, 15},
                                                {2400, 16}, {3000, 24}, {900, 130}, {280, 240},
                                                {500, 300}, {40, 2079}, {40, 2100}};
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

}  // namespace
}  // namespace aclgrad::test

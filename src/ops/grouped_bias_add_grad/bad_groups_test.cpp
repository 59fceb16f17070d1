// SPDX-License-Identifier: Apache-2.0
// What GroupedBiasAddGrad reports of ends and sizes of groups that are wrong: the README's table of
// errors in data.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "ops/grouped_bias_add_grad/plan.h"
#include "ops/grouped_bias_add_grad/test_problem.h"
#include "runtime/services.h"

namespace aclgrad::test {
namespace {

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
  const int64_t rows = block_rows(1, 4) * (kCudaTuning.join_rows + 2);
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

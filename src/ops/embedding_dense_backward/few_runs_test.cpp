// SPDX-License-Identifier: Apache-2.0
// When EmbeddingDenseBackward sums long runs in the order of dy, and in how many shares.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "ops/embedding_dense_backward/few_runs.h"
#include "ops/embedding_dense_backward/test_problem.h"

namespace aclgrad::test {
namespace {

using namespace embedding_dense_backward;

// Indices that are sorted, with their long runs found.
struct Sorted {
  Sorted(const std::vector<double>& indices, int64_t cols) {
    const int64_t rows = std::ssize(indices);
    problem.rows = rows;
    problem.cols = cols;
    problem.table_rows = static_cast<int64_t>(*std::ranges::max_element(indices)) + 1;
    problem.dy = contiguous_view(ACL_FLOAT, 2, {rows, cols});
    positions.resize(indices.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::ranges::stable_sort(positions, {},
                             [&](int32_t at) { return indices[static_cast<size_t>(at)]; });
    for (const int32_t at : positions) {
      keys.push_back(static_cast<int32_t>(indices[static_cast<size_t>(at)]));
    }
    runs.resize(indices.size() / kLongRun + 1);
    sweep.problem = &problem;
    sweep.dy_rows = RowOffsets(problem.dy, 1);
    sweep.order.keys = Numbers(keys.data());
    sweep.order.positions = Numbers(positions.data());
    sweep.order.count = rows;
    sweep.long_runs = runs.data();
    find_long_runs(sweep);
  }
  Sorted(const Sorted&) = delete;
  Sorted& operator=(const Sorted&) = delete;

  embedding_dense_backward::Problem problem;
  std::vector<int32_t> keys, positions;
  std::vector<LongRun> runs;
  Sweep sweep;
};

class FewRuns : public testing::Test {
 protected:
  void TearDown() override { aclgrad_use_threads(usual_); }

 private:
  const int usual_ = aclgrad_threads();
};

// What a single stream reads faster is no mixture.
TEST_F(FewRuns, StretchesOfOneIndexAreNotMixed) {
  for (const int64_t stretch : {1, 2, 4, 8, 16, 64, 512}) {
    SCOPED_TRACE("stretches of " + std::to_string(stretch));
    std::vector<double> indices(40000);
    for (size_t i = 0; i < indices.size(); ++i) {
      indices[i] = static_cast<double>(static_cast<int64_t>(i) / stretch % 2);
    }
    EXPECT_EQ(are_mixed(Sorted(indices, 64).sweep, 8), stretch <= 4);
  }
  std::vector<double> rising = runs_of({20000, 20000}, 3);
  std::ranges::sort(rising);
  const Sorted sorted(rising, 64);
  EXPECT_FALSE(are_mixed(sorted.sweep, 8));
  EXPECT_FALSE(lie_together(sorted.sweep, 8));
  EXPECT_TRUE(lie_together(Sorted(runs_of({20000, 20000}, 3), 64).sweep, 8));
}

// Of a run's segments the last is the longest: 5 in two parts are 6144 rows and 11856, 14 in eight
// are 1, 2, 2, 2 and 1, 2, 2, 2.
TEST_F(FewRuns, ThreadsHaveAboutAsManyRows) {
  const Sorted five(runs_of({18000, 18000}, 3), 1024);
  ASSERT_EQ(five.runs[0].segments, 5);
  aclgrad_use_threads(2);
  EXPECT_FALSE(are_even(five.sweep, 2, 36000));
  EXPECT_FALSE(are_even(five.sweep, 4, 36000));
  aclgrad_use_threads(1);
  EXPECT_TRUE(are_even(five.sweep, 4, 36000));

  const Sorted fourteen(runs_of({32768, 32768}, 3), 768);
  ASSERT_EQ(fourteen.runs[0].segments, 14);
  aclgrad_use_threads(2);
  EXPECT_TRUE(are_even(fourteen.sweep, 8, 65536));
}

TEST_F(FewRuns, SharesOfWholeSegments) {
  struct Case {
    std::vector<int64_t> lengths;
    int64_t cols, element_bytes;
    int threads;
    int64_t shares;     // where prefetches are dropped
    int64_t far_ahead;  // and elsewhere
  };
  const Case cases[] = {
      {{32768, 32768}, 768, 2, 2, 8, 8},
      {{32768, 32768}, 768, 4, 2, 0, 8},  // 6 KiB of sums
      {{32768, 32768}, 768, 2, 64, 0, 0},
      {{13000, 13100}, 20, 4, 1, 4, 4},
      {{13000, 13100}, 20, 4, 3, 12, 12},
      {{6200, 6200}, 1024, 4, 1, 0, 2},
      {{4100, 4100}, 1024, 2, 1, 0, 0},  // one segment
      {std::vector<int64_t>(16, 2100), 256, 2, 1, 0, 2},
      {std::vector<int64_t>(17, 2100), 240, 2, 1, 0, 0},
      {std::vector<int64_t>(16, 4100), 256, 4, 1, 0, 0},  // 16 KiB of sums
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.lengths.size()) + " rows of " + std::to_string(c.cols) + ", " +
                 std::to_string(c.threads) + " threads");
    aclgrad_use_threads(c.threads);
    EXPECT_EQ(shares_of_few_runs(Sorted(runs_of(c.lengths, 3), c.cols).sweep, c.element_bytes),
              kDropsPrefetches ? c.shares : c.far_ahead);
  }
}

}  // namespace
}  // namespace aclgrad::test

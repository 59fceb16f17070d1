// SPDX-License-Identifier: Apache-2.0
// How narrow tables are cut: into buckets, and among owners.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/embedding_dense_backward/buckets.h"
#include "ops/embedding_dense_backward/cases.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/owners.h"
#include "support/random.h"

namespace aclgrad::test {
namespace {

using namespace embedding_dense_backward;

Problem problem_of(const Shape& shape) {
  Problem problem;
  problem.rows = shape.rows;
  problem.cols = shape.cols;
  problem.table_rows = shape.table_rows;
  problem.dy = contiguous_view(ACL_FLOAT, 2, {shape.rows, shape.cols});
  problem.indices = contiguous_view(ACL_INT64, 1, {shape.rows});
  return problem;
}

// How many bits of a table row's number are its place in a bucket; -1: it takes none.
int bucket_bits(const Shape& shape) {
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(shape.table_rows)));
  const Problem problem = problem_of(shape);
  if (!takes_buckets(problem, bits)) return -1;
  Plan plan;
  cut_buckets(problem, bits, plan);
  return plan.bucket_bits;
}

TEST(EmbeddingDenseBackward, WhichTablesTakeBuckets) {
  struct Case {
    Shape shape;
    int bits;
  };
  const Case cases[] = {{{256, 9, 1}, -1},
                        {{257, 9, 1}, 2},
                        {{65535, 9, 1}, 0},
                        {{65536, 1, 1}, 0},
                        {{65537, 2, 1}, 0},
                        {{70001, 63, 1}, 0},
                        {{70002, 64, 1}, 1},
                        {{80001, 5000, 1}, 7},
                        {{65536, 524287, 1}, 13},
                        {{65537, 524288, 1}, 14},
                        {{65537, 1048592, 1}, 15},
                        {{65537, 1048609, 1}, -1},
                        {{2100001, 3000, 1}, 1},
                        {{1100001, 5000000, 1}, 13},
                        {{70000, 9, 2}, 0},
                        {{70000, 5000, 3}, 7},
                        {{1000000, 1000000, 4}, 11},
                        {{1000000, 1000000, 5}, -1},
                        {{4000000, 8388607, 2}, 13},
                        {{4000000, 33554431, 2}, 15},
                        {{4000000, 33554432, 2}, -1},
                        {{4000000, 4194303, 4}, 13},
                        {{4000000, 16777215, 4}, 15},
                        {{4000000, 16777216, 4}, -1},
                        {{4000000, INT64_MAX, 2}, -1}};
  for (const auto& [shape, bits] : cases) EXPECT_EQ(bucket_bits(shape), bits);
}

// Every key has a bucket, a block of the sort its share for each of them, and the workspace a
// bound.
TEST(EmbeddingDenseBackward, BucketsOfEveryNumberOfIndices) {
  for (const int64_t cols : {1, 2, 3, 4}) {
    for (int64_t rows = kStackIndices + 1; rows < INT32_MAX; rows = rows * 5 / 4 + 1) {
      for (int bits = 1; bits <= 28; ++bits) {
        const Problem problem = problem_of({rows, (int64_t{1} << bits) - 1, cols});
        if (!takes_buckets(problem, bits)) continue;
        SCOPED_TRACE(testing::Message()
                     << rows << " indices, " << cols << " columns, keys of " << bits << " bits");
        Plan plan;
        cut_buckets(problem, bits, plan);
        EXPECT_EQ(plan.digit_bits + plan.bucket_bits, bits);
        EXPECT_LE(plan.digit_bits, most_digit_bits(cols));
        EXPECT_LE(plan.bucket_bits, kMostBucketBits);
        EXPECT_GE(plan.sort_block >> plan.digit_bits, kLeastBucketShare);
        EXPECT_LE(ceil_div(rows, plan.sort_block), kMaxSortBlocks);
        EXPECT_EQ(ceil_div(rows, plan.sort_block), plan.sort_blocks);
        EXPECT_LT(problem.table_rows >> plan.bucket_bits, int64_t{1} << plan.digit_bits);
      }
      const Problem usual = problem_of({rows, rows, cols});
      EXPECT_TRUE(takes_buckets(usual, 12) || rows < kManyIndices);
      EXPECT_FALSE(takes_buckets(usual, kMostBucketBits + most_digit_bits(cols) + 1));
    }
  }
}

// Keys of other indices would need room of their own beside the wider records.
TEST(EmbeddingDenseBackward, OnlyOneColumnHasBucketsOfAllIndices) {
  for (const int64_t cols : {1, 2}) {
    Problem problem = problem_of({100000, 5000, cols});
    EXPECT_TRUE(takes_buckets(problem, 13));
    problem.indices.strides[0] = 2;
    EXPECT_EQ(takes_buckets(problem, 13), cols == 1);
    problem.indices = contiguous_view(ACL_INT16, 1, {problem.rows});
    EXPECT_EQ(takes_buckets(problem, 13), cols == 1);
  }
}

TEST(EmbeddingDenseBackward, HowManyOwnersTablesHave) {
  struct Case {
    Shape shape;
    int64_t threads, owners;
  };
  const bool small = has_small_l2();
  const Case cases[] = {{{256, 9, 1}, 2, 0},
                        {{257, 9, 1}, 2, 1},
                        {{257, 258, 1}, 2, 1},
                        {{257, 1000, 1}, 2, 0},
                        {{16383, 9, 1}, 2, 1},
                        {{16384, 9, 1}, 2, 2},
                        {{16384, 9, 1}, 8, 2},
                        {{65535, 9, 1}, 64, 7},
                        {{65536, 9, 1}, 9, 0},
                        {{65536, 9, 1}, 8, 8},
                        {{1000000, 1, 1}, 8, 1},
                        {{1000000, 3, 1}, 8, 3},
                        {{1000000, 9, 5}, 8, small ? 8 : 0},
                        {{1000000, 9, 5}, 6, 6},
                        {{1000000, 9, 8}, 4, 4},
                        {{1000000, 9, 8}, 5, small ? 5 : 0},
                        {{1000000, 9, 16}, 2, 2},
                        {{1000000, 9, 17}, 2, small ? 2 : 0},
                        {{1000000, 9, 32}, 1, 1},
                        {{1000000, 9, 32}, 3, 0},
                        {{1000000, 9, 33}, 1, 0},
                        {{1000000, 3, 4}, 8, 3},
                        {{1000000, 161318, 3}, 3, 3},
                        {{1000000, 161319, 3}, 3, 0},
                        {{1000000, 3, 0}, 8, 0},
                        {{9000, 2429, 4}, 1, 1},
                        {{9000, 2430, 4}, 1, 0},
                        {{1000000, 262144, 1}, 3, 3},
                        {{1000000, 262145, 1}, 3, 0},
                        {{INT64_C(1) << 31, 9, 1}, 3, 0}};
  for (const auto& [shape, threads, owners] : cases) {
    EXPECT_EQ(owners_of(problem_of(shape), threads), owners)
        << shape.rows << "x" << shape.table_rows << ", " << threads << " threads";
  }
}

// Several owners would all fetch what lies between the rows.
TEST(EmbeddingDenseBackward, RowsWithGapsHaveOneOwnerOrNone) {
  Problem problem = problem_of({100000, 9, 1});
  problem.dy.strides[0] = 2;
  EXPECT_EQ(owners_of(problem, 2), 0);
  EXPECT_EQ(owners_of(problem, 1), 1);
  problem.dy = contiguous_view(ACL_FLOAT, 3, {50, 2000, 1});
  EXPECT_EQ(owners_of(problem, 2), 2);
  std::swap(problem.dy.strides[0], problem.dy.strides[1]);
  EXPECT_EQ(owners_of(problem, 2), 0);
}

// Every table row has one owner, and owners have about as much to do, however the indices lie.
TEST(EmbeddingDenseBackward, OwnersShareTheTable) {
  Random random(3);
  constexpr int64_t kTableRows = 5000;
  std::vector<int64_t> even(100000), head(even.size()), one(even.size(), 4321);
  for (size_t i = 0; i < even.size(); ++i) {
    even[i] = random.integer(0, kTableRows - 1);
    head[i] = random.integer(0, 1) == 0 ? random.integer(0, 40) : even[i];
  }
  one[77] = 5;
  for (const auto* indices : {&even, &head, &one}) {
    for (int64_t owners = 1; owners <= kMostOwners; ++owners) {
      Problem problem = problem_of({std::ssize(*indices), kTableRows, 1});
      problem.indices = contiguous_view(ACL_INT64, 1, {problem.rows});
      Plan plan;
      plan.owners = owners;
      Addresses at;
      at.indices = indices->data();
      const OwnedRows first = share_table({{problem, plan, at, false, false}});
      std::vector<int64_t> work(static_cast<size_t>(owners));
      EXPECT_EQ(first[0], 0);
      EXPECT_EQ(first[static_cast<size_t>(owners)], kTableRows);
      const auto owner_of = [&](int64_t row) {
        const auto end = first.begin() + owners;
        return static_cast<size_t>(std::upper_bound(first.begin(), end, row) - first.begin() - 1);
      };
      for (int64_t row = 0; row < kTableRows; ++row) ++work.at(owner_of(row));
      for (const int64_t index : *indices) ++work.at(owner_of(index));
      const int64_t all = std::accumulate(work.begin(), work.end(), int64_t{0});
      EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
      if (indices == &one) continue;  // one owner has nearly all
      EXPECT_LT(*std::ranges::max_element(work) * owners, all * 3 / 2) << owners << " owners";
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

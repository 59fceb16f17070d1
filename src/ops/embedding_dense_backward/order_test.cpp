// SPDX-License-Identifier: Apache-2.0
// How EmbeddingDenseBackward sorts its indices and deals out its work, by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/sweep.h"
#include "ops/embedding_dense_backward/test_problem.h"
#include "support/random.h"

namespace aclgrad::test {
namespace {

// The order of some indices over blocks of 16384: how many count, the first bad one, and keys and
// positions by turns.
template <class Key>
std::vector<int64_t> order_of(const std::vector<int64_t>& indices, int64_t table_rows,
                              int64_t padding) {
  using namespace embedding_dense_backward;
  const auto rows = static_cast<int64_t>(indices.size());
  embedding_dense_backward::Problem p;
  p.indices = contiguous_view(ACL_INT64, 1, {rows});
  p.rows = rows;
  p.table_rows = table_rows;
  p.padding = padding;
  Plan plan;
  plan.digit_bits = 7;
  plan.passes = 2;
  plan.sort_block = kMostSortBlock;
  plan.sort_blocks = ceil_div(rows, plan.sort_block);
  std::vector<Key> buffers[2] = {std::vector<Key>(2 * indices.size()),
                                 std::vector<Key>(2 * indices.size())};
  std::vector<Key> histograms(static_cast<size_t>(plan.sort_blocks) << plan.digit_bits);
  Addresses at;
  at.indices = indices.data();
  at.buffers = {buffers[0].data(), buffers[1].data()};
  at.histograms = histograms.data();
  const Order order = Sort<Key>(p, plan, at).order();
  std::vector<int64_t> out = {order.count, order.bad.position, order.bad.integer};
  for (int64_t i = 0; i < order.count; ++i) {
    out.push_back(order.keys[i]);
    out.push_back(order.positions[i]);
  }
  return out;
}

// Units of long runs and blocks of the sweep, whatever their numbers: each is done once, and no
// part of a thread's has a block before a unit.
TEST(EmbeddingDenseBackward, EveryThreadBeginsWithUnits) {
  using embedding_dense_backward::work_of;
  const int usual = aclgrad_threads();
  for (const int threads : {1, 2, 3, 7, 64, 200}) {
    aclgrad_use_threads(threads);
    for (const int64_t units : {0, 1, 2, 5, 64, 131}) {
      for (const int64_t blocks : {1, 2, 3, 100, 129}) {
        std::vector<int> unit_times(static_cast<size_t>(units)), times(static_cast<size_t>(blocks));
        const int64_t all = units + blocks;
        const int64_t runs = run_count(all, threads);
        for (int64_t run = 0; run < runs; ++run) {
          bool units_done = false;
          for (int64_t i = run_begin(all, runs, run); i < run_begin(all, runs, run + 1); ++i) {
            const auto work = work_of(i, units, blocks);
            ++(work.is_unit ? unit_times : times).at(static_cast<size_t>(work.index));
            EXPECT_FALSE(work.is_unit && units_done);
            units_done = !work.is_unit;
          }
        }
        EXPECT_EQ(std::count(unit_times.begin(), unit_times.end(), 1), units);
        EXPECT_EQ(std::count(times.begin(), times.end(), 1), blocks);
      }
    }
  }
  aclgrad_use_threads(usual);
}

// Numbers of 64 bits serve problems too large for a test: their sort is shown to give what that of
// 32 bits gives.
TEST(EmbeddingDenseBackward, SortOf64BitNumbers) {
  constexpr int64_t kTableRows = 5000;
  std::vector<int64_t> indices(40000);
  Random random(3);
  for (int64_t& index : indices) index = random.integer(-1, kTableRows);
  const std::vector<int64_t> narrow = order_of<int32_t>(indices, kTableRows, 7);
  EXPECT_GT(narrow[0], 36000);
  EXPECT_EQ(order_of<int64_t>(indices, kTableRows, 7), narrow);
}

// What order_of() is to return for indices that all are good and no padding.
std::vector<int64_t> stable_order_of(const std::vector<int64_t>& indices) {
  std::vector<int64_t> positions(indices.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::stable_sort(positions.begin(), positions.end(), [&](int64_t a, int64_t b) {
    return indices[static_cast<size_t>(a)] < indices[static_cast<size_t>(b)];
  });
  std::vector<int64_t> out = {static_cast<int64_t>(indices.size()), -1, 0};
  for (const int64_t position : positions) {
    out.push_back(indices[static_cast<size_t>(position)]);
    out.push_back(position);
  }
  return out;
}

// Indices that rise, and those that do but for one, within a block of the sort and where two meet.
TEST(EmbeddingDenseBackward, OrderOfIndicesThatRise) {
  constexpr int64_t kTableRows = 5000, kBlock = embedding_dense_backward::kMostSortBlock;
  std::vector<int64_t> rising(40000);
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<int64_t>(i) / 9;
  for (const int64_t changed :
       {int64_t{-1}, int64_t{0}, int64_t{100}, kBlock - 1, kBlock, 2 * kBlock, int64_t{39999}}) {
    SCOPED_TRACE(changed);
    std::vector<int64_t> indices = rising;
    if (changed >= 0) {
      int64_t& index = indices[static_cast<size_t>(changed)];
      index = index > 2500 ? 1 : kTableRows - 1;
    }
    const std::vector<int64_t> expected = stable_order_of(indices);
    EXPECT_EQ(order_of<int32_t>(indices, kTableRows, -1), expected);
    EXPECT_EQ(order_of<int64_t>(indices, kTableRows, -1), expected);
  }
}

// Up to sixteen are ordered by counting, seventeen by their digits.
TEST(EmbeddingDenseBackward, OrderOfFewIndices) {
  Random random(5);
  for (int64_t count = 1; count <= 17; ++count) {
    for (const int64_t table_rows : {1, 3, 16000}) {
      std::vector<int64_t> indices(static_cast<size_t>(count));
      for (int64_t& index : indices) index = random.integer(0, table_rows - 1);
      SCOPED_TRACE(testing::Message() << count << " of " << table_rows);
      const std::vector<int64_t> expected = stable_order_of(indices);
      EXPECT_EQ(order_of<int32_t>(indices, table_rows, -1), expected);
      EXPECT_EQ(order_of<int64_t>(indices, table_rows, -1), expected);
    }
  }
  const std::vector<int64_t> found = {3, 4, 99, 0, 5, 2, 1, 2, 3};
  EXPECT_EQ(order_of<int32_t>({7, 2, 7, 2, 99, 0}, 9, 7), found) << "two of padding, a bad one";
}

}  // namespace
}  // namespace aclgrad::test

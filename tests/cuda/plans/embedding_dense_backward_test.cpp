// SPDX-License-Identifier: Apache-2.0
// Of the launch of EmbeddingDenseBackward on a GPU: every access of a row is one thread's, whatever
// the kernel, every table row is one block's, and all that is kept has room.
#include <algorithm>

#include "cuda/plans/covered.h"
#include "ops/embedding_dense_backward/cases.h"
#include "ops/embedding_dense_backward/plan.h"

namespace aclgrad::test {
namespace {

using namespace embedding_dense_backward;

constexpr int64_t kFew = 2000000;

embedding_dense_backward::Problem problem_of(const Shape& shape, aclDataType out) {
  embedding_dense_backward::Problem problem;
  problem.rows = shape.rows;
  problem.table_rows = shape.table_rows;
  problem.cols = shape.cols;
  problem.dw.dtype = out;
  return problem;
}

std::string name_of(const Shape& shape, int columns) {
  return std::to_string(shape.rows) + "x" + std::to_string(shape.table_rows) + "x" +
         std::to_string(shape.cols) + " by " + std::to_string(columns);
}

void expect_columns(const CudaPlan& plan, const std::string& name) {
  Covered swept(plan.accesses), tiled(plan.accesses);
  const int64_t piece = int64_t{kCudaTuning.accesses} * plan.row_threads;
  for (int64_t panel = 0; panel < plan.panels; ++panel) {
    const int64_t begin = panel * plan.panel;
    const int64_t end = std::min(begin + plan.panel, plan.accesses);
    ASSERT_LT(begin, end) << name;
    for (int64_t first = begin; first < end; first += piece) {
      for (int64_t i = first; i < std::min(first + piece, end); ++i) swept.take(i);
    }
  }
  for (int64_t tile = 0; tile < plan.tiles; ++tile) {
    for (int64_t i = 0; i < plan.chain_threads; ++i) {
      const int64_t access = tile * plan.chain_threads + i;
      if (access < plan.accesses) tiled.take(access);
    }
  }
  swept.expect_each_once(name + " in the sweep");
  tiled.expect_each_once(name + " in long runs");
}

void expect_plan(const Shape& shape, aclDataType out, int columns) {
  const std::string name = name_of(shape, columns);
  const CudaPlan plan = plan_cuda(problem_of(shape, out), columns);
  expect_launch(plan.read, shape.rows, kCudaTuning.read_threads, name);
  expect_launch(plan.table, plan.run_blocks() + plan.sweep_blocks(), 1, name);
  expect_launch(plan.fold, plan.slots * ceil_div(shape.cols, kCudaTuning.fold_threads), 1, name);
  EXPECT_EQ(kCudaTuning.threads % plan.row_threads, 0) << name;
  EXPECT_EQ(kCudaTuning.threads % plan.chain_threads, 0) << name;
  EXPECT_LE(plan.chain_threads * columns, kCudaTuning.threads) << name;
  EXPECT_LE(plan.unit_items, kCudaTuning.most_items) << name;
  // All items of the line, and all entries.
  EXPECT_GE(plan.units, ceil_div(shape.table_rows + shape.rows + 1, plan.unit_items)) << name;
  if (shape.rows > kCudaTuning.long_run) {
    EXPECT_GE(plan.run_units, ceil_div(shape.rows, kCudaTuning.run_unit)) << name;
  }
  // Partial sums lie in a buffer that the sort has left: 8 bytes an index.
  EXPECT_LE(plan.slots * shape.cols, shape.rows) << name;
  EXPECT_GE(int64_t{1} << plan.key_bits, bad_key(shape.table_rows) + 1) << name;
  if (plan.accesses <= kFew) expect_columns(plan, name);
}

// The table rows of the blocks, for sorted keys.
void expect_rows(const std::vector<int64_t>& keys, int64_t table_rows, int64_t cols) {
  const Shape shape{static_cast<int64_t>(keys.size()), table_rows, cols};
  const CudaPlan plan = plan_cuda(problem_of(shape, ACL_FLOAT), 1);
  const auto entries_before = [&](int64_t item) {
    int64_t entries = 0;
    while (entries < shape.rows && is_before(entries, keys[static_cast<size_t>(entries)], item)) {
      ++entries;
    }
    return entries;
  };
  Covered rows(table_rows);
  for (int64_t unit = 0; unit < plan.units; ++unit) {
    const int64_t item = unit * plan.unit_items;
    const int64_t first_entry = entries_before(item);
    const int64_t end_entry = entries_before(item + plan.unit_items);
    const int64_t first = row_at(item, first_entry, table_rows);
    const int64_t end = row_at(item + plan.unit_items, end_entry, table_rows);
    for (int64_t row = first; row < end; ++row) {
      rows.take(row);
      const auto run = std::equal_range(keys.begin(), keys.end(), row);
      // The block sees the ends of its rows' runs, and the beginnings of all but the first one.
      EXPECT_LE(run.second - keys.begin(), end_entry);
      if (row > first && run.first != run.second) {
        EXPECT_GE(run.first - keys.begin(), first_entry);
      }
    }
  }
  rows.expect_each_once(name_of(shape, 1));
}

TEST(EmbeddingDenseBackwardPlan, EveryAccessOnce) {
  for (const aclDataType out : {ACL_FLOAT, ACL_BF16}) {
    for (const Shape& shape : test_shapes()) {
      for (const int columns : {1, 4, 8}) {
        if (shape.cols % columns == 0) expect_plan(shape, out, columns);
      }
    }
    for (const std::string& shape : bench_shapes()) {
      const auto [rows, table_rows, cols] = numbers_of<3>(shape);
      for (const int columns : {1, 4, 8}) expect_plan({rows, table_rows, cols}, out, columns);
    }
  }
}

TEST(EmbeddingDenseBackwardPlan, EveryTableRowOnce) {
  for (const int64_t table_rows : {1, 7, 300, 5000}) {
    for (const int64_t cols : {1, 64, 5000}) {
      for (const int64_t rows : {0, 1, 50, 3000}) {
        // All kinds: any rows, one row, the last row and what does not count.
        std::vector<int64_t> any, same, last;
        for (int64_t i = 0; i < rows; ++i) {
          any.push_back(i * 7919 % (table_rows + 2));
          same.push_back(table_rows / 2);
          last.push_back(table_rows - 1 + i % 3);
        }
        for (std::vector<int64_t>* keys : {&any, &same, &last}) {
          std::sort(keys->begin(), keys->end());
          expect_rows(*keys, table_rows, cols);
        }
      }
    }
  }
}

TEST(EmbeddingDenseBackwardPlan, MoreThanTwoToTheThirtyOne) {
  constexpr int64_t kMany = (int64_t{1} << 31) + 5;
  for (const int columns : {1, 8}) {
    expect_plan({kMany, 1000, 8}, ACL_FLOAT, columns);
    expect_plan({1000, kMany, 8}, ACL_BF16, columns);
    expect_plan({3, 5, kMany / 8 * 8}, ACL_FLOAT, columns);
    expect_plan({int64_t{1} << 40, int64_t{1} << 40, 8}, ACL_FLOAT, columns);
  }
}

}  // namespace
}  // namespace aclgrad::test

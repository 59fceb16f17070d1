// SPDX-License-Identifier: Apache-2.0
// EmbeddingDenseBackward of long runs, many threads, large tables and indices that rise.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/embedding_dense_backward/test_problem.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

// Where there are many threads long runs are cut in narrower tiles of columns.
TEST(EmbeddingDenseBackward, TheSameBitsOnManyThreads) {
  for (const aclDataType dtype : kFloats) {
    for (const Shape& shape : {Shape{4000, 2, 769}, Shape{6000, 20, 1500}, Shape{9000, 1, 130}}) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " " + std::to_string(shape.cols));
      Problem problem(shape, all_of(dtype));
      problem.run_and_check();
      problem.show_order();
      ASSERT_TRUE(problem.run_it().ok());
      const KeptBits kept({&problem.out});
      for_each_thread_count({1, 4, 16, 64}, [&](int threads) {
        kept.poison();
        ASSERT_TRUE(problem.run_it().ok());
        kept.expect(std::to_string(threads) + " threads");
      });
    }
  }
}

// Gradient rows of a few long runs are read in their own order where each thread has segments
// of every run: on 64 threads run by run. Runs that are alike and not, between short ones,
// with gradient rows that are left out, one behind the other, in stretches, beside many others, as
// many as there may be and one more; rows shorter than a vector, as long as they may be, and with
// gaps.
TEST(EmbeddingDenseBackward, AFewLongRunsHaveTheSameBitsInTheOrderOfTheGradientRows) {
  enum class Order { kMixed, kStretches, kRising };
  struct Case {
    std::vector<int64_t> lengths;
    int64_t cols;
    uint64_t padding = kNoPadding;
    Order order = Order::kMixed;
    Arrangement grad = Arrangement::kContiguous;
  };
  const Case cases[] = {
      {{13000, 13100}, 20},
      {{13000, 13100}, 8},
      {{13000, 13100}, 20, kNoPadding, Order::kMixed, Arrangement::kRowPadded},
      {{12288, 0, 21000, 12290, 3, 1200}, 33, 5},
      {{4100, 9000, 4200, 2500}, 65},
      {{4100, 4200, 2100}, 256},
      {std::vector<int64_t>(5, 4100), 256},
      {std::vector<int64_t>(8, 4100), 256},
      {{6200, 6200}, 1024},
      {std::vector<int64_t>(16, 2100), 256},
      {{4100, 5119, 4101}, 16, kNoPadding, Order::kRising},
      {{4100, 5119, 4101}, 16, kNoPadding, Order::kStretches},
      {std::vector<int64_t>(8, 4100), 32},
      {std::vector<int64_t>(16, 4100), 64},
      {std::vector<int64_t>(17, 4100), 64},
  };
  for (const aclDataType dtype : kFloats) {
    for (const Case& c : cases) {
      // FP16 differs from BF16 only in how a row is loaded.
      if (dtype == ACL_FLOAT16 && c.lengths.size() * static_cast<size_t>(c.cols) > 300) continue;
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", " + std::to_string(c.lengths.size()) +
                   " rows of " + std::to_string(c.cols) + " columns");
      std::vector<double> indices = runs_of(c.lengths, 3);
      if (c.order == Order::kRising) std::ranges::sort(indices);
      if (c.order == Order::kStretches) {
        for (size_t i = 0; i < indices.size(); ++i) {
          indices[i] = static_cast<double>(i / 512 % c.lengths.size());
        }
      }
      Options options = all_of(dtype);
      options.padding = c.padding;
      options.grad_in = c.grad;
      Problem problem({std::ssize(indices), std::ssize(c.lengths), c.cols}, options);
      problem.indices.fill(indices);
      problem.run_and_check();
      problem.show_order();
      ASSERT_TRUE(problem.run_it().ok());
      const KeptBits kept({&problem.out});
      for_each_thread_count({1, 2, 3, 64}, [&](int threads) {
        kept.poison();
        ASSERT_TRUE(problem.run_it().ok());
        kept.expect(std::to_string(threads) + " threads");
      });
      if (c.cols == 20) {
        expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.out});
      }
    }
  }
}

// Outputs beyond the cache are written past it; with a table of 5 million rows the sort makes three
// passes.
TEST(EmbeddingDenseBackward, LargeTables) {
  struct Large {
    Shape shape;
    aclDataType grad, out;
  };
  // Rows of whole lines; long, short and shortest rows that share lines, most and few of them
  // zeros.
  const Large all[] = {
      {{3000, 40000, 208}, ACL_FLOAT, ACL_FLOAT},  {{3000, 40000, 210}, ACL_BF16, ACL_BF16},
      {{30000, 95000, 50}, ACL_FLOAT, ACL_FLOAT},  {{200000, 140000, 65}, ACL_FLOAT16, ACL_FLOAT16},
      {{100000, 160000, 28}, ACL_BF16, ACL_FLOAT}, {{500, 5000000, 1}, ACL_FLOAT, ACL_FLOAT16}};
  for (const auto& [shape, grad, out] : all) {
    SCOPED_TRACE(std::to_string(shape.cols) + " columns");
    Options options = all_of(grad);
    options.out = out;
    Problem(shape, options).run_and_check();
  }
}

TEST(EmbeddingDenseBackward, AMillionTermsAndConstantColumnsHoldTheTolerance) {
  for (const bool scale : {false, true}) {
    for (const int64_t table_rows : {1, 100}) {
      Options options;
      options.scale = scale;
      Problem problem({1000000, table_rows, 2}, options);
      problem.run_and_check();
      problem.grad.fill_constant(0.1);
      problem.run_and_check();
    }
  }
}

// Runs whose gradient rows follow each other, which are found and added without a sort, have the
// bits of those that were sorted: a padding index in front, which counts last, makes them so.
TEST(EmbeddingDenseBackward, RisingIndicesHaveTheBitsOfSortedOnes) {
  std::vector<double> rising;
  for (const int64_t length : {400, 3, 2500, 0, 320, 17, 300, 47}) {
    const auto row = static_cast<double>(rising.empty() ? 0 : rising.back() + 1);
    rising.insert(rising.end(), static_cast<size_t>(length), row);
  }
  const auto count = static_cast<int64_t>(rising.size());
  for (const aclDataType dtype : kFloats) {
    for (const int64_t cols : {3, 17, 130, 256, 257, 513, 1000, 1024}) {
      SCOPED_TRACE(cols);
      Options options = all_of(dtype);
      options.padding = 7;
      Problem plain({count, cols}, {count}, 9, options);
      plain.indices.fill(rising);
      plain.show_order();
      ASSERT_TRUE(plain.run_it().ok());
      expect_same_bits_everywhere([&] { return plain.run_it(); }, {&plain.out});
      Problem sorted({count + 1, cols}, {count + 1}, 9, options);
      std::vector<double> indices = rising, grad = plain.grad.values();
      indices.insert(indices.begin(), 7);
      grad.insert(grad.begin(), static_cast<size_t>(cols), 1.0);
      sorted.indices.fill(indices);
      sorted.grad.fill(grad);
      ASSERT_TRUE(sorted.run_it().ok());
      EXPECT_EQ(plain.out.values(), sorted.out.values());
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

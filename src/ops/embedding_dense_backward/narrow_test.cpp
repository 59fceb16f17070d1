// SPDX-License-Identifier: Apache-2.0
// Narrow tables, which are summed by owners of their parts or, of few columns, by buckets, against
// the formula and against wider tables, which are sorted.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "ops/embedding_dense_backward/test_problem.h"
#include "support/bad_indices.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

// The bits of the first columns of a table.
std::vector<uint8_t> first_columns(const Tensor& table, int64_t cols) {
  const std::vector<uint8_t> all = table.bits();
  const auto size = static_cast<std::ptrdiff_t>(dtype_size(table.dtype()));
  std::vector<uint8_t> out;
  for (auto at = all.begin(); at != all.end(); at += table.dims()[1] * size) {
    out.insert(out.end(), at, at + cols * size);
  }
  return out;
}

// The same gradient rows, with more columns.
void expect_bits_of_wide(Problem& narrow) {
  const int64_t rows = narrow.grad.dims()[0];
  const int64_t cols = narrow.grad.dims().back();
  // Tables of 33 columns are sorted; long ones of five, too, and with many rows they are none of
  // one.
  const bool big = rows > 1000000 || narrow.num_weights > 70000;
  const int64_t wide_cols = big ? 5 : 33;
  Options options;
  options.grad = narrow.options.grad;
  options.out = narrow.options.out;
  options.padding = narrow.options.padding;
  options.scale = narrow.options.scale;
  Problem wide({rows, static_cast<int64_t>(narrow.num_weights), wide_cols}, options);
  std::vector<double> values;
  int64_t column = 0;
  for (const double value : narrow.grad.values()) {
    values.push_back(value);
    if (++column % cols == 0)
      values.insert(values.end(), static_cast<size_t>(wide_cols - cols), 1.0);
  }
  wide.grad.fill(values);
  wide.indices.fill(narrow.indices.values());
  ASSERT_TRUE(narrow.run_it().ok());
  ASSERT_TRUE(wide.run_it().ok());
  expect_same_bits("the first columns", narrow.out.bits(), first_columns(wide.out, cols));
}

void check(Problem& problem) {
  problem.run_and_check();
  expect_bits_of_wide(problem);
  if (problem.grad.dims()[0] > 200000 || problem.num_weights > 100000) return;  // seconds
  problem.show_order();
  expect_bits_of_wide(problem);
  expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.out});
}

struct Way {
  int threads;
  int64_t cols;
};

// With one owner of the whole table, with several, and with more threads than there are owners: by
// buckets where there are up to four columns, sorted where there are more.
class NarrowTable : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { aclgrad_use_threads(GetParam().threads); }
  void TearDown() override { aclgrad_use_threads(usual_); }
  // This many columns.
  static Shape narrow(int64_t rows, int64_t table_rows) {
    return {rows, table_rows, GetParam().cols};
  }

 private:
  const int usual_ = aclgrad_threads();
};
INSTANTIATE_TEST_SUITE_P(EmbeddingDenseBackward, NarrowTable,
                         testing::Values(Way{1, 1}, Way{2, 1}, Way{9, 1}, Way{1, 2}, Way{9, 2},
                                         Way{8, 4}, Way{2, 16}, Way{1, 29}),
                         [](const auto& with) {
                           return std::to_string(with.param.threads) + "Threads" +
                                  std::to_string(with.param.cols) + "Columns";
                         });

// Buckets of one table row, of two, of some, of 16384, and a table that is too long for them; as
// many as there can be; an output that passes the caches. For owners one table row each, few, many,
// parts of a vector, and a table that is too long; few indices.
TEST_P(NarrowTable, HasTheBitsOfWide) {
  const Shape shapes[] = {narrow(65535, 9),       narrow(65536, 1),         narrow(65537, 2),
                          narrow(70001, 63),      narrow(70002, 64),        narrow(80001, 5000),
                          narrow(65536, 524288),  narrow(65537, 2097152),   narrow(2100001, 3000),
                          narrow(100001, 65536),  narrow(1100001, 5000000), narrow(270001, 262144),
                          narrow(270001, 262145), narrow(257, 1),           narrow(257, 257),
                          narrow(300, 301),       narrow(1031, 12),         narrow(16400, 13),
                          narrow(40000, 3),       narrow(66000, 66000)};
  size_t next = 0;
  for (const Shape& shape : shapes) {
    Options options = all_of(kFloats[next % std::size(kFloats)]);
    options.indices = next++ % 2 == 0 ? ACL_INT64 : ACL_INT32;
    if (shape.cols > 2 && shape.table_rows > 1000000) continue;  // seconds
    if (shape.cols > 4 && shape.rows > 1000000) continue;        // of buckets, and gigabytes
    if (shape.cols > 4 && shape.table_rows > 100000) continue;   // sorted, and gigabytes
    if (shape.table_rows == 5000000) options = all_of(ACL_FLOAT);
    options.scale = shape.rows % 2 == 1;
    SCOPED_TRACE(std::string(dtype_short_name(options.grad)) + "/" + std::to_string(shape.rows) +
                 "x" + std::to_string(shape.table_rows));
    Problem problem(shape, options);
    check(problem);
  }
}

// Keys of no table row have the last bucket to themselves (64 of 70002), or not.
TEST_P(NarrowTable, PaddingAndBadIndices) {
  for (const Shape& shape : {narrow(70002, 64), narrow(70002, 65), narrow(65536, 5000)}) {
    SCOPED_TRACE(shape.table_rows);
    Options options;
    options.padding = 5;
    options.scale = true;
    Problem problem(shape, options);
    std::vector<double> indices = problem.indices.values();
    for (size_t i = 0; i < indices.size(); i += 3) indices[i] = 5;
    problem.indices.fill(indices);
    check(problem);
    for (const double bad : {-1.0, 4294967296.0 + 3, -4294967296.0 + 3, 1099511627776.0}) {
      std::vector<double> with_bad = indices;
      with_bad[65535] = with_bad[4999] = bad;  // the last ones of a vector, and within one
      problem.indices.fill(with_bad);
      const auto text = std::to_string(static_cast<int64_t>(bad));
      expect_bad_index(problem, "aclnnEmbeddingDenseBackward", problem.num_weights, text, "4999");
    }
    indices[40000] = static_cast<double>(shape.table_rows);
    indices[300] = indices[69] = -1;
    problem.indices.fill(indices);
    expect_bad_index(problem, "aclnnEmbeddingDenseBackward", problem.num_weights, "-1", "69");
  }
}

// Around the chains and the segments, in buckets of one table row and of several.
TEST_P(NarrowTable, RunsOfEveryLength) {
  std::vector<int64_t> lengths = {1,    2,    15,   0,    16,   17,    31,    32,   33,   0,
                                  1007, 1008, 1023, 1024, 1025, 1040,  2047,  2048, 2049, 2064,
                                  3071, 3072, 3073, 4100, 9999, 20480, 30000, 1,    0};
  for (const int64_t table_rows : {std::ssize(lengths), int64_t{5000}}) {
    lengths.resize(static_cast<size_t>(table_rows));
    for (const bool scale : {false, true}) {
      for (const uint64_t padding : {kNoPadding, uint64_t{25}}) {
        SCOPED_TRACE(testing::Message()
                     << table_rows << " rows, scale " << scale << ", padding " << padding);
        const std::vector<double> indices = runs_of(lengths, 5);
        Options options = all_of(table_rows == 5000 ? ACL_BF16 : ACL_FLOAT);
        options.scale = scale;
        options.padding = padding;
        Problem problem(narrow(std::ssize(indices), table_rows), options);
        problem.indices.fill(indices);
        check(problem);
      }
    }
  }
}

TEST_P(NarrowTable, OfEveryDtypeAndView) {
  const Shape shape = narrow(66000, GetParam().cols > 8 ? 1000 : 3000);
  for (const aclDataType grad : kFloats) {
    for (const aclDataType out : kFloats) {
      Options options;
      options.grad = grad;
      options.out = out;
      options.indices = ACL_INT32;
      Problem problem(shape, options);
      problem.run_and_check();
      expect_bits_of_wide(problem);
    }
  }
  Problem plain({40, 1650, shape.cols}, {40, 1650}, shape.table_rows, Options());
  plain.run_and_check();
  const auto expect_plain = [&](const Options& options) {
    Problem view({40, 1650, shape.cols}, {40, 1650}, shape.table_rows, options);
    view.run_and_check();
    expect_same_bits("view", view.out.bits(), plain.out.bits());
  };
  for (const Arrangement arrangement : kInputArrangements) {
    if (arrangement == Arrangement::kBroadcast) continue;
    SCOPED_TRACE(arrangement_name(arrangement));
    Options options;
    options.grad_in = arrangement;
    expect_plain(options);
    options.indices_in = arrangement;
    expect_plain(options);
  }
  for (const Arrangement arrangement : kOutputArrangements) {
    SCOPED_TRACE(arrangement_name(arrangement));
    Options options;
    options.out_in = arrangement;
    expect_plain(options);
  }
}

TEST_P(NarrowTable, NanInfAndIndicesThatRise) {
  for (const int64_t table_rows : {4, 9000}) {
    Problem problem(narrow(65536, table_rows), all_of(ACL_FLOAT));
    std::vector<double> values = problem.grad.values();
    values[7] = kNan;
    values[100] = kInf;
    values[65000] = -kInf;
    problem.grad.fill(values);
    problem.run_and_check();
    expect_bits_of_wide(problem);
    std::vector<double> indices = problem.indices.values();
    std::ranges::sort(indices);
    problem.indices.fill(indices);
    problem.run_and_check();
    expect_bits_of_wide(problem);
    problem.indices.fill_constant(3);
    problem.grad.fill_constant(-0.0);
    problem.run_and_check();
    for (const double value : problem.out.values()) EXPECT_FALSE(std::signbit(value));
  }
}

// Only the first indices tell at once that there is something to add up in their own order.
TEST_P(NarrowTable, IndicesThatBeginByRising) {
  for (const int64_t count : {4095, 4096, 4097, 65530, 70000}) {
    SCOPED_TRACE(count);
    Problem problem(narrow(70000, 300), all_of(ACL_FLOAT16));
    std::vector<double> indices = problem.indices.values();
    std::sort(indices.begin(), indices.begin() + count);
    problem.indices.fill(indices);
    problem.run_and_check();
    expect_bits_of_wide(problem);
  }
}

// All that an owner looks at may be another one's, or nobody's.
TEST_P(NarrowTable, OneRowHasNearlyAll) {
  for (const double row : {0.0, 17.0, 29.0}) {
    for (const int64_t table_rows : {30, 3000}) {
      Options options = all_of(ACL_FLOAT);
      options.padding = 11;
      Problem problem(narrow(90001, table_rows), options);
      std::vector<double> indices = problem.indices.values();
      for (size_t i = 0; i < indices.size(); ++i) {
        if (i % 1000 != 999) indices[i] = i < 50000 ? row : 11;
      }
      problem.indices.fill(indices);
      problem.run_and_check();
      expect_bits_of_wide(problem);
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

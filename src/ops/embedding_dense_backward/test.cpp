// SPDX-License-Identifier: Apache-2.0
// EmbeddingDenseBackward through the C interface, against the formula in double.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "ops/embedding_dense_backward/test_problem.h"
#include "support/same_bits.h"

namespace aclgrad::test {
namespace {

TEST(EmbeddingDenseBackward, DocumentedExample) {
  Options options;
  options.padding = 0;
  Problem problem({2, 4, 3}, options);
  problem.grad.fill({1, 2, 3, 4, 5, 6});
  problem.indices.fill({1, 2});
  ASSERT_TRUE(problem.run_it().ok());
  EXPECT_EQ(problem.out.values(), (std::vector<double>{0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0}));
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(EmbeddingDenseBackward, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  const auto check = [](Problem& problem) {
    problem.run_and_check();
    expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.out});
    problem.show_order();
    ASSERT_TRUE(problem.run_it().ok());
    expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.out});
  };
  for (const aclDataType dtype : kFloats) {
    for (const Shape& shape : embedding_dense_backward::test_shapes()) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.table_rows) + "x" + std::to_string(shape.cols));
      Problem problem(shape, all_of(dtype));
      check(problem);
    }
    SCOPED_TRACE("runs around the chains, the long runs and the segments");
    const std::vector<int64_t> lengths = {1,    2,    15,   0,    16,   17,   31,  32,   33,   159,
                                          160,  0,    319,  320,  321,  480,  640, 1023, 1024, 1025,
                                          2047, 2048, 2049, 3071, 3072, 4100, 1,   0};
    const std::vector<double> indices = runs_of(lengths, 5);
    Options options = all_of(dtype);
    options.scale = dtype == ACL_BF16;
    Problem problem({static_cast<int64_t>(indices.size()), std::ssize(lengths), 19}, options);
    problem.indices.fill(indices);
    check(problem);
  }
}

TEST(EmbeddingDenseBackward, EveryDtypeCombination) {
  uint64_t seed = 0;
  for (const aclDataType grad : kFloats) {
    for (const aclDataType out : kFloats) {
      for (const aclDataType indices : kIndexTypes) {
        for (const bool scale : {false, true}) {
          SCOPED_TRACE(std::string(dtype_name(grad)) + " to " + dtype_name(out) + ", indices " +
                       dtype_name(indices));
          Options options;
          options.grad = grad;
          options.out = out;
          options.indices = indices;
          options.scale = scale;
          Problem({90, 11, 37}, options, ++seed).run_and_check();
        }
      }
    }
  }
}

TEST(EmbeddingDenseBackward, FloatingIndicesTruncateAndAnyByteIsTrue) {
  for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE}) {
    Options options;
    options.indices = dtype;
    Problem problem({6, 3, 1}, options);
    problem.grad.fill({1, 2, 4, 8, 16, 32});
    problem.indices.fill({-0.75, 0.9375, 1.5, 2.75, -0.0, 2.0});
    problem.run_and_check();
    EXPECT_EQ(problem.out.values(), (std::vector<double>{19, 4, 40}));
  }
  Options options;
  options.indices = ACL_BOOL;
  Problem problem({4, 2, 1}, options);
  problem.grad.fill({1, 2, 4, 8});
  problem.indices.fill_bits({0, 1, 2, 255});
  problem.run_and_check();
  EXPECT_EQ(problem.out.values(), (std::vector<double>{1, 14}));
}

TEST(EmbeddingDenseBackward, PaddingRowIsZeroAndValuesBeyondTheTableNameNone) {
  for (const uint64_t padding : {uint64_t{0}, uint64_t{3}, uint64_t{4}, uint64_t{5},
                                 uint64_t{0xFFFFFFFF}, uint64_t{1} << 63, kNoPadding}) {
    for (const bool scale : {false, true}) {
      Options options;
      options.padding = padding;
      options.scale = scale;
      Problem problem({60, 5, 7}, options);
      problem.run_and_check();
      const std::vector<double> out = problem.out.values();
      for (size_t v = 0; v < 5; ++v) EXPECT_EQ(out[v * 7] == 0.0, v == padding);
    }
  }
  Options options;  // a long run that is padding
  options.padding = 0;
  Problem problem({5000, 1, 20}, options);
  problem.run_and_check();
  EXPECT_EQ(problem.out.values(), std::vector<double>(20, 0.0));
}

TEST(EmbeddingDenseBackward, RanksOfGradAndIndicesNeedNotMatch) {
  const std::vector<Dims> grads = {{5}, {1, 5}, {24, 5}, {2, 12, 5}, {2, 1, 3, 2, 1, 2, 1, 5}};
  const std::vector<Dims> indices = {{}, {1}, {24}, {4, 6}, {1, 2, 3, 1, 2, 2, 1, 1}};
  for (const Dims& grad : grads) {
    for (const Dims& index : indices) {
      const auto count = [](const Dims& dims, size_t from_end) {
        return std::accumulate(dims.begin(), dims.end() - static_cast<std::ptrdiff_t>(from_end),
                               int64_t{1}, std::multiplies<>());
      };
      if (count(grad, 1) != count(index, 0)) continue;
      Problem(grad, index, 3, Options()).run_and_check();
    }
  }
}

TEST(EmbeddingDenseBackward, EveryStridedViewGivesTheSameBits) {
  for (const aclDataType dtype : kFloats) {
    const Dims dims = {6, 50, 21};
    Problem plain(dims, {6, 50}, 30, all_of(dtype));
    plain.run_and_check();
    const auto check = [&](Options options) {
      options.grad = options.out = dtype;
      Problem view(dims, {6, 50}, 30, options);
      view.run_and_check();
      if (options.grad_in == Arrangement::kBroadcast) return;
      if (options.indices_in == Arrangement::kBroadcast) return;
      expect_same_bits("view", view.out.bits(), plain.out.bits());
    };
    for (const Arrangement in : kInputArrangements) {
      for (const Arrangement out : kOutputArrangements) {
        SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
        Options options;
        options.grad_in = in;
        options.out_in = out;
        check(options);
      }
      Options options;
      options.indices_in = in;
      check(options);
    }
    Problem one_row({300, 30, 21}, all_of(dtype));  // the gradient of a sum: every stride 0
    Tensor ones = Tensor::broadcast({300, 21}, dtype, {0, 1});
    ones.fill_constant(0.5);
    const Outcome outcome = run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
              ones.handle(), one_row.indices.handle(), 30, kNoPadding, false, one_row.out.handle(),
              size, executor);
        },
        aclnnEmbeddingDenseBackward);
    ASSERT_TRUE(outcome.ok()) << outcome;
    one_row.grad.fill_constant(0.5);
    one_row.expect_right();
  }
}

// At most 16 bytes an index and 8 a row of the table; none for few indices; strided rows are not
// packed.
TEST(EmbeddingDenseBackward, WorkspaceIsSmall) {
  const auto planned = [](const Shape& shape, Arrangement arrangement) {
    Options options;
    options.grad_in = options.out_in = arrangement;
    Problem problem(shape, options);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnEmbeddingDenseBackwardGetWorkspaceSize(
                  problem.grad.handle(), problem.indices.handle(), problem.num_weights, kNoPadding,
                  false, problem.out.handle(), &size, &executor),
              0);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
    return size;
  };
  EXPECT_EQ(planned({256, 100, 3}, Arrangement::kContiguous), 0u);
  for (const int64_t rows : {257, 16385, 70001, 999999}) {
    for (const int64_t table_rows : {1, 2047, 2048, 400000}) {
      for (const int64_t cols : {1, 2, 3, 4, 5}) {
        if (rows > 70001 && cols > 2) continue;  // seconds
        SCOPED_TRACE(testing::Message() << rows << "x" << table_rows << "x" << cols);
        const int64_t an_index = cols == 3 || cols == 4 ? 26 : 16;
        const auto most = static_cast<uint64_t>(an_index * rows + 8 * table_rows);
        EXPECT_LE(planned({rows, table_rows, cols}, Arrangement::kContiguous), most);
        EXPECT_LE(planned({rows, table_rows, cols}, Arrangement::kRowPadded), most);
      }
    }
  }
}

TEST(EmbeddingDenseBackward, EmptyTensors) {
  Problem no_rows({0, 3, 5}, Options());
  no_rows.run_and_check();
  EXPECT_EQ(no_rows.out.values(), std::vector<double>(15, 0.0));
  Problem no_table({2, 3}, {2}, 0, Options());  // nothing runs, so the indices are not judged
  EXPECT_TRUE(no_table.run_it().ok());
  Problem no_columns({2, 0}, {7}, 3, Options());  // counts are not compared
  no_columns.indices.fill({0, 1, 2, 3, 4, 5, 6});
  EXPECT_TRUE(no_columns.run_it().ok());
}

TEST(EmbeddingDenseBackward, NanInfAndSubnormalsFlowAsTheFormulaHasThem) {
  for (const aclDataType dtype : kFloats) {
    for (const int64_t rows : {40, 3000}) {
      for (const double special : {kInf, -kInf, kNan}) {
        Problem problem({rows, 3, 21}, all_of(dtype));
        std::vector<double> values = problem.grad.values();
        values[3] = special;
        values[21 * 5 + 3] = special == kInf ? -kInf : special;
        problem.grad.fill(values);
        problem.run_and_check();
      }
      Problem large({rows, 3, 21}, all_of(dtype));
      large.grad.fill_constant(dtype == ACL_FLOAT16 ? 60000.0 : 1e30);
      large.run_and_check();
      Problem tiny({rows, 3, 21}, all_of(dtype));
      tiny.grad.fill_uniform(3, dtype == ACL_FLOAT16 ? 0x1p-24 : 0x1p-133, 0x1p-126);
      tiny.run_and_check();
    }
  }
  Problem zeros({4, 4, 16}, Options());  // sums start at +0
  zeros.grad.fill_constant(-0.0);
  zeros.run_and_check();
  for (const double value : zeros.out.values()) EXPECT_FALSE(std::signbit(value));
}

TEST(EmbeddingDenseBackward, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({3000, 2, 33}, all_of(ACL_FLOAT16));
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); }, {&problem.out});
}

// The gradient against central differences of L = sum(dy * table[indices]) in double.
TEST(EmbeddingDenseBackward, FiniteDifferences) {
  Problem problem({6, 4, 3}, Options());
  problem.run_and_check();
  const std::vector<double> dy = problem.grad.values(), indices = problem.indices.values();
  const auto loss = [&](const std::vector<double>& table) {
    double sum = 0;
    for (size_t r = 0; r < 6; ++r) {
      for (size_t c = 0; c < 3; ++c) {
        sum += dy[r * 3 + c] * table[static_cast<size_t>(indices[r]) * 3 + c];
      }
    }
    return sum;
  };
  constexpr double kStep = 1e-3;
  for (size_t i = 0; i < 12; ++i) {
    std::vector<double> up(12, 0.5), down(12, 0.5);
    up[i] += kStep;
    down[i] -= kStep;
    EXPECT_NEAR(problem.out.values()[i], (loss(up) - loss(down)) / (2 * kStep), 1e-6);
  }
}

}  // namespace
}  // namespace aclgrad::test

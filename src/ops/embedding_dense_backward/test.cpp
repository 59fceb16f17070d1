// SPDX-License-Identifier: Apache-2.0
// EmbeddingDenseBackward through the C interface, against the formula in double, its sort and how
// its work is dealt out by themselves. Long because all of it is written with the one problem
// below.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "ops/embedding_dense_backward/cases.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/reference.h"
#include "ops/embedding_dense_backward/sweep.h"
#include "support/bad_indices.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using embedding_dense_backward::Shape;

constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
constexpr aclDataType kIndexTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_INT32, ACL_INT64,
                                       ACL_INT16, ACL_INT8,    ACL_UINT8,  ACL_BOOL};
constexpr uint64_t kNoPadding = ~uint64_t{0};
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType grad = ACL_FLOAT, out = ACL_FLOAT, indices = ACL_INT64;
  uint64_t padding = kNoPadding;
  bool scale = false;
  Arrangement grad_in = Arrangement::kContiguous;
  Arrangement indices_in = Arrangement::kContiguous;
  Arrangement out_in = Arrangement::kContiguous;
};

Options all_of(aclDataType dtype) {
  Options options;
  options.grad = options.out = dtype;
  return options;
}

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Dims& grad_dims, const Dims& indices_dims, int64_t table_rows,
          const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        num_weights(static_cast<uint64_t>(table_rows)),
        grad(grad_dims, chosen.grad, chosen.grad_in),
        indices(indices_dims, chosen.indices, chosen.indices_in),
        out({table_rows, grad_dims.back()}, chosen.out, chosen.out_in) {
    grad.fill_normal(seed);
    const int64_t last = chosen.indices == ACL_BOOL ? std::min<int64_t>(table_rows, 2) : table_rows;
    indices.fill_integers(seed + 1, 0, last - 1);
  }
  Problem(const Shape& shape, const Options& chosen, uint64_t seed = 1)
      : Problem({shape.rows, shape.cols}, {shape.rows}, shape.table_rows, chosen, seed) {}

  Outcome run_it() {
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
              grad.handle(), indices.handle(), num_weights, options.padding, options.scale,
              out.handle(), size, executor);
        },
        aclnnEmbeddingDenseBackward);
  }
  // Gradients whose sums show the order of the additions.
  void show_order() {
    const std::vector<double> rows = indices.values();
    const auto cols = static_cast<size_t>(grad.dims().back());
    grad.fill_cancelling(
        7, [&](size_t i) { return static_cast<size_t>(rows[i / cols]) * cols + i % cols; });
  }
  void expect_right() const {
    embedding_dense_backward::ReferenceProblem p;
    p.cols = static_cast<size_t>(grad.dims().back());
    p.table_rows = num_weights;
    p.padding = options.padding;
    p.scale_by_frequency = options.scale;
    p.dy = grad.values();
    p.indices = indices.values();
    if (indices.dtype() == ACL_BOOL) {
      for (double& index : p.indices) index = index != 0 ? 1 : 0;
    }
    const auto r = embedding_dense_backward::reference(p);
    expect_close("out", out, r.dw, r.magnitude, static_cast<double>(r.most_terms));
  }
  void run_and_check() {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }

  Options options;
  uint64_t num_weights;
  Tensor grad, indices, out;
};

// Indices that make runs of these lengths, in an order without pattern.
std::vector<double> runs_of(const std::vector<int64_t>& lengths, uint64_t seed) {
  std::vector<double> indices;
  for (size_t v = 0; v < lengths.size(); ++v) {
    indices.insert(indices.end(), static_cast<size_t>(lengths[v]), static_cast<double>(v));
  }
  Random random(seed);
  for (size_t i = indices.size(); i > 1; --i) {
    std::swap(indices[i - 1],
              indices[static_cast<size_t>(random.integer(0, static_cast<int64_t>(i) - 1))]);
  }
  return indices;
}

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

// Gradient rows of a few long runs are read in their own order where each thread has several
// segments of every run: on 64 threads run by run. Runs that are alike and not, between short ones,
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
      {{4100, 4200, 2000}, 256},
      {std::vector<int64_t>(5, 4100), 256},
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
  for (const int64_t rows : {257, 16385, 999999}) {
    for (const int64_t table_rows : {1, 2047, 2048}) {
      const uint64_t size = planned({rows, table_rows, 1}, Arrangement::kContiguous);
      EXPECT_LE(size, static_cast<uint64_t>(16 * rows + 8 * table_rows))
          << rows << " " << table_rows;
      EXPECT_EQ(planned({rows, table_rows, 1}, Arrangement::kRowPadded), size);
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

// ---- Data errors: rows of the README's second table -------------------------------------------

void expect_reported(Problem& problem, const std::string& value, const std::string& position) {
  expect_bad_index(problem, "aclnnEmbeddingDenseBackward", problem.num_weights, value, position);
}

TEST(EmbeddingDenseBackward, BadIndexIsReportedAndEverythingElseIsRight) {
  const BadIndex rows[] = {{ACL_INT64, 5, "5"},
                           {ACL_INT64, -1, "-1"},
                           {ACL_INT64, 0x1p32, "4294967296"},
                           {ACL_INT32, 5, "5"},
                           {ACL_INT32, -1, "-1"},
                           {ACL_INT16, -300, "-300"},
                           {ACL_INT8, -128, "-128"},
                           {ACL_UINT8, 255, "255"},
                           {ACL_FLOAT, 5, "5"},
                           {ACL_FLOAT, -1, "-1"},
                           {ACL_FLOAT, kNan, "nan"},
                           {ACL_FLOAT, kInf, "inf"},
                           {ACL_FLOAT16, kNan, "nan"},
                           {ACL_DOUBLE, -kNan, "nan"},
                           {ACL_FLOAT16, 5.5, "5.5"},
                           {ACL_DOUBLE, -kInf, "-inf"},
                           {ACL_DOUBLE, 1e30, "1e+30"},
                           {ACL_DOUBLE, -1e300, "-1.0000000000000001e+300"}};
  for (const BadIndex& row : rows) {
    SCOPED_TRACE(std::string(dtype_name(row.dtype)) + " " + row.value);
    Options options;
    options.indices = row.dtype;
    options.scale = true;
    Problem problem({300, 5, 7}, options);
    std::vector<double> indices = problem.indices.values();
    indices[17] = indices[200] = row.index;
    indices[250] = row.dtype == ACL_UINT8 ? 6 : -7;
    problem.indices.fill(indices);
    expect_reported(problem, row.value, "17");
  }
  Options options;
  options.indices = ACL_BOOL;
  Problem one_row({3, 1, 2}, options);
  one_row.indices.fill_bits({0, 7, 0});
  expect_reported(one_row, "1", "1");
}

TEST(EmbeddingDenseBackward, WidestIntegersAreComparedIn64Bits) {
  expect_widest_integers_reported([] { return Problem({1, 3, 2}, Options()); }, expect_reported);
}

TEST(EmbeddingDenseBackward, LowestBadPositionForAnyNumberOfThreads) {
  expect_lowest_position_reported(
      [] {
        return Problem({100000, 10, 1}, Options());
      },
      expect_reported);
  Problem all_bad({2000, 3, 20}, Options());
  all_bad.indices.fill_constant(3);
  expect_reported(all_bad, "3", "0");
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// LayerNorm through the C interface, against the formula in double. Long because each of the
// kernel's ways (slabs, wide rows, views, FP64) is tested on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "aclnnop/aclnn_layer_norm.h"
#include "ops/layer_norm/cases.h"
#include "ops/layer_norm/reference.h"
#include "runtime/services.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using layer_norm::Reference;
using layer_norm::reference;

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType dtype = ACL_FLOAT;
  std::optional<aclDataType> weight = ACL_FLOAT, bias = ACL_FLOAT;
  aclDataType y = ACL_FLOAT;
  std::optional<aclDataType> mean = ACL_FLOAT, rstd = ACL_FLOAT;
  double eps = 1e-5;
  Arrangement in = Arrangement::kContiguous;
  Arrangement out = Arrangement::kContiguous;
  Dims x_strides, y_strides, tail_strides;  // empty: as the arrangement has them
  size_t normalized = 1;                    // dims of input that are normalized
  std::optional<int32_t> impl_mode;
};

Tensor make_view(const Dims& dims, aclDataType dtype, const Dims& strides,
                 Arrangement arrangement) {
  return strides.empty() ? Tensor(dims, dtype, arrangement) : Tensor(dims, dtype, strides);
}

Options all_of(aclDataType dtype) {
  Options options;
  options.dtype = options.y = dtype;
  options.weight = options.bias = dtype;
  return options;
}

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(Dims dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        tail(dims.end() - static_cast<std::ptrdiff_t>(chosen.normalized), dims.end()),
        head(dims.begin(), dims.end() - static_cast<std::ptrdiff_t>(chosen.normalized)),
        x(make_view(dims, chosen.dtype, chosen.x_strides, chosen.in)),
        weight(make_view(tail, chosen.weight.value_or(ACL_FLOAT), chosen.tail_strides,
                         of_tail(chosen.in))),
        bias(make_view(tail, chosen.bias.value_or(ACL_FLOAT), chosen.tail_strides,
                       of_tail(chosen.in))),
        y(make_view(dims, chosen.y, chosen.y_strides, chosen.out)),
        mean(head, chosen.mean.value_or(ACL_FLOAT), of_head(chosen.out)),
        rstd(head, chosen.rstd.value_or(ACL_FLOAT), of_head(chosen.out)) {
    x.fill_normal(seed, 0.5, 2.0);
    weight.fill_normal(seed + 1, 1.0, 0.5);
    bias.fill_normal(seed + 2);
  }

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) {
    const IntArray normalized(tail);
    aclTensor* const w = options.weight ? weight.handle() : nullptr;
    aclTensor* const b = options.bias ? bias.handle() : nullptr;
    aclTensor* const m = options.mean ? mean.handle() : nullptr;
    aclTensor* const r = options.rstd ? rstd.handle() : nullptr;
    if (options.impl_mode) {
      return aclnnLayerNormWithImplModeGetWorkspaceSize(x.handle(), normalized.handle(), w, b,
                                                        options.eps, y.handle(), m, r,
                                                        *options.impl_mode, size, executor);
    }
    return aclnnLayerNormGetWorkspaceSize(x.handle(), normalized.handle(), w, b, options.eps,
                                          y.handle(), m, r, size, executor);
  }
  Outcome run_it() {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor); },
               options.impl_mode ? aclnnLayerNormWithImplMode : aclnnLayerNorm);
  }
  Reference exact() const {
    const auto none = std::vector<double>();
    return reference(count(head), count(tail), x.values(), options.weight ? weight.values() : none,
                     options.bias ? bias.values() : none, options.eps);
  }
  void expect_right() const {
    const Reference r = exact();
    const auto terms = static_cast<double>(count(tail));
    expect_close("out", y, r.y, r.y_magnitude, terms);
    if (options.mean) {
      expect_close("meanOut", mean, r.mean, r.mean_magnitude, terms);
    } else {
      EXPECT_TRUE(mean.untouched());
    }
    if (options.rstd) {
      expect_close("rstdOut", rstd, r.rstd, r.rstd_magnitude, terms);
    } else {
      EXPECT_TRUE(rstd.untouched());
    }
  }
  void run_and_check() {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }
  std::vector<uint8_t> output_bits() const {
    std::vector<uint8_t> bits = y.bits();
    for (const Tensor* t : {&mean, &rstd}) {
      const std::vector<uint8_t> more = t->bits();
      bits.insert(bits.end(), more.begin(), more.end());
    }
    return bits;
  }
  static size_t count(const Dims& dims) {
    size_t product = 1;
    for (const int64_t dim : dims) product *= static_cast<size_t>(dim);
    return product;
  }
  // A broadcast weight would change the numbers.
  static Arrangement of_tail(Arrangement in) {
    return in == Arrangement::kBroadcast ? Arrangement::kContiguous : in;
  }
  Arrangement of_head(Arrangement out) const {
    return head.empty() ? Arrangement::kContiguous : out;
  }

  Options options;
  Dims tail, head;
  Tensor x, weight, bias, y, mean, rstd;
};

// Sizes down to the least subnormals, another one for every row; now and then an element of another
// size, a zero, or a row of one number.
void fill_with_every_size(Problem& problem, uint64_t seed) {
  Random random(seed);
  const std::vector<double> sizes = {1.0,   1e-20, 1e-29, 1e-33, 1e-36, 1e-38,
                                     1e-39, 1e-40, 1e-42, 1e-44, 0.0};
  std::vector<double> x;
  const size_t rows = Problem::count(problem.head), cols = Problem::count(problem.tail);
  for (size_t r = 0; r < rows; ++r) {
    const double size = random.pick(sizes);
    const bool constant = random.chance(0.1), pairs = random.chance(0.1);
    for (size_t c = 0; c < cols; ++c) {
      const double scale = random.chance(0.02) ? random.pick(sizes) : size;
      double value = random.normal() * scale;
      if (random.chance(0.1)) value = 0.0;
      if (constant) value = size;
      x.push_back(pairs && c % 2 == 1 ? -x.back() : value);  // a mean of exactly 0
    }
  }
  problem.x.fill(x);
  problem.weight.fill_normal(seed + 1, 0.0, random.pick(std::vector<double>{1.0, 1e4, 1e12}));
}

constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

TEST(LayerNorm, SmallExample) {
  Problem problem({2, 4}, Options());
  problem.options.eps = 0.0;
  problem.x.fill({1, 3, 1, 3, -2, 2, 2, -2});
  problem.weight.fill({1, 2, 3, 4});
  problem.bias.fill({0, 0, 0.5, -1});
  ASSERT_TRUE(problem.run_it().ok());
  EXPECT_EQ(problem.y.values(), (std::vector<double>{-1, 2, -2.5, 3, -1, 2, 3.5, -5}));
  EXPECT_EQ(problem.mean.values(), (std::vector<double>{2, 0}));
  EXPECT_EQ(problem.rstd.values(), (std::vector<double>{1, 0.5}));
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(LayerNorm, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& shape : layer_norm::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.cols));
      Problem problem({shape.rows, shape.cols}, all_of(dtype));
      const auto expect_same = [&] {
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
      };
      problem.run_and_check();
      expect_same();
      // Means that show the order of the additions.
      const auto cols = static_cast<size_t>(shape.cols);
      problem.x.fill_cancelling(7, [&](size_t i) { return i / cols; });
      ASSERT_TRUE(problem.run_it().ok());
      expect_same();
    }
  }
}

// Outputs beyond the cache are written past it, but for the ends of rows whose lines are not whole.
// Every row is shown to be what the same row gives on its own.
void expect_bits_of_single_rows(aclDataType dtype, int64_t rows, int64_t cols,
                                Arrangement arrangement) {
  Tensor x({rows, cols}, dtype, arrangement);
  Tensor y({rows, cols}, dtype, arrangement);
  Tensor weight({cols}, dtype), bias({cols}, dtype);
  Random random(7);
  const auto numbers = [&](const Tensor& tensor, int64_t count) {  // 2^-3 to 2^2, of either sign
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * tensor.element_size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(random.bits());
      if (i % tensor.element_size() == tensor.element_size() - 1) {
        bytes[i] = bytes[i] % 2 != 0 ? 0x3F : 0xBE;
      }
    }
    return bytes;
  };
  const std::vector<uint8_t> bytes = numbers(x, rows * cols);
  x.fill_bits(bytes);
  weight.fill_bits(numbers(weight, cols));
  bias.fill_bits(numbers(bias, cols));
  const IntArray normalized({cols});
  const auto layer_norm = [&](const Tensor& from, const Tensor& to) {
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnLayerNormGetWorkspaceSize(from.handle(), normalized.handle(), weight.handle(),
                                                bias.handle(), 1e-5, to.handle(), nullptr, nullptr,
                                                size, executor);
        },
        aclnnLayerNorm);
  };
  ASSERT_TRUE(layer_norm(x, y).ok());
  EXPECT_TRUE(y.untouched_outside());
  const std::vector<uint8_t> all = y.bits();
  const auto row_bytes = static_cast<std::ptrdiff_t>(static_cast<size_t>(cols) * x.element_size());
  for (const int64_t row :
       {int64_t{0}, int64_t{1}, int64_t{31}, int64_t{32}, int64_t{777}, rows / 2, rows - 1}) {
    if (row >= rows) continue;
    Tensor one_x({1, cols}, dtype), one_y({1, cols}, dtype);
    one_x.fill_bits({bytes.begin() + row * row_bytes, bytes.begin() + (row + 1) * row_bytes});
    ASSERT_TRUE(layer_norm(one_x, one_y).ok());
    expect_same_bits("row " + std::to_string(row),
                     {all.begin() + row * row_bytes, all.begin() + (row + 1) * row_bytes},
                     one_y.bits());
  }
}

TEST(LayerNorm, LargeOutputsHaveTheBitsOfSmallOnes) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const aclDataType dtype : kFloats) {
    // An odd number of them, beyond the 16 MiB from which outputs stream.
    const auto rows = [&](int64_t cols) {
      return (int64_t{17} << 20) / (cols * int64_t{dtype == ACL_FLOAT ? 4 : 2}) | 1;
    };
    for (const int64_t cols : {1003, 4113}) {
      expect_bits_of_single_rows(dtype, rows(cols), cols, Arrangement::kOffset);
    }
    for (const int64_t cols : {768, 8224, 8, 24, 33, 48, 63, 64, 80, 97, 112, 128}) {
      expect_bits_of_single_rows(dtype, rows(cols), cols, Arrangement::kContiguous);
    }
  }
  // Wide: some batches of rows, and one of all of them.
  expect_bits_of_single_rows(ACL_BF16, 30, 300001, Arrangement::kOffset);
  expect_bits_of_single_rows(ACL_FLOAT16, 3, 2200000, Arrangement::kContiguous);
}

// Of more than a panel, and the rest of a panel under a vector.
TEST(LayerNorm, LargeLongRowsThatAreNotWholeLines) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const aclDataType dtype : kFloats) {
      expect_bits_of_single_rows(dtype, 1101, 8199, Arrangement::kOffset);
    }
    expect_bits_of_single_rows(ACL_FLOAT, 2201, 2049, Arrangement::kContiguous);
  });
}

// Short rows beyond the cache, whose slabs are written by several threads at once: rows of whole
// registers but not of whole steps (FP32 72), of both, and of neither.
TEST(LayerNorm, LargeShortRowsHaveTheSameBitsOnAnyNumberOfThreads) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const std::pair<aclDataType, int64_t> kinds[] = {{ACL_FLOAT, 72},    {ACL_FLOAT, 80},
                                                   {ACL_FLOAT, 63},    {ACL_FLOAT16, 112},
                                                   {ACL_FLOAT16, 120}, {ACL_BF16, 99}};
  for (const auto& [dtype, cols] : kinds) {
    SCOPED_TRACE(std::to_string(cols) + " columns");
    const int64_t rows = (int64_t{17} << 20) / (cols * int64_t{dtype == ACL_FLOAT ? 4 : 2});
    Problem problem({rows, cols}, all_of(dtype));
    problem.run_and_check();
    expect_same_bits_everywhere([&] { return problem.run_it(); },
                                {&problem.y, &problem.mean, &problem.rstd});
  }
}

// FP32 rows that share lines, beyond the cache; two of them are not ordinary.
void expect_rows_that_share_lines(int64_t rows, int64_t cols, Arrangement out) {
  SCOPED_TRACE(std::to_string(cols) + " columns");
  Options options = all_of(ACL_FLOAT);
  options.out = out;
  Problem problem({rows, cols}, options);
  std::vector<double> x = problem.x.values();
  x[static_cast<size_t>(1000 * cols + 7)] = std::numeric_limits<double>::quiet_NaN();
  std::fill_n(x.begin() + 1001 * cols, cols, 3e38);
  problem.x.fill(x);
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    problem.run_and_check();
  });
}
TEST(LayerNorm, LargeRowsThatAreNotWholeLines) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  expect_rows_that_share_lines(20003, 259, Arrangement::kOffset);
}
// Sixteen of them are whole lines.
TEST(LayerNorm, LargeShortRowsThatAreNotWholeLines) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  expect_rows_that_share_lines(190003, 24, Arrangement::kContiguous);
  expect_rows_that_share_lines(190003, 24, Arrangement::kOffset);
  expect_rows_that_share_lines(130003, 41, Arrangement::kContiguous);
  // Each is, and goes the same way on some machines.
  expect_rows_that_share_lines(140003, 32, Arrangement::kContiguous);
}

TEST(LayerNorm, EveryDtypeCombination) {
  uint64_t seed = 0;
  const std::optional<aclDataType> none;
  for (const aclDataType dtype : kFloats) {
    for (const aclDataType y : kFloats) {
      for (const std::optional<aclDataType> weight :
           {none, std::optional(ACL_FLOAT), std::optional(dtype)}) {
        for (const std::optional<aclDataType> bias :
             {none, std::optional(ACL_FLOAT), std::optional(dtype)}) {
          if (weight && bias && *weight != *bias) continue;
          Options options;
          options.dtype = dtype;
          options.y = y;
          options.weight = weight;
          options.bias = bias;
          options.mean = seed % 4 == 3 ? none : std::optional(kFloats[seed % 3]);
          options.rstd = seed % 5 == 4 ? none : std::optional(kFloats[seed / 3 % 3]);
          SCOPED_TRACE("seed " + std::to_string(seed));
          Problem({5, 37}, options, ++seed).run_and_check();
        }
      }
    }
  }
}

TEST(LayerNorm, ImplModesGiveTheSameBits) {
  Options options = all_of(ACL_FLOAT16);
  options.mean = options.rstd = ACL_FLOAT16;
  Problem plain({30, 70}, options);
  plain.run_and_check();
  for (const int32_t mode : {0, 1, 2}) {
    options.impl_mode = mode;
    Problem problem({30, 70}, options);
    problem.run_and_check();
    expect_same_bits("implMode", problem.output_bits(), plain.output_bits());
  }
}

TEST(LayerNorm, RanksOneToEight) {
  Dims dims;
  for (size_t rank = 1; rank <= 8; ++rank) {
    dims.push_back(rank % 3 == 0 ? 3 : 2);
    for (size_t normalized = 1; normalized <= rank; ++normalized) {
      Options options;
      options.normalized = normalized;
      SCOPED_TRACE(std::to_string(rank) + " dims, " + std::to_string(normalized) + " normalized");
      Problem(dims, options).run_and_check();
    }
  }
}

// mean and rstd may have any shape of one element a row: [2,1,1] here, and [1,2].
TEST(LayerNorm, StatisticsOfAnyShape) {
  Problem problem({2, 5}, Options());
  problem.run_and_check();
  const Tensor mean({2, 1, 1}, ACL_FLOAT), rstd({1, 2}, ACL_FLOAT);
  const IntArray normalized({5});
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnLayerNormGetWorkspaceSize(problem.x.handle(), normalized.handle(), nullptr,
                                              nullptr, 1e-5, problem.y.handle(), mean.handle(),
                                              rstd.handle(), size, executor);
      },
      aclnnLayerNorm);
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(mean.values(), problem.mean.values());
  EXPECT_EQ(rstd.values(), problem.rstd.values());
}

TEST(LayerNorm, EveryStridedViewGivesTheSameBits) {
  for (const Dims& dims : {Dims{6, 5, 20}, Dims{3, 17, 33}, Dims{2, 2, 9000}}) {
    for (const aclDataType dtype : kFloats) {
      for (const size_t normalized : {1u, 2u}) {
        Options options = all_of(dtype);
        options.normalized = normalized;
        Problem plain(dims, options);
        plain.run_and_check();
        for (const Arrangement in : kInputArrangements) {
          for (const Arrangement out : kOutputArrangements) {
            SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
            options.in = in;
            options.out = out;
            Problem view(dims, options);
            view.run_and_check();
            if (in != Arrangement::kBroadcast) {
              expect_same_bits("view", view.output_bits(), plain.output_bits());
            }
          }
        }
      }
    }
  }
}

// FP32 weight and bias are read where they are; rows with gaps between them are not packed.
TEST(LayerNorm, NoWorkspaceForRowsAndFp32Weights) {
  Options options;
  options.in = options.out = Arrangement::kRowPadded;
  Problem problem({100, 300}, options);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_EQ(outcome.workspace_size, 0u);
}

// A view gives the bits and needs the workspace of contiguous tensors with its values, so nothing
// of it is packed.
void expect_like_contiguous(Problem& plain, Problem& view) {
  plain.x.fill(view.x.values());
  plain.weight.fill(view.weight.values());
  plain.bias.fill(view.bias.values());
  const Outcome expected = plain.run_it();
  ASSERT_TRUE(expected.ok()) << expected;
  const Outcome outcome = view.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  if (!aclgrad_has_device_queues()) {  // a GPU takes rows that are one run; others are packed
    EXPECT_EQ(outcome.workspace_size, expected.workspace_size);
  }
  expect_same_bits("view", view.output_bits(), plain.output_bits());
  EXPECT_TRUE(view.y.untouched_outside());
}

// How x and y lie.
struct Forms {
  Form x, y;
};
constexpr Forms kForms[] = {
    {Form::kPadded, Form::kPadded},       {Form::kPermuted, Form::kContiguous},
    {Form::kContiguous, Form::kPermuted}, {Form::kRepeated, Form::kReversed},
    {Form::kReversed, Form::kPadded},     {Form::kPadded, Form::kContiguous}};

Options with_forms(Options options, const Dims& dims, const Forms& forms) {
  options.x_strides = form_strides(dims, forms.x);
  options.y_strides = form_strides(dims, forms.y);
  return options;
}

// Short rows, rows of several panels, few wide ones; the last dimension long, short and of one
// element.
struct Segmented {
  Dims dims;
  size_t normalized;
};
const std::vector<Segmented>& segmented_shapes() {
  static const std::vector<Segmented> shapes = {
      {{4, 5, 64}, 2},    {{3, 5, 3}, 2},       {{17, 4, 4}, 2},    {{21, 27, 19}, 2},
      {{40, 3, 700}, 2},  {{40, 3, 2000}, 2},   {{2, 3, 4100}, 2},  {{17, 3001, 3}, 2},
      {{3, 5, 1}, 2},     {{20, 3, 19, 9}, 3},  {{3, 6, 5, 1}, 3},  {{2, 3, 5, 700}, 3},
      {{3, 4, 5, 37}, 2}, {{2, 2, 3, 4100}, 2}, {{3, 5, 4, 33}, 4}, {{300, 2, 90}, 2},
      {{3, 30, 1100}, 2}};
  return shapes;
}

TEST(LayerNorm, OnlyTheLastDimensionNeedBeContiguousToRunInPlace) {
  for (const Segmented& shape : segmented_shapes()) {
    for (const aclDataType dtype : kFloats) {
      for (const Forms& forms : kForms) {
        Options options = all_of(dtype);
        options.normalized = shape.normalized;
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + " of " +
                     std::to_string(Problem::count(shape.dims)) + " elements, last of " +
                     std::to_string(shape.dims.back()));
        Problem plain(shape.dims, options);
        Problem view(shape.dims, with_forms(options, shape.dims, forms));
        expect_like_contiguous(plain, view);
        view.expect_right();
      }
    }
  }
}

TEST(LayerNorm, ASliceOfPaddedRowsIsNotPacked) {
  Options options;
  options.normalized = 2;
  options.x_strides = options.y_strides = {350, 70, 1};
  Problem view({4, 5, 64}, options);
  const Outcome outcome = view.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  if (!aclgrad_has_device_queues()) {  // as in expect_like_contiguous()
    EXPECT_EQ(outcome.workspace_size, 0u);
  }
  view.expect_right();
}

TEST(LayerNorm, SegmentedRowsOnEveryTargetWithEveryDtypeAndOptionalTensor) {
  const std::optional<aclDataType> none;
  for_each_target([&](const std::string&) {
    for (const Dims& dims : {Dims{19, 11, 47}, Dims{3, 3, 2800}}) {
      for (const Forms& forms : {kForms[0], kForms[3]}) {
        for (const aclDataType dtype : kFloats) {
          for (const aclDataType y : kFloats) {
            for (const bool given : {true, false}) {
              Options options = all_of(dtype);
              options.normalized = 2;
              options.y = y;
              if (!given) options.weight = options.rstd = none;
              if (given == (dtype == y)) options.bias = options.mean = none;
              Problem plain(dims, options);
              Problem view(dims, with_forms(options, dims, forms));
              expect_like_contiguous(plain, view);
            }
          }
        }
      }
    }
  });
}

// Numbers from the FP64 paths: rows near zero, rows whose squares leave FP32, NaN.
TEST(LayerNorm, UnusualSegmentedRowsGiveTheBitsOfContiguousOnes) {
  uint64_t seed = seed_of_test(31);
  for (const Dims& dims : {Dims{40, 3, 5}, Dims{20, 4, 250}, Dims{36, 3, 2000}, Dims{3, 3, 3000}}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
      for (const double scale : {1.0, 0x1p80}) {
        for (const Forms& forms : {kForms[0], kForms[1], kForms[2]}) {
          Options options = all_of(dtype);
          options.normalized = 2;
          options.weight = ACL_FLOAT;
          options.bias.reset();
          SCOPED_TRACE(replay(++seed));
          Problem plain(dims, options);
          Problem view(dims, with_forms(options, dims, forms));
          fill_with_every_size(view, seed);
          std::vector<double> x = view.x.values();
          for (double& value : x) value *= scale;
          x[1] = scale == 1.0 ? x[1] : std::numeric_limits<double>::quiet_NaN();
          view.x.fill(x);
          expect_like_contiguous(plain, view);
          view.expect_right();
        }
      }
    }
  }
}

// An FP32 weight or bias that is not contiguous is converted like a 16-bit one, none is packed.
TEST(LayerNorm, WeightAndBiasOfAnyStridesAreNotPacked) {
  struct View {
    Dims dims, strides;
  };
  const View views[] = {
      {{4, 5, 64}, {70, 1}},   {{4, 5, 64}, {1, 5}},      {{4, 5, 64}, {0, 1}},
      {{7, 33}, {3}},          {{7, 33}, {-1}},           {{7, 33}, {0}},
      {{40, 3, 2100}, {1, 4}}, {{2, 3, 4100}, {4103, 1}}, {{2, 2, 3, 4100}, {1, 3}}};
  for (const View& view : views) {
    Options converted = all_of(ACL_FLOAT16);
    converted.normalized = view.strides.size();
    const Outcome expected = Problem(view.dims, converted).run_it();
    ASSERT_TRUE(expected.ok()) << expected;
    for (const aclDataType dtype : kFloats) {
      for (const aclDataType weight : {ACL_FLOAT, dtype}) {
        Options options = all_of(dtype);
        options.normalized = view.strides.size();
        options.weight = options.bias = weight;
        Problem plain(view.dims, options);
        options.tail_strides = view.strides;
        Problem strided(view.dims, options);
        plain.weight.fill(strided.weight.values());
        plain.bias.fill(strided.bias.values());
        ASSERT_TRUE(plain.run_it().ok());
        const Outcome outcome = strided.run_it();
        ASSERT_TRUE(outcome.ok()) << outcome;
        EXPECT_EQ(outcome.workspace_size, expected.workspace_size);
        expect_same_bits("strided", strided.output_bits(), plain.output_bits());
        strided.expect_right();
      }
    }
  }
}

TEST(LayerNorm, EmptyTensors) {
  Problem no_rows({0, 5}, Options());
  ASSERT_TRUE(no_rows.run_it().ok());
  Problem no_columns({5, 0}, Options());
  ASSERT_TRUE(no_columns.run_it().ok());
  EXPECT_EQ(no_columns.mean.values(), std::vector<double>(5, 0.0));
  for (const double value : no_columns.rstd.values()) EXPECT_TRUE(std::isnan(value));
  expect_canonical_nan("rstd", no_columns.rstd);
  Problem nothing({0, 0}, Options());
  ASSERT_TRUE(nothing.run_it().ok());
}

TEST(LayerNorm, NanAndInfFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double special : {inf, -inf, nan}) {
    for (const int where : {0, 1, 2}) {
      for (const Dims& dims : {Dims{19, 21}, Dims{3, 12000}, Dims{2, 33000}}) {
        for (const aclDataType dtype : kFloats) {
          Problem problem(dims, all_of(dtype));
          Tensor* tensors[] = {&problem.x, &problem.weight, &problem.bias};
          std::vector<double> values = tensors[where]->values();
          values[3] = special;
          tensors[where]->fill(values);
          if (where == 1) {  // opposite infinities give a NaN of the machine's own
            values = problem.bias.values();
            values[3] = -special;
            problem.bias.fill(values);
          }
          problem.run_and_check();
          expect_canonical_nan("y", problem.y);
        }
      }
    }
  }
}

// Squares that leave FP32, or that would vanish in it: eps decides whether they count.
TEST(LayerNorm, HugeAndTinyNumbers) {
  for (const double eps : {0.0, 1e-40, 1e-5}) {
    for (const double scale : {1e18, 1e25, 1e38, 1e-15, 1e-25, 1e-38, 0x1p-149}) {
      for (const Dims& dims : {Dims{4, 40}, Dims{2, 9000}, Dims{2, 33000}}) {
        if (eps == 0.0 && scale < 1e-38) continue;  // rstd itself would leave FP32
        SCOPED_TRACE(std::to_string(std::log10(eps)) + " " + std::to_string(std::log10(scale)));
        Options options;
        options.eps = eps;
        Problem problem(dims, options);
        problem.x.fill_uniform(3, -2 * scale, 3 * scale);
        problem.run_and_check();
      }
    }
  }
}

TEST(LayerNorm, SubnormalIntermediatesHoldTheToleranceWithTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(1);
  for (const Dims& dims : {Dims{40, 7}, Dims{70, 33}, Dims{20, 1000}, Dims{3, 9000}}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
      for (const double eps : {1e-5, 1e-12, 1e-30}) {
        Options options = all_of(dtype);
        options.weight = ACL_FLOAT;
        options.bias.reset();
        options.eps = eps;
        options.y = seed % 2 == 0 ? ACL_FLOAT : dtype;
        SCOPED_TRACE(replay(++seed));
        Problem problem(dims, options);
        fill_with_every_size(problem, seed);
        problem.run_and_check();
        const std::vector<uint8_t> bits = problem.output_bits();
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
        options.in = options.out = Arrangement::kRowPadded;
        Problem padded(dims, options);
        fill_with_every_size(padded, seed);
        padded.run_and_check();
        expect_same_bits("padded", padded.output_bits(), bits);
      }
    }
  }
}

// All up to 66, and around the lengths from which rows are taken in another way.
std::vector<int64_t> short_lengths(int64_t least) {
  std::vector<int64_t> lengths;
  for (int64_t cols = least; cols <= 66; ++cols) lengths.push_back(cols);
  lengths.insert(lengths.end(),
                 {70, 72, 79, 80, 81, 88, 95, 96, 97, 104, 111, 112, 113, 120, 127, 128, 129});
  return lengths;
}

// Sixteen rows at a time: rows of nothing but -0 and rows with an infinity or a NaN beside usual
// ones, rows that follow each other and rows with gaps.
TEST(LayerNorm, SixteenShortRowsHaveTheSameBitsOnEveryTarget) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  uint64_t seed = seed_of_test(1);
  for (const int64_t cols : short_lengths(1)) {
    for (const aclDataType dtype : kFloats) {
      for (const int64_t rows : {16, 17, 18, 19, 22, 23, 53}) {
        // Rows that are read together need up to fifteen columns of the rows behind them.
        if (cols > 3 && rows > 16 && rows < 53) continue;
        for (const Arrangement in : {Arrangement::kContiguous, Arrangement::kRowPadded}) {
          Options options = all_of(dtype);
          options.in = in;
          SCOPED_TRACE(std::to_string(cols) + " columns, " + replay(++seed));
          Problem problem({rows, cols}, options);
          const auto expect_right = [&] {
            problem.run_and_check();
            expect_same_bits_everywhere([&] { return problem.run_it(); },
                                        {&problem.y, &problem.mean, &problem.rstd});
          };
          expect_right();
          fill_with_every_size(problem, seed);
          std::vector<double> x = problem.x.values();
          std::fill_n(x.begin() + 2 * cols, cols, -0.0);
          x[static_cast<size_t>(3 * cols + 1)] = kInf;
          x[static_cast<size_t>(5 * cols)] = kNan;
          problem.x.fill(x);
          expect_right();
        }
      }
    }
  }
}

// A mean of 1 and half of an FP32 ulp more, to which three terms of half an ulp of the FP64 sum add
// something or nothing, as the order of the additions has it: that of the row's vectors, wherever
// the row lies and on every target. (Any sum of so many f16 numbers is exact in FP64.)
TEST(LayerNorm, MeansThatTheOrderOfTheSumDecides) {
  constexpr int64_t kRowCount = 40;
  constexpr size_t kSpecial = 5;
  uint64_t seed = seed_of_test(1);
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    for (const int64_t cols : short_lengths(17)) {
      std::mt19937_64 random(++seed);
      std::vector<size_t> places(static_cast<size_t>(cols));
      std::iota(places.begin(), places.end(), size_t{0});
      for (int turn = 0; turn < 6; ++turn) {
        SCOPED_TRACE(std::to_string(cols) + " columns, " + replay(seed));
        std::shuffle(places.begin(), places.end(), random);
        const auto whole = static_cast<double>(cols);
        const double least = std::ldexp(1.0, std::ilogb(whole) - 53);
        const double terms[kSpecial] = {whole, std::ldexp(whole, -24), least, least, least};
        std::vector<double> x(static_cast<size_t>(kRowCount * cols));
        for (size_t r = 0; r < static_cast<size_t>(kRowCount); ++r) {
          for (size_t i = 0; i < kSpecial; ++i) x[r * places.size() + places[i]] = terms[i];
        }
        Options options = all_of(dtype);
        options.mean = ACL_FLOAT;
        Problem problem({kRowCount, cols}, options);
        problem.x.fill(x);
        ASSERT_TRUE(problem.run_it().ok());
        const std::vector<double> means = problem.mean.values();
        EXPECT_EQ(means, std::vector<double>(means.size(), means[0]));
        const std::vector<uint8_t> bits = problem.output_bits();
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
        options.in = options.out = Arrangement::kRowPadded;
        Problem padded({kRowCount, cols}, options);
        padded.weight.fill(problem.weight.values());
        padded.bias.fill(problem.bias.values());
        padded.x.fill(x);
        ASSERT_TRUE(padded.run_it().ok());
        expect_same_bits("padded", padded.output_bits(), bits);
      }
    }
  }
}

// One size everywhere; f16 has no numbers so small, but its weight may be FP32 and any eps is.
TEST(LayerNorm, SubnormalDistancesBesideLargeFactors) {
  struct Sizes {
    double x, eps, weight;
  };
  for (const Sizes& sizes : {Sizes{1e-40, 1e-5, 1.0}, Sizes{1e-40, 1e-5, 1e12},
                             Sizes{1e-36, 1.0, 1e12}, Sizes{1e-44, 1e-30, 1e20}}) {
    for (const Dims& dims : {Dims{6, 50}, Dims{3, 9000}}) {
      Options options;
      options.bias.reset();
      options.eps = sizes.eps;
      Problem problem(dims, options);
      problem.x.fill_normal(4, 0.0, sizes.x);
      problem.weight.fill_normal(5, 0.0, sizes.weight);
      problem.run_and_check();
    }
  }
  for (const aclDataType dtype : kFloats) {
    Options options = all_of(dtype);
    options.bias.reset();
    options.weight = ACL_FLOAT;
    options.eps = 1e80;
    Problem problem({6, 50}, options);
    problem.weight.fill_normal(5, 0.0, 1e35);
    problem.run_and_check();
  }
}

// Rows of one number have no variance: y is the bias, without eps 0 * Inf.
TEST(LayerNorm, ConstantRows) {
  for (const aclDataType dtype : kFloats) {
    for (const double number : {0.1, -1000.3, 0.0, 1e-30, 3e-41, 60001.0}) {
      for (const Dims& dims : {Dims{3, 100}, Dims{2, 10001}}) {
        Problem problem(dims, all_of(dtype));
        problem.x.fill_constant(number);
        problem.run_and_check();
        const std::vector<double> y = problem.y.values(), bias = problem.bias.values();
        for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], bias[i % bias.size()]);
      }
    }
  }
  Options options;
  options.eps = 1e-12;
  Problem large({2, 9000}, options);
  large.x.fill_constant(1e7 / 3);
  large.run_and_check();
  options.eps = 0.0;
  Problem problem({2, 50}, options);
  problem.x.fill_constant(0.0);
  problem.run_and_check();
  EXPECT_TRUE(std::isinf(problem.rstd.values()[0]));
  EXPECT_TRUE(std::isnan(problem.y.values()[0]));
}

// Padding, beside other rows and alone.
TEST(LayerNorm, RowsOfZerosHaveTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(400);
  for (const Dims& dims : {Dims{41, 1}, Dims{41, 24}, Dims{37, 64}, Dims{35, 192}, Dims{20, 1300},
                           Dims{3, 9000}, Dims{3, 70000}}) {
    for (const aclDataType dtype : kFloats) {
      for (const double eps : {1e-5, 0.0}) {
        SCOPED_TRACE(replay(++seed));
        Options options = all_of(dtype);
        options.eps = eps;
        if (dtype == ACL_FLOAT) options.bias.reset();  // beside which y is nothing
        Problem problem(dims, options, seed);
        std::vector<double> x = problem.x.values();
        const auto cols = static_cast<size_t>(dims[1]);
        for (size_t i = 0; i < x.size(); ++i) {
          const size_t row = i / cols;
          if (row % 3 != 0) x[i] = row % 3 == 1 ? 0.0 : -0.0;
        }
        // No zeros, though their sum and, in FP32, their squares are.
        if (dtype == ACL_FLOAT && cols > 1) {
          const size_t at = seed / 6 % 2 == 0 ? cols : 2 * cols - 2;
          x[at] = 1e-44;
          x[at + 1] = -1e-44;
          problem.weight.fill_constant(1e12);
        }
        problem.x.fill(x);
        problem.run_and_check();
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.y, &problem.mean, &problem.rstd});
      }
    }
  }
}

// The rest of a panel is less than a vector, and its own mean 0.
TEST(LayerNorm, LastColumnsWhoseMeanIsZero) {
  for (const int64_t cols : {int64_t{4104}, int64_t{8194}, int64_t{36866}}) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::to_string(cols) + " columns");
      Problem problem({2, cols}, all_of(dtype));
      std::vector<double> x = problem.x.values();
      const auto of_row = static_cast<size_t>(cols);
      for (size_t row = 0; row < 2; ++row) {
        for (size_t c = of_row / 4096 * 4096; c < of_row; ++c) {
          x[row * of_row + c] = c % 2 == 0 ? 1000.0 : -1000.0;
        }
      }
      problem.x.fill(x);
      problem.run_and_check();
    }
  }
}

// Elements near a mean that is small only because large numbers cancel.
TEST(LayerNorm, SmallMeanBetweenLargeNumbers) {
  for (const Dims& dims : {Dims{40, 15}, Dims{10, 1000}, Dims{3, 10000}}) {
    Problem problem(dims, Options());
    problem.options.bias.reset();
    std::vector<double> x = normal_values(problem.x.numel(), 11, 0.0, 3.0);
    for (size_t i = 0; i < x.size(); i += 5) x[i] *= 1e-6;
    problem.x.fill(x);
    problem.run_and_check();
  }
  // Sixteen lanes of each number in turn: sums of neighbouring vectors must not swallow the small.
  // Numbers of 1e20 leave nothing of the small ones in FP64 either.
  for (const auto& [dtype, large, small] :
       {std::tuple(ACL_FLOAT16, 60000.0, -0.001), std::tuple(ACL_FLOAT, 1e10, -39.0),
        std::tuple(ACL_BF16, 1e10, -39.0), std::tuple(ACL_FLOAT, 1e20, -39.0),
        std::tuple(ACL_BF16, 1e20, -39.0), std::tuple(ACL_FLOAT, 1e30, 1e-5)}) {
    Problem problem({1, 256}, all_of(dtype));
    std::vector<double> x(static_cast<size_t>(problem.x.numel()));
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t vector = i / 16 % 4;
      x[i] = vector % 2 == 1 ? small : vector == 0 ? large : -large;
    }
    problem.x.fill(x);
    problem.run_and_check();
  }
}

// A variance far below the square of the mean: E[x^2] - E[x]^2 would lose it.
TEST(LayerNorm, SmallVarianceBesideALargeMean) {
  for (const Dims& dims : {Dims{5, 1000}, Dims{3, 20000}}) {
    Options options;
    options.eps = 1e-12;
    Problem problem(dims, options);
    problem.x.fill_normal(5, 1000.0, 0.01);
    problem.run_and_check();
  }
}

// Long rows are visited once, for squares around the mean of their first columns: these are far
// from the others in some rows, and near in the next.
TEST(LayerNorm, FirstColumnsFarFromTheMean) {
  for (const Dims& dims : {Dims{7, 1100}, Dims{40, 4096}, Dims{35, 9001}}) {
    for (const aclDataType dtype : kFloats) {
      Problem problem(dims, all_of(dtype));
      std::vector<double> x = problem.x.values();
      const size_t cols = Problem::count(problem.tail);
      for (size_t r = 0; r < Problem::count(problem.head); ++r) {
        for (size_t c = 0; c < 16 && r % 3 != 0; ++c) x[r * cols + c] += r % 3 == 1 ? 500.0 : -3.0;
      }
      problem.x.fill(x);
      problem.run_and_check();
      expect_same_bits_everywhere([&] { return problem.run_it(); },
                                  {&problem.y, &problem.mean, &problem.rstd});
    }
  }
}

TEST(LayerNorm, AnyEps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double eps :
       {0.0, 1e-300, 1.0, 1e30, 1e300, -1.0, -1e9, nan, std::numeric_limits<double>::infinity()}) {
    SCOPED_TRACE(std::to_string(eps));
    Options options;
    options.eps = eps;
    Problem({7, 33}, options).run_and_check();
  }
}

// What a negative eps takes from the variance leaves the variance's own error.
TEST(LayerNorm, NegativeEpsThatLeavesLittle) {
  for (const Dims& dims : {Dims{1, 40}, Dims{1, 1000}, Dims{1, 9000}}) {
    Problem problem(dims, Options());
    const std::vector<double> x = problem.x.values();
    const auto count = static_cast<double>(x.size());
    double mean = 0.0, variance = 0.0;
    for (const double value : x) mean += value / count;
    for (const double value : x) variance += (value - mean) * (value - mean) / count;
    for (const double part : {0.5, 0.9, 0.99, 0.9999, 0.999999}) {
      SCOPED_TRACE(std::to_string(dims[1]) + " " + std::to_string(part));
      problem.options.eps = -part * variance;
      problem.run_and_check();
    }
  }
}

TEST(LayerNorm, AMillionTermsHoldTheTolerance) {
  // A row of five elements occupies 32 threads of a GPU, which take minutes to emulate.
  const int64_t many = aclgrad_has_device_queues() ? 20000 : 200000;
  for (const Dims& dims : {Dims{many, 5}, Dims{2, 1000000}}) {
    Problem problem(dims, Options());
    problem.run_and_check();
    problem.x.fill_constant(0.1);
    problem.run_and_check();
  }
}

TEST(LayerNorm, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({33, 100}, all_of(ACL_FLOAT16));
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); },
                                       {&problem.y, &problem.mean, &problem.rstd});
}

}  // namespace
}  // namespace aclgrad::test

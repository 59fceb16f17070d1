// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward through the C interface, against the formula in double. Long because each of
// the kernel's ways (groups, wide rows, views, in place, FP64) is tested on every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "aclnnop/aclnn_layer_norm_backward.h"
#include "ops/layer_norm_backward/cases.h"
#include "ops/layer_norm_backward/reference.h"
#include "runtime/services.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/targets.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

using layer_norm_backward::Reference;
using layer_norm_backward::reference;

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType dtype = ACL_FLOAT;
  aclDataType mean = ACL_FLOAT, rstd = ACL_FLOAT;
  std::optional<aclDataType> gamma = ACL_FLOAT;
  aclDataType dx = ACL_FLOAT, dgamma = ACL_FLOAT, dbeta = ACL_FLOAT;
  bool want[3] = {true, true, true};
  Arrangement in = Arrangement::kContiguous;
  Arrangement out = Arrangement::kContiguous;
  Dims dy_strides, x_strides, dx_strides;  // empty: as the arrangement has them
  size_t normalized = 1;                   // dims of input that are normalized
};

Tensor make_view(const Dims& dims, aclDataType dtype, const Dims& strides,
                 Arrangement arrangement) {
  return strides.empty() ? Tensor(dims, dtype, arrangement) : Tensor(dims, dtype, strides);
}

Options all_of(aclDataType dtype) {
  Options options;
  options.dtype = options.dx = dtype;
  options.gamma = dtype;
  return options;
}

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(Dims dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        tail(dims.end() - static_cast<std::ptrdiff_t>(chosen.normalized), dims.end()),
        head(dims.begin(), dims.end() - static_cast<std::ptrdiff_t>(chosen.normalized)),
        dy(make_view(dims, chosen.dtype, chosen.dy_strides, chosen.in)),
        x(make_view(dims, chosen.dtype, chosen.x_strides, chosen.in)),
        mean(head, chosen.mean, head.empty() ? Arrangement::kContiguous : chosen.in),
        rstd(head, chosen.rstd, head.empty() ? Arrangement::kContiguous : chosen.in),
        gamma(tail, chosen.gamma.value_or(ACL_FLOAT),
              chosen.in == Arrangement::kBroadcast ? Arrangement::kContiguous : chosen.in),
        dx(make_view(dims, chosen.dx, chosen.dx_strides, chosen.out)),
        dgamma(tail, chosen.dgamma, chosen.out),
        dbeta(tail, chosen.dbeta, chosen.out) {
    dy.fill_normal(seed);
    x.fill_normal(seed + 1, 0.5, 2.0);
    mean.fill_normal(seed + 2, 0.5, 0.1);
    rstd.fill_uniform(seed + 3, -0.5, 1.5);
    gamma.fill_normal(seed + 4, 1.0, 0.5);
  }

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor, aclTensor* dx_handle = nullptr) {
    const IntArray normalized(tail);
    const BoolArray mask({options.want[0], options.want[1], options.want[2]});
    return aclnnLayerNormBackwardGetWorkspaceSize(
        dy.handle(), x.handle(), normalized.handle(), mean.handle(), rstd.handle(),
        options.gamma ? gamma.handle() : nullptr, nullptr, mask.handle(),
        dx_handle != nullptr ? dx_handle : (options.want[0] ? dx.handle() : nullptr),
        options.want[1] ? dgamma.handle() : nullptr, options.want[2] ? dbeta.handle() : nullptr,
        size, executor);
  }
  // `out`: gradInputOut, if it is not dx.
  Outcome run_it(aclTensor* out = nullptr) {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor, out); },
               aclnnLayerNormBackward);
  }
  Reference exact() const {
    const size_t rows = count(head), cols = count(tail);
    return reference(rows, cols, dy.values(), x.values(), mean.values(), rstd.values(),
                     options.gamma ? gamma.values() : std::vector<double>());
  }
  void expect_right(const Reference& r) const {
    const auto terms = static_cast<double>(count(head) + count(tail));
    if (options.want[0]) expect_close("gradInputOut", dx, r.dx, r.dx_magnitude, terms);
    if (options.want[1]) expect_close("gradWeightOut", dgamma, r.dgamma, r.dgamma_magnitude, terms);
    if (options.want[2]) expect_close("gradBiasOut", dbeta, r.dbeta, r.dbeta_magnitude, terms);
    if (!options.want[0]) {
      EXPECT_TRUE(dx.untouched());
    }
    if (!options.want[1]) {
      EXPECT_TRUE(dgamma.untouched());
    }
    if (!options.want[2]) {
      EXPECT_TRUE(dbeta.untouched());
    }
  }
  std::vector<uint8_t> output_bits() const {
    std::vector<uint8_t> bits = dx.bits();
    for (const Tensor* t : {&dgamma, &dbeta}) {
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

  Options options;
  Dims tail, head;
  Tensor dy, x, mean, rstd, gamma, dx, dgamma, dbeta;
};

void run_and_check(const Dims& dims, const Options& options, uint64_t seed = 1) {
  Problem problem(dims, options, seed);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_right(problem.exact());
}

constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

TEST(LayerNormBackward, DocumentedExample) {
  Problem problem({2, 2}, Options());
  problem.dy.fill({2, 3, 4, 5});
  problem.x.fill({2, 3, 4, 5});
  problem.mean.fill({2, 3});
  problem.rstd.fill({4, 5});
  problem.gamma.fill({1, 1});
  ASSERT_TRUE(problem.run_it().ok());
  EXPECT_EQ(problem.dx.values(), (std::vector<double>{-2, -94, -877.5, -1747.5}));
  EXPECT_EQ(problem.dgamma.values(), (std::vector<double>{20, 62}));
  EXPECT_EQ(problem.dbeta.values(), (std::vector<double>{6, 8}));
}

// Every shape in every dtype: right on the best target, the same bits on all targets and for all
// thread counts.
TEST(LayerNormBackward, MatchesReferenceWithTheSameBitsOnEveryTargetAndThreadCount) {
  for (const auto& shape : layer_norm_backward::test_shapes()) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.cols));
      Problem problem({shape.rows, shape.cols}, all_of(dtype));
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
      const auto expect_same = [&] {
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      };
      expect_same();
      // Sums of the columns, then of the rows, that show the order of the additions.
      for (Tensor* tensor : {&problem.x, &problem.rstd, &problem.gamma}) tensor->fill_constant(1);
      problem.mean.fill_constant(0);
      const auto cols = static_cast<size_t>(shape.cols);
      problem.dy.fill_cancelling(7, [&](size_t i) { return i % cols; });
      ASSERT_TRUE(problem.run_it().ok());
      expect_same();
      problem.dy.fill_cancelling(9, [&](size_t i) { return i / cols; });
      ASSERT_TRUE(problem.run_it().ok());
      expect_same();
    }
  }
}

TEST(LayerNormBackward, EveryDtypeCombination) {
  uint64_t seed = 0;
  for (const aclDataType dtype : kFloats) {
    for (const aclDataType mean : kFloats) {
      for (const aclDataType rstd : kFloats) {
        for (const std::optional<aclDataType> gamma :
             {std::optional<aclDataType>(), std::optional(ACL_FLOAT), std::optional(dtype)}) {
          for (const aclDataType dx : kFloats) {
            Options options;
            options.dtype = dtype;
            options.mean = mean;
            options.rstd = rstd;
            options.gamma = gamma;
            options.dx = dx;
            options.dgamma = kFloats[seed % 3];
            options.dbeta = kFloats[seed / 3 % 3];
            run_and_check({5, 37}, options, ++seed);
          }
        }
      }
    }
  }
}

TEST(LayerNormBackward, EveryMask) {
  for (int mask = 0; mask < 8; ++mask) {
    // The third has a last slab that is half as long as others.
    for (const Dims& dims : {Dims{20, 35}, Dims{3, 9000}, Dims{3841, 64}}) {
      Options options;
      for (int i = 0; i < 3; ++i) options.want[i] = (mask >> i & 1) != 0;
      SCOPED_TRACE("mask " + std::to_string(mask));
      run_and_check(dims, options);
    }
  }
}

TEST(LayerNormBackward, RanksOneToEight) {
  Dims dims;
  for (size_t rank = 1; rank <= 8; ++rank) {
    dims.push_back(rank % 3 == 0 ? 3 : 2);
    for (size_t normalized = 1; normalized <= rank; ++normalized) {
      Options options;
      options.normalized = normalized;
      SCOPED_TRACE(std::to_string(rank) + " dims, " + std::to_string(normalized) + " normalized");
      run_and_check(dims, options);
    }
  }
}

TEST(LayerNormBackward, EveryStridedViewGivesTheSameBits) {
  for (const Dims& dims : {Dims{6, 5, 20}, Dims{3, 17, 33}}) {
    for (const aclDataType dtype : kFloats) {
      for (const size_t normalized : {1u, 2u}) {
        Options options = all_of(dtype);
        options.normalized = normalized;
        Problem plain(dims, options);
        ASSERT_TRUE(plain.run_it().ok());
        for (const Arrangement in : kInputArrangements) {
          for (const Arrangement out : kOutputArrangements) {
            SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
            options.in = in;
            options.out = out;
            Problem view(dims, options);
            ASSERT_TRUE(view.run_it().ok());
            view.expect_right(view.exact());
            if (in != Arrangement::kBroadcast) {
              expect_same_bits("view", view.output_bits(), plain.output_bits());
            }
          }
        }
      }
    }
  }
}

// How dy, x and dx lie.
struct Forms {
  Form dy, x, dx;
};
constexpr Forms kForms[] = {{Form::kPadded, Form::kPadded, Form::kPadded},
                            {Form::kPermuted, Form::kContiguous, Form::kContiguous},
                            {Form::kContiguous, Form::kReversed, Form::kContiguous},
                            {Form::kContiguous, Form::kContiguous, Form::kPermuted},
                            {Form::kRepeated, Form::kPermuted, Form::kReversed},
                            {Form::kPadded, Form::kRepeated, Form::kContiguous}};

// A view gives the bits and needs the workspace of contiguous tensors with its values, so nothing
// of it is packed.
void expect_like_contiguous(const Dims& dims, Options options, const Forms& forms) {
  SCOPED_TRACE(std::string(dtype_short_name(options.dtype)) + " of " +
               std::to_string(Problem::count(dims)) + " elements, last of " +
               std::to_string(dims.back()));
  Problem plain(dims, options);
  options.dy_strides = form_strides(dims, forms.dy);
  options.x_strides = form_strides(dims, forms.x);
  options.dx_strides = form_strides(dims, forms.dx);
  Problem view(dims, options);
  plain.dy.fill(view.dy.values());
  plain.x.fill(view.x.values());
  const Outcome expected = plain.run_it();
  ASSERT_TRUE(expected.ok()) << expected;
  const Outcome outcome = view.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  if (!aclgrad_has_device_queues()) {  // a GPU takes rows that are one run; others are packed
    EXPECT_EQ(outcome.workspace_size, expected.workspace_size);
  }
  expect_same_bits("view", view.output_bits(), plain.output_bits());
  if (options.want[0]) {
    EXPECT_TRUE(view.dx.untouched_outside());
  }
}

// Short rows, around the chunks of both visits, a slab's groups of rows, panels; the last dimension
// long, short and of one element.
struct Segmented {
  Dims dims;
  size_t normalized;
};
const std::vector<Segmented>& segmented_shapes() {
  static const std::vector<Segmented> shapes = {
      {{3, 5, 3}, 2},    {{17, 4, 4}, 2},     {{5, 3, 11}, 2},     {{18, 8, 8}, 2},
      {{4, 16, 32}, 2},  {{21, 27, 19}, 2},   {{3, 93, 11}, 2},    {{17, 32, 32}, 2},
      {{6, 25, 41}, 2},  {{40, 3, 700}, 2},   {{2, 3, 4100}, 2},   {{17, 3001, 3}, 2},
      {{3, 5, 1}, 2},    {{19, 2, 3, 7}, 3},  {{20, 3, 19, 9}, 3}, {{5, 7, 3, 50}, 3},
      {{3, 6, 5, 1}, 3}, {{2, 3, 5, 700}, 3}, {{3, 4, 5, 37}, 2},  {{2, 2, 3, 4100}, 2},
      {{3, 5, 4, 33}, 4}};
  return shapes;
}

TEST(LayerNormBackward, OnlyTheLastDimensionNeedBeContiguousToRunInPlace) {
  for (const Segmented& shape : segmented_shapes()) {
    for (const aclDataType dtype : kFloats) {
      for (const Forms& forms : kForms) {
        Options options = all_of(dtype);
        options.normalized = shape.normalized;
        expect_like_contiguous(shape.dims, options, forms);
      }
    }
  }
}

TEST(LayerNormBackward, SegmentedRowsOnEveryTargetWithEveryDtypeAndMask) {
  for_each_target([](const std::string&) {
    for (const Dims& dims : {Dims{19, 11, 47}, Dims{3, 3, 2800}}) {
      for (const Forms& forms : {kForms[0], kForms[4]}) {
        for (const aclDataType dtype : kFloats) {
          Options options = all_of(dtype);
          options.normalized = 2;
          for (const aclDataType dx : kFloats) {
            options.dx = dx;
            expect_like_contiguous(dims, options, forms);
          }
          for (int mask = 1; mask < 8; ++mask) {
            for (int i = 0; i < 3; ++i) options.want[i] = (mask >> i & 1) != 0;
            expect_like_contiguous(dims, options, forms);
          }
        }
      }
    }
  });
}

TEST(LayerNormBackward, SegmentedRowsOverwrittenInPlace) {
  for (const Dims& dims : {Dims{37, 3, 200}, Dims{21, 9, 4}, Dims{3, 3, 2900}}) {
    for (const aclDataType dtype : kFloats) {
      for (const Form form : {Form::kPadded, Form::kPermuted}) {
        Options options = all_of(dtype);
        options.normalized = 2;
        Problem apart(dims, options);
        const Outcome expected = apart.run_it();
        ASSERT_TRUE(expected.ok()) << expected;
        options.dy_strides = options.x_strides = form_strides(dims, form);
        for (const bool on_dy : {true, false}) {
          Problem same(dims, options);
          const Outcome outcome = run(
              [&](uint64_t* size, aclOpExecutor** executor) {
                return same.plan(size, executor, on_dy ? same.dy.handle() : same.x.handle());
              },
              aclnnLayerNormBackward);
          ASSERT_TRUE(outcome.ok()) << outcome;
          if (!aclgrad_has_device_queues()) {  // as in expect_like_contiguous()
            EXPECT_EQ(outcome.workspace_size, expected.workspace_size);
          }
          expect_same_bits("dx", (on_dy ? same.dy : same.x).bits(), apart.dx.bits());
          expect_same_bits("dgamma", same.dgamma.bits(), apart.dgamma.bits());
          expect_same_bits("dbeta", same.dbeta.bits(), apart.dbeta.bits());
        }
      }
    }
  }
}

TEST(LayerNormBackward, InPlaceOnGradOutOrInputGivesTheSameBits) {
  for (const Dims& dims : {Dims{100, 300}, Dims{3, 9000}, Dims{40, 3000}}) {
    for (const aclDataType dtype : kFloats) {
      Problem apart(dims, all_of(dtype));
      ASSERT_TRUE(apart.run_it().ok());
      for (const bool on_dy : {true, false}) {
        Problem same(dims, all_of(dtype));
        const Tensor& out = on_dy ? same.dy : same.x;
        const Outcome outcome = same.run_it(out.handle());
        ASSERT_TRUE(outcome.ok()) << outcome;
        expect_same_bits("dx", out.bits(), apart.dx.bits());
        expect_same_bits("dgamma", same.dgamma.bits(), apart.dgamma.bits());
        expect_same_bits("dbeta", same.dbeta.bits(), apart.dbeta.bits());
      }
    }
  }
}

TEST(LayerNormBackward, EmptyTensors) {
  Problem no_rows({0, 5}, Options());
  ASSERT_TRUE(no_rows.run_it().ok());
  EXPECT_EQ(no_rows.dgamma.values(), std::vector<double>(5, 0.0));
  EXPECT_EQ(no_rows.dbeta.values(), std::vector<double>(5, 0.0));
  Problem no_columns({5, 0}, Options());
  ASSERT_TRUE(no_columns.run_it().ok());
  Problem nothing({0, 0}, Options());
  ASSERT_TRUE(nothing.run_it().ok());
}

TEST(LayerNormBackward, NanInfAndSubnormalsFlowAsTheFormulaHasThem) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double special : {inf, -inf, nan}) {
    for (const int where : {0, 1, 2, 3, 4}) {
      for (const aclDataType dtype : kFloats) {
        for (const Dims& dims : {Dims{19, 21}, Dims{6, 1300}}) {  // sixteen rows together; few
          Problem problem(dims, all_of(dtype));
          Tensor* tensors[] = {&problem.dy, &problem.x, &problem.mean, &problem.rstd,
                               &problem.gamma};
          std::vector<double> values = tensors[where]->values();
          values[3] = special;
          tensors[where]->fill(values);
          ASSERT_TRUE(problem.run_it().ok());
          problem.expect_right(problem.exact());
        }
      }
    }
  }
  Problem tiny({4, 40}, Options());
  tiny.dy.fill_uniform(3, 0x1p-149, 0x1p-128);
  tiny.x.fill_uniform(4, -0x1p-130, 0x1p-128);
  tiny.mean.fill_constant(0.0);
  ASSERT_TRUE(tiny.run_it().ok());
  tiny.expect_right(tiny.exact());
}

// FP32 has no number for dy * gamma, which an infinity multiplies all the same.
TEST(LayerNormBackward, InfinityBesideAProductThatUnderflows) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    for (const Dims& dims : {Dims{19, 21}, Dims{20, 1300}, Dims{3, 9000}}) {
      SCOPED_TRACE(std::to_string(dims[1]) + " columns");
      Problem problem(dims, all_of(dtype));
      std::vector<double> x = problem.x.values(), dy = problem.dy.values();
      std::vector<double> gamma = problem.gamma.values();
      const auto cols = static_cast<size_t>(dims[1]);
      gamma[5] = 1e-20;
      for (size_t row = 0; row < 3; ++row) {
        x[row * cols + 5] = row == 1 ? -inf : inf;
        dy[row * cols + 5] = row == 2 ? 0.0 : 1e-30;
      }
      problem.x.fill(x);
      problem.dy.fill(dy);
      problem.gamma.fill(gamma);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
      expect_same_bits_everywhere([&] { return problem.run_it(); },
                                  {&problem.dx, &problem.dgamma, &problem.dbeta});
    }
  }
}

// Sizes from 1e12 down to the least subnormals, another one for every row of every tensor; now and
// then an element of another size, a zero, or a row that is its mean. Nothing overflows.
void fill_with_every_size(Problem& problem, uint64_t seed) {
  Random random(seed);
  const std::vector<double> tiny = {1e-30, 1e-36, 1e-39, 1e-40, 1e-42, 1e-44};
  const auto size = [&](std::initializer_list<double> ordinary) {
    return random.chance(0.6) ? random.pick(tiny) : random.pick(std::vector<double>(ordinary));
  };
  const auto draw = [&](double usual) {
    if (random.chance(0.1)) return 0.0;
    const double scale = random.chance(0.05) ? size({1.0, 1e-20}) : usual;
    return random.normal() * scale;
  };
  const size_t rows = Problem::count(problem.head), cols = Problem::count(problem.tail);
  std::vector<double> dy, x, mean, rstd, gamma;
  const double gamma_size = random.chance(0.5) ? 1.0 : size({1e4, 1e-20});
  for (size_t c = 0; c < cols; ++c) gamma.push_back(draw(gamma_size));
  for (size_t r = 0; r < rows; ++r) {
    const double most = problem.options.dtype == ACL_FLOAT16 ? 1e3 : 1e12;
    const double dy_size = random.chance(0.1) ? 0.0 : std::min(size({1.0, 1e4, 1e12}), most);
    const double x_size = size({1.0, 1e-20});
    mean.push_back(random.chance(0.3) ? 0.0 : random.normal() * x_size);
    rstd.push_back(random.pick(std::vector<double>{0.5, -316.0, 316.0, 1e6, 1e-42}));
    const bool constant = random.chance(0.1);
    for (size_t c = 0; c < cols; ++c) {
      dy.push_back(draw(dy_size));
      x.push_back(constant ? mean.back() : draw(x_size));
    }
  }
  problem.dy.fill(dy);
  problem.x.fill(x);
  problem.mean.fill(mean);
  problem.rstd.fill(rstd);
  problem.gamma.fill(gamma);
}

// Short and long rows, gathered ones, several tiles, slabs and panels.
const std::vector<Segmented>& shapes_with_every_size() {
  static const std::vector<Segmented> shapes = {
      {{5, 7}, 1},     {{37, 24}, 1},     {{70, 33}, 1},  {{19, 1300}, 1}, {{21, 9, 5}, 2},
      {{6, 3, 40}, 2}, {{18, 25, 41}, 2}, {{3, 9000}, 1}, {{40, 1100}, 1}, {{3, 3, 2900}, 2}};
  return shapes;
}

TEST(LayerNormBackward, SubnormalIntermediatesHoldTheToleranceWithTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(1);
  for (const Segmented& shape : shapes_with_every_size()) {
    for (const aclDataType dtype : kFloats) {
      for (const std::optional<aclDataType> gamma :
           {std::optional<aclDataType>(), std::optional(ACL_FLOAT), std::optional(dtype)}) {
        Options options = all_of(dtype);
        options.gamma = gamma;
        options.normalized = shape.normalized;
        options.dx = options.dgamma = seed % 2 == 0 ? ACL_FLOAT : dtype;
        SCOPED_TRACE(replay(++seed));
        Problem problem(shape.dims, options);
        fill_with_every_size(problem, seed);
        const Outcome outcome = problem.run_it();
        ASSERT_TRUE(outcome.ok()) << outcome;
        problem.expect_right(problem.exact());
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      }
    }
  }
}

TEST(LayerNormBackward, SubnormalIntermediatesHaveTheSameBitsInEveryViewMaskAndPlace) {
  uint64_t seed = seed_of_test(100);
  for (const Segmented& shape : shapes_with_every_size()) {
    SCOPED_TRACE(replay(++seed));
    Options options = all_of(seed % 3 == 0 ? ACL_BF16 : ACL_FLOAT);
    options.gamma = ACL_FLOAT;
    options.normalized = shape.normalized;
    Problem plain(shape.dims, options);
    fill_with_every_size(plain, seed);
    ASSERT_TRUE(plain.run_it().ok());
    for (const Form form : {Form::kPadded, Form::kPermuted, Form::kReversed}) {
      options.dy_strides = options.x_strides = form_strides(shape.dims, form);
      options.dx_strides = form_strides(shape.dims, Form::kPadded);
      Problem view(shape.dims, options);
      fill_with_every_size(view, seed);
      ASSERT_TRUE(view.run_it().ok());
      expect_same_bits("view", view.output_bits(), plain.output_bits());
      for (const bool on_dy : {true, false}) {
        Problem same(shape.dims, options);
        fill_with_every_size(same, seed);
        const Outcome outcome = run(
            [&](uint64_t* size, aclOpExecutor** executor) {
              return same.plan(size, executor, on_dy ? same.dy.handle() : same.x.handle());
            },
            aclnnLayerNormBackward);
        ASSERT_TRUE(outcome.ok()) << outcome;
        expect_same_bits("dx", (on_dy ? same.dy : same.x).bits(), plain.dx.bits());
        expect_same_bits("dgamma", same.dgamma.bits(), plain.dgamma.bits());
        expect_same_bits("dbeta", same.dbeta.bits(), plain.dbeta.bits());
      }
    }
    for (const size_t wanted : {0u, 1u}) {
      Options one = plain.options;
      for (size_t i = 0; i < 3; ++i) one.want[i] = i == wanted;
      Problem alone(shape.dims, one);
      fill_with_every_size(alone, seed);
      ASSERT_TRUE(alone.run_it().ok());
      const auto output = [&](const Problem& p) {
        return wanted == 0 ? p.dx.bits() : p.dgamma.bits();
      };
      expect_same_bits("alone", output(alone), output(plain));
    }
  }
}

// Padding beside other rows: all of x is 0, every dy is, or both; and, at last, what resembles it.
TEST(LayerNormBackward, RowsOfZerosHaveTheSameBitsEverywhere) {
  uint64_t seed = seed_of_test(300);
  for (const Dims& dims : {Dims{41, 1}, Dims{41, 24}, Dims{37, 64}, Dims{35, 192}, Dims{20, 1300},
                           Dims{9, 9000}, Dims{5, 66000}}) {
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(replay(++seed));
      Problem problem(dims, all_of(dtype), seed);
      std::vector<double> x = problem.x.values(), dy = problem.dy.values();
      std::vector<double> mean = problem.mean.values();
      const size_t rows = mean.size(), cols = x.size() / rows;
      for (size_t r = 0; r < rows; ++r) {
        const size_t kind = r % 5;
        const auto begin = static_cast<std::ptrdiff_t>(r * cols),
                   size = static_cast<std::ptrdiff_t>(cols);
        if (kind % 2 == 0) mean[r] = 0.0;
        if (kind % 2 == 0) std::fill_n(x.begin() + begin, size, kind == 2 ? -0.0 : 0.0);
        if (kind == 1 || kind == 2) std::fill_n(dy.begin() + begin, size, 0.0);
        if (kind == 4) {  // a g that FP32 rounds by much
          for (size_t c = 0; c < cols; ++c) dy[r * cols + c] *= 1e-43;
        }
      }
      problem.x.fill(x);
      problem.dy.fill(dy);
      problem.mean.fill(mean);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
      expect_same_bits_everywhere([&] { return problem.run_it(); },
                                  {&problem.dx, &problem.dgamma, &problem.dbeta});
    }
  }
}

// A gamma of 0 hides what is not: the sums of these rows are those of padding, but xhat loses most
// of its digits in FP32, which shows in dgamma.
TEST(LayerNormBackward, RowsOfZerosButForOneElement) {
  for (const bool in_x : {true, false}) {
    for (const Dims& dims : {Dims{37, 24}, Dims{20, 1300}, Dims{3, 9000}}) {
      Problem problem(dims, Options());
      std::vector<double> x(problem.x.values().size()), dy = problem.dy.values();
      std::vector<double> gamma = problem.gamma.values();
      const size_t cols = gamma.size();
      gamma[cols - 1] = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        const bool last = i % cols == cols - 1;
        if (last || !in_x) x[i] = 1.23e-43;
        if (!last && !in_x) dy[i] = 0.0;
        if (last) dy[i] *= 1e4;
      }
      problem.x.fill(x);
      problem.dy.fill(dy);
      problem.gamma.fill(gamma);
      problem.mean.fill_constant(0.0);
      problem.rstd.fill_constant(0.7);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
    }
  }
}

TEST(LayerNormBackward, RowsOfZerosBesideAnInfiniteSumOfGradients) {
  for (const Dims& dims :
       {Dims{3, 8}, Dims{37, 24}, Dims{20, 1300}, Dims{3, 9000}, Dims{3, 66000}}) {
    Options options;
    options.gamma.reset();
    options.want[2] = false;  // dbeta is infinite
    Problem problem(dims, options);
    problem.dy.fill_constant(3e38);
    problem.x.fill_constant(0.0);
    problem.mean.fill_constant(0.0);
    ASSERT_TRUE(problem.run_it().ok());
    EXPECT_EQ(problem.dx.values(), std::vector<double>(problem.dx.values().size(), 0.0));
  }
}

// What a whole problem of one kind gives, by hand.
TEST(LayerNormBackward, SubnormalFactorsBesideLargeOnes) {
  struct Sizes {
    double dy, x, rstd, gamma;
  };
  for (const Sizes& sizes : {Sizes{1e4, 1e-40, 1.0, 1.0}, Sizes{1e-40, 1.0, 316.0, 1.0},
                             Sizes{1.0, 1.0, 1e6, 1e-42}, Sizes{1e12, 1e-43, 10.0, 1e-40},
                             Sizes{1e-43, 1e-43, 1e6, 1.0}, Sizes{1e-43, 0.0, 1e6, 0.3}}) {
    for (const Dims& dims : {Dims{6, 50}, Dims{3, 9000}}) {
      Problem problem(dims, Options());
      problem.dy.fill_normal(3, 0.0, sizes.dy);
      problem.x.fill_normal(4, 0.0, sizes.x);
      problem.mean.fill_constant(0.0);
      problem.rstd.fill_constant(sizes.rstd);
      problem.gamma.fill_normal(5, 0.0, sizes.gamma);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(problem.exact());
    }
  }
}

// g * (x - mean), whose sum rstd multiplies, is out of FP32's range at either end, but not g *
// xhat; in the last ones an infinite xhat meets a dy of 0, which is no number in dgamma.
TEST(LayerNormBackward, DistancesOfAnySizeBesideTheRstdThatUndoesThem) {
  struct Sizes {
    double dy, x, rstd;
  };
  for (const Sizes& sizes :
       {Sizes{1e12, 1e30, 1e-30}, Sizes{1e-25, 1e-20, 1e20}, Sizes{1e-30, 1e-35, 1e35},
        Sizes{0.0, 1e30, 1e30}, Sizes{0.0, 1e30, 1e18}, Sizes{0.0, 1e18, 1e30}}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
      for (const Dims& dims : {Dims{19, 21}, Dims{20, 1300}, Dims{3, 9000}}) {
        SCOPED_TRACE(std::to_string(dims[1]) + " columns, x " + std::to_string(sizes.x));
        Options options = all_of(dtype);
        options.want[1] = sizes.dy != 0.0;
        Problem problem(dims, options);
        problem.dy.fill_normal(3, 0.0, sizes.dy);
        problem.x.fill_normal(4, 0.0, sizes.x);
        problem.mean.fill_constant(0.0);
        problem.rstd.fill_constant(sizes.rstd);
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right(problem.exact());
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      }
    }
  }
}

// The same beside an infinity, and an infinite rstd, of which every term is infinite or no number.
TEST(LayerNormBackward, InfinitiesBesideDistancesOfAnySize) {
  const double inf = std::numeric_limits<double>::infinity();
  struct Row {
    double dy[2], x[2], rstd;
  };
  for (const Row& row :
       {Row{{1.0, -1e20}, {inf, 1e30}, 1e-20}, Row{{inf, -1e20}, {1.0, 1e30}, 1e-20},
        Row{{1.0, 1.0}, {inf, 1.0}, inf}, Row{{inf, 1.0}, {1.0, 1.0}, inf}}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
      for (const Dims& dims : {Dims{3, 8}, Dims{19, 21}, Dims{20, 1300}, Dims{3, 9000}}) {
        SCOPED_TRACE(std::to_string(dims[1]) + " columns, rstd " + std::to_string(row.rstd));
        Problem problem(dims, all_of(dtype));
        std::vector<double> dy = problem.dy.values(), x = problem.x.values();
        std::vector<double> rstd = problem.rstd.values();
        const auto cols = static_cast<size_t>(dims[1]);
        std::copy_n(row.dy, 2, dy.begin() + static_cast<ptrdiff_t>(cols));
        std::copy_n(row.x, 2, x.begin() + static_cast<ptrdiff_t>(cols));
        rstd[1] = row.rstd;
        problem.dy.fill(dy);
        problem.x.fill(x);
        problem.mean.fill_constant(0.0);
        problem.rstd.fill(rstd);
        problem.gamma.fill_constant(1.0);
        ASSERT_TRUE(problem.run_it().ok());
        problem.expect_right(problem.exact());
        expect_same_bits_everywhere([&] { return problem.run_it(); },
                                    {&problem.dx, &problem.dgamma, &problem.dbeta});
      }
    }
  }
}

// Products that underflow leave -0 in a chain that began with +0; the mean is +0, on GPUs as well.
TEST(LayerNormBackward, AMeanOfNothingButUnderflowsIsPositiveZero) {
  for (const int64_t cols : {128, 256, 1024}) {
    Problem problem({1, cols}, all_of(ACL_FLOAT));
    std::vector<double> dy(static_cast<size_t>(cols), -0.0);
    std::vector<double> x(static_cast<size_t>(cols), 0x1p-100);
    for (size_t c = 0; c < 64; ++c) {
      dy[c] = c % 2 == 0 ? -0.375 : 0.375;
      x[c] = c % 2 == 0 ? 0x1p-149 : -0x1p-149;
    }
    problem.dy.fill(dy);
    problem.x.fill(x);
    problem.mean.fill_constant(0.0);
    problem.rstd.fill_constant(1.0);
    problem.gamma.fill_constant(1.0);
    ASSERT_TRUE(problem.run_it().ok());
    const std::vector<double> dx = problem.dx.values();
    EXPECT_EQ(dx.back(), 0.0);
    EXPECT_TRUE(std::signbit(dx.back()));
  }
}

// Outputs that do not fit the cache bypass it: rows of whole lines, and rows that are gathered
// first.
TEST(LayerNormBackward, StreamedOutputsAreRight) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  run_and_check({190001, 24}, all_of(ACL_FLOAT));
  run_and_check({140001, 61}, all_of(ACL_BF16));
  run_and_check({42000, 200}, all_of(ACL_FLOAT16));
  run_and_check({4200, 1001}, all_of(ACL_FLOAT));
  // Several together, two, and one.
  run_and_check({2100, 4095}, all_of(ACL_BF16));
  run_and_check({520, 8191}, all_of(ACL_FLOAT));
  run_and_check({261, 16383}, all_of(ACL_FLOAT));
  Options segmented = all_of(ACL_FLOAT);
  segmented.normalized = 2;
  for (const Dims& dims : {Dims{4200, 7, 143}, Dims{4200, 8, 128}}) {
    expect_like_contiguous(dims, segmented, {Form::kPadded, Form::kPermuted, Form::kContiguous});
    expect_like_contiguous(dims, segmented, {Form::kContiguous, Form::kPadded, Form::kPadded});
  }
}

// Rows of whole lines past the caches, in every dtype and on every target.
TEST(LayerNormBackward, StreamedLinesHaveTheSameBitsEverywhere) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
    SCOPED_TRACE(dtype_short_name(dtype));
    Problem problem({dtype == ACL_FLOAT ? 4200 : 8400, 1024}, all_of(dtype));
    ASSERT_TRUE(problem.run_it().ok());
    problem.expect_right(problem.exact());
    expect_same_bits_everywhere([&] { return problem.run_it(); },
                                {&problem.dx, &problem.dgamma, &problem.dbeta});
  }
}

// Rows that share lines and rows of whole ones, in each order that visits may have, on every
// target: a NaN, rows that take FP64, one whose mean is 0 and padding are among them.
TEST(LayerNormBackward, StreamedRowsBesideUnusualOnesAreRight) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const std::vector<std::pair<Dims, aclDataType>> cases = {
      {{135001, 33}, ACL_FLOAT}, {{290001, 31}, ACL_BF16}, {{145001, 63}, ACL_FLOAT16},
      {{66001, 64}, ACL_FLOAT},  {{44010, 192}, ACL_BF16}, {{8201, 1023}, ACL_FLOAT16},
      {{11001, 384}, ACL_FLOAT}, {{4103, 2112}, ACL_BF16}, {{3301, 1299}, ACL_FLOAT}};
  for (const auto& [dims, dtype] : cases) {
    SCOPED_TRACE(std::to_string(dims[1]) + " columns");
    const auto rows = static_cast<size_t>(dims[0]);
    const size_t line = dtype == ACL_FLOAT ? 16 : 32;
    Options options = all_of(dtype);
    if (static_cast<size_t>(dims[1]) % line != 0) options.out = Arrangement::kOffset;
    Problem problem(dims, options);
    const auto cols = static_cast<size_t>(dims[1]);
    std::vector<double> x = problem.x.values(), dy = problem.dy.values();
    std::vector<double> mean = problem.mean.values();
    x[1000 * cols + 7] = std::numeric_limits<double>::quiet_NaN();
    for (size_t row : {size_t{2000}, size_t{2001}, rows - 1}) {
      mean[row] = 0.0;
      for (size_t c = 0; c < cols; ++c) {
        x[row * cols + c] *= dtype == ACL_FLOAT16 ? 0x1p-20 : 1e-38;
        dy[row * cols + c] *= dtype == ACL_FLOAT16 ? 0x1p-20 : 1e-38;
      }
    }
    mean[3000] = 0.0;
    for (size_t row = 2500; row < 2600; row += 3) {  // padding
      mean[row] = 0.0;
      std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(row * cols), cols, 0.0);
      std::fill_n(dy.begin() + static_cast<std::ptrdiff_t>((row + 1) * cols), cols, 0.0);
    }
    problem.x.fill(x);
    problem.dy.fill(dy);
    problem.mean.fill(mean);
    const Reference exact = problem.exact();
    const Tensor* const outputs[] = {&problem.dx, &problem.dgamma, &problem.dbeta};
    std::vector<std::vector<uint8_t>> bits;
    for_each_target([&](const std::string& target) {
      SCOPED_TRACE(target);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(exact);
      EXPECT_TRUE(problem.dx.untouched_outside());
      for (size_t i = 0; i < std::size(outputs); ++i) {
        if (bits.size() < std::size(outputs)) bits.push_back(outputs[i]->bits());
        expect_same_bits("another target's", outputs[i]->bits(), bits[i]);
      }
    });
  }
}

// The same in place and with gaps between rows, or with one row for all.
TEST(LayerNormBackward, StreamedRowsInOtherViewsHaveTheSameBits) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const Dims dims = {4401, 1024};
  Options options = all_of(ACL_FLOAT);
  Problem apart(dims, options);
  ASSERT_TRUE(apart.run_it().ok());
  for (const bool on_dy : {true, false}) {
    Problem same(dims, options);
    const Tensor& out = on_dy ? same.dy : same.x;
    ASSERT_TRUE(same.run_it(out.handle()).ok());
    expect_same_bits("in place", out.bits(), apart.dx.bits());
    expect_same_bits("gradWeightOut", same.dgamma.bits(), apart.dgamma.bits());
  }
  options.dy_strides = {1040, 1};
  options.dx_strides = {1031, 1};
  Problem spaced(dims, options);
  ASSERT_TRUE(spaced.run_it().ok());
  expect_same_bits("with gaps", spaced.dx.bits(), apart.dx.bits());
  expect_same_bits("gradWeightOut", spaced.dgamma.bits(), apart.dgamma.bits());
  options.x_strides = {0, 1};
  options.dx_strides = {};
  Problem repeated(dims, options);
  ASSERT_TRUE(repeated.run_it().ok());
  expect_same_bits_everywhere([&] { return repeated.run_it(); },
                              {&repeated.dx, &repeated.dgamma, &repeated.dbeta});
}

// Wide rows pass in batches of a row block, or of half of one, where dx is wanted.
TEST(LayerNormBackward, BatchesOfWideRowsGiveTheSumsOfAllRows) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const auto& [dims, dtype] :
       {std::pair(Dims{40, 110001}, ACL_FLOAT), std::pair(Dims{50, 240001}, ACL_FLOAT),
        std::pair(Dims{75, 120001}, ACL_BF16)}) {
    SCOPED_TRACE(std::to_string(dims[1]) + " columns");
    Problem batched(dims, all_of(dtype));
    ASSERT_TRUE(batched.run_it().ok());
    batched.expect_right(batched.exact());
    Options without_dx = all_of(dtype);
    without_dx.want[0] = false;
    Problem together(dims, without_dx);
    ASSERT_TRUE(together.run_it().ok());
    expect_same_bits("dgamma", batched.dgamma.bits(), together.dgamma.bits());
    expect_same_bits("dbeta", batched.dbeta.bits(), together.dbeta.bits());
  }
}

TEST(LayerNormBackward, AMillionTermsAndConstantColumnsHoldTheTolerance) {
  // A row of two elements occupies sixteen threads of a GPU, which take minutes to emulate.
  const int64_t many = aclgrad_has_device_queues() ? 50000 : 1000000;
  for (const Dims& dims : {Dims{many, 2}, Dims{2, 1000000}}) {
    run_and_check(dims, Options());
    Problem constant(dims, Options());
    constant.dy.fill_constant(0.1);
    constant.x.fill_constant(1.1);
    constant.mean.fill_constant(1.0);
    constant.rstd.fill_constant(1.0);
    constant.gamma.fill_constant(1.0);
    ASSERT_TRUE(constant.run_it().ok());
    constant.expect_right(constant.exact());
  }
}

// The workspace that phase one plans for tensors whose addresses are not known yet.
uint64_t planned_workspace(int64_t rows, int64_t cols, aclDataType dtype) {
  const auto tensor = [](std::vector<int64_t> dims, aclDataType type) {
    return aclCreateTensor(dims.data(), dims.size(), type, nullptr, 0, ACL_FORMAT_ND, dims.data(),
                           dims.size(), nullptr);
  };
  aclTensor* tensors[] = {tensor({rows, cols}, dtype),  tensor({rows, cols}, dtype),
                          tensor({rows, 1}, ACL_FLOAT), tensor({rows, 1}, ACL_FLOAT),
                          tensor({cols}, dtype),        tensor({rows, cols}, dtype),
                          tensor({cols}, dtype),        tensor({cols}, dtype)};
  const auto [dy, x, mean, rstd, gamma, dx, dgamma, dbeta] = tensors;
  aclIntArray* normalized_shape = aclCreateIntArray(&cols, 1);
  const bool all[] = {true, true, true};
  aclBoolArray* mask = aclCreateBoolArray(all, 3);
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  require(
      aclnnLayerNormBackwardGetWorkspaceSize(dy, x, normalized_shape, mean, rstd, gamma, nullptr,
                                             mask, dx, dgamma, dbeta, &workspace, &executor),
      "aclnnLayerNormBackwardGetWorkspaceSize");
  require(aclSetAclOpExecutorRepeatable(executor), "aclSetAclOpExecutorRepeatable");
  require(aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor");
  for (aclTensor* each : tensors) aclDestroyTensor(each);
  aclDestroyIntArray(normalized_shape);
  aclDestroyBoolArray(mask);
  return workspace;
}

TEST(LayerNormBackward, LargeOperandsHaveAWorkspaceOfAtMostATwentiethOfThem) {
  // Chains and row numbers of a GPU take up to a sixth: its memory is not the limit.
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's plan";
  constexpr int64_t kShapes[][2] = {{8192, 4096}, {2048, 12288}, {32768, 768},  {200704, 192},
                                    {400000, 64}, {1024, 20000}, {2000, 8000},  {300, 60000},
                                    {20, 600000}, {64, 200000},  {12000000, 1}, {40, 110000},
                                    {67, 200000}, {51, 240000},  {100, 240000}};
  for (const auto& [rows, cols] : kShapes) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
      const uint64_t element = dtype == ACL_FLOAT ? 4 : 2;
      const uint64_t operands = 3 * element * static_cast<uint64_t>(rows * cols);
      EXPECT_LE(20 * planned_workspace(rows, cols, dtype), operands)
          << rows << "x" << cols << ", " << element << " bytes an element";
    }
  }
}

TEST(LayerNormBackward, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({33, 100}, all_of(ACL_FLOAT16));
  ASSERT_TRUE(problem.run_it().ok());
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); },
                                       {&problem.dx, &problem.dgamma, &problem.dbeta});
}

// The gradient against central differences of L = sum(dy * layer_norm(x)) in double.
TEST(LayerNormBackward, FiniteDifferences) {
  constexpr size_t kCols = 7;
  Problem problem({1, kCols}, Options());
  std::vector<double> x = problem.x.values();
  const std::vector<double> dy = problem.dy.values();
  const auto gamma = problem.gamma.values();
  const auto statistics = [](const std::vector<double>& v) {
    double mean = 0, variance = 0;
    for (const double value : v) mean += value / kCols;
    for (const double value : v) variance += (value - mean) * (value - mean) / kCols;
    return std::pair(mean, 1.0 / std::sqrt(variance + 1e-5));
  };
  const auto loss = [&](const std::vector<double>& v, const std::vector<double>& w) {
    const auto [mean, rstd] = statistics(v);
    double sum = 0;
    for (size_t i = 0; i < kCols; ++i) sum += dy[i] * (v[i] - mean) * rstd * w[i];
    return sum;
  };
  const auto [mean, rstd] = statistics(x);
  problem.mean.fill({mean});
  problem.rstd.fill({rstd});
  ASSERT_TRUE(problem.run_it().ok());
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < kCols; ++i) {
    std::vector<double> up = x, down = x, gamma_up = gamma, gamma_down = gamma;
    up[i] += kStep;
    down[i] -= kStep;
    gamma_up[i] += kStep;
    gamma_down[i] -= kStep;
    EXPECT_NEAR(problem.dx.values()[i], (loss(up, gamma) - loss(down, gamma)) / (2 * kStep), 2e-5);
    EXPECT_NEAR(problem.dgamma.values()[i], (loss(x, gamma_up) - loss(x, gamma_down)) / (2 * kStep),
                2e-5);
  }
}

}  // namespace
}  // namespace aclgrad::test

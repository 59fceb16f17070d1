// SPDX-License-Identifier: Apache-2.0
// LayerNorm of tensors that lie in any way: the bits of contiguous ones, and no copy of them.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ops/layer_norm/test_problem.h"
#include "runtime/services.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

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

}  // namespace
}  // namespace aclgrad::test

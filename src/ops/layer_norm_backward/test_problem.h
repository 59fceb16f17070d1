// SPDX-License-Identifier: Apache-2.0
// A problem of LayerNormBackward with random data, its two phases and what it must give.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aclnnop/aclnn_layer_norm_backward.h"
#include "ops/layer_norm_backward/reference.h"
#include "runtime/services.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

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

inline Options all_of(aclDataType dtype) {
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

inline void run_and_check(const Dims& dims, const Options& options, uint64_t seed = 1) {
  Problem problem(dims, options, seed);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_right(problem.exact());
}

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

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
inline void expect_like_contiguous(const Dims& dims, Options options, const Forms& forms) {
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
inline const std::vector<Segmented>& segmented_shapes() {
  static const std::vector<Segmented> shapes = {
      {{3, 5, 3}, 2},    {{17, 4, 4}, 2},     {{5, 3, 11}, 2},     {{18, 8, 8}, 2},
      {{4, 16, 32}, 2},  {{21, 27, 19}, 2},   {{3, 93, 11}, 2},    {{17, 32, 32}, 2},
      {{6, 25, 41}, 2},  {{40, 3, 700}, 2},   {{2, 3, 4100}, 2},   {{17, 3001, 3}, 2},
      {{3, 5, 1}, 2},    {{19, 2, 3, 7}, 3},  {{20, 3, 19, 9}, 3}, {{5, 7, 3, 50}, 3},
      {{3, 6, 5, 1}, 3}, {{2, 3, 5, 700}, 3}, {{3, 4, 5, 37}, 2},  {{2, 2, 3, 4100}, 2},
      {{3, 5, 4, 33}, 4}};
  return shapes;
}

// The bits of contiguous tensors in every view, in place, and of each output alone. `fill` gives a
// problem its data.
template <class Fill>
void expect_same_bits_in_every_view_mask_and_place(const Dims& dims, Options options, Fill&& fill) {
  Problem plain(dims, options);
  fill(plain);
  ASSERT_TRUE(plain.run_it().ok());
  for (const Form form : {Form::kPadded, Form::kPermuted, Form::kReversed}) {
    options.dy_strides = options.x_strides = form_strides(dims, form);
    options.dx_strides = form_strides(dims, Form::kPadded);
    Problem view(dims, options);
    fill(view);
    ASSERT_TRUE(view.run_it().ok());
    expect_same_bits("view", view.output_bits(), plain.output_bits());
    if (options.dx != options.dtype) continue;  // in place dx has the type of what it replaces
    for (const bool on_dy : {true, false}) {
      Problem same(dims, options);
      fill(same);
      const Outcome outcome = same.run_it((on_dy ? same.dy : same.x).handle());
      ASSERT_TRUE(outcome.ok()) << outcome;
      expect_same_bits("dx", (on_dy ? same.dy : same.x).bits(), plain.dx.bits());
      expect_same_bits("dgamma", same.dgamma.bits(), plain.dgamma.bits());
      expect_same_bits("dbeta", same.dbeta.bits(), plain.dbeta.bits());
    }
  }
  for (const size_t wanted : {0u, 1u, 2u}) {
    Options one = plain.options;
    for (size_t i = 0; i < 3; ++i) one.want[i] = i == wanted;
    Problem alone(dims, one);
    fill(alone);
    ASSERT_TRUE(alone.run_it().ok());
    const auto output = [&](const Problem& p) {
      return (wanted == 0 ? p.dx : wanted == 1 ? p.dgamma : p.dbeta).bits();
    };
    expect_same_bits("alone", output(alone), output(plain));
  }
}

}  // namespace aclgrad::test

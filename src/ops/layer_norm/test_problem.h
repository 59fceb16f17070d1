// SPDX-License-Identifier: Apache-2.0
// A problem of LayerNorm with random data, its two phases and what it must give.
#pragma once

#include <optional>
#include <vector>

#include "aclnnop/aclnn_layer_norm.h"
#include "ops/layer_norm/reference.h"
#include "support/compare.h"
#include "support/random.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

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

inline Options all_of(aclDataType dtype) {
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
inline void fill_with_every_size(Problem& problem, uint64_t seed) {
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

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

// All up to 66, and around the lengths from which rows are taken in another way.
inline std::vector<int64_t> short_lengths(int64_t least) {
  std::vector<int64_t> lengths;
  for (int64_t cols = least; cols <= 66; ++cols) lengths.push_back(cols);
  lengths.insert(lengths.end(),
                 {70, 72, 79, 80, 81, 88, 95, 96, 97, 104, 111, 112, 113, 120, 127, 128, 129});
  return lengths;
}

}  // namespace aclgrad::test

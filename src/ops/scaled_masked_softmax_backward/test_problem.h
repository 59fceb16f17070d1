// SPDX-License-Identifier: Apache-2.0
// A problem of ScaledMaskedSoftmaxBackward with random data, its two phases and what it must give.
#pragma once

#include <algorithm>

#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "ops/scaled_masked_softmax_backward/reference.h"
#include "support/attention.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

using scaled_masked_softmax_backward::Reference;
using scaled_masked_softmax_backward::reference;
using scaled_masked_softmax_backward::Sizes;

using Options = AttentionOptions;

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Dims& dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        dy(dims, chosen.dtype, chosen.in),
        y(dims, chosen.dtype, chosen.in),
        mask(mask_dims(dims, chosen), ACL_BOOL, chosen.mask),
        dx(dims, chosen.dtype, chosen.out) {
    dy.fill_normal(seed);
    y.fill_uniform(seed + 1, 0.0, 2.0 / static_cast<double>(std::max<int64_t>(dims[3], 1)));
    fill_mask(mask, seed + 2);
  }

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor, aclTensor* out = nullptr) {
    return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
        dy.handle(), y.handle(), mask.handle(), options.scale, false,
        out == nullptr ? dx.handle() : out, size, executor);
  }
  Outcome run_it(aclTensor* out = nullptr) {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor, out); },
               aclnnScaledMaskedSoftmaxBackward);
  }
  Reference exact() const {
    const auto size = [](const Tensor& t, size_t i) { return static_cast<size_t>(t.dims()[i]); };
    const Sizes sizes{size(dx, 0), size(dx, 1),   size(dx, 2),
                      size(dx, 3), size(mask, 0), size(mask, 1)};
    return reference(sizes, dy.values(), y.values(), mask.values(), options.scale);
  }
  void expect_right() const {
    const Reference r = exact();
    expect_close("out", dx, r.dx, r.dx_magnitude, static_cast<double>(dx.dims()[3] + 2));
  }

  Options options;
  Tensor dy, y, mask, dx;
};

inline void run_and_check(const Dims& dims, const Options& options, uint64_t seed = 1) {
  Problem problem(dims, options, seed);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_right();
}

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

}  // namespace aclgrad::test

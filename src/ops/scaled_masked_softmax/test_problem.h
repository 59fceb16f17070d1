// SPDX-License-Identifier: Apache-2.0
// A problem of ScaledMaskedSoftmax with random data, its two phases and what it must give.
#pragma once

#include <vector>

#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "ops/scaled_masked_softmax/reference.h"
#include "support/attention.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

using scaled_masked_softmax::reference;
using scaled_masked_softmax::Sizes;

using Options = AttentionOptions;

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Dims& dims, const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        x(dims, chosen.dtype, chosen.in),
        mask(mask_dims(dims, chosen), ACL_BOOL, chosen.mask),
        y(dims, chosen.dtype, chosen.out) {
    x.fill_normal(seed, 0.0, 10.0);
    fill_mask(mask, seed + 2);
  }

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x.handle(), mask.handle(), options.scale, false,
                                                    y.handle(), size, executor);
  }
  Outcome run_it() {
    return run([&](uint64_t* size, aclOpExecutor** executor) { return plan(size, executor); },
               aclnnScaledMaskedSoftmax);
  }
  std::vector<double> exact() const {
    const auto size = [](const Tensor& t, size_t i) { return static_cast<size_t>(t.dims()[i]); };
    const Sizes sizes{size(y, 0), size(y, 1), size(y, 2), size(y, 3), size(mask, 0), size(mask, 1)};
    return reference(sizes, x.values(), mask.values(), options.scale);
  }
  // Half a unit in the last place, where a whole one is promised. Returns the largest error.
  double expect_right() const {
    const std::vector<double> right = exact();
    return expect_close("y", y, right, right, 2);
  }

  Options options;
  Tensor x, mask, y;
};

inline void run_and_check(const Dims& dims, const Options& options, uint64_t seed = 1) {
  Problem problem(dims, options, seed);
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  problem.expect_right();
}

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

}  // namespace aclgrad::test

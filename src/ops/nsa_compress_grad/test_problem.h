// SPDX-License-Identifier: Apache-2.0
// A problem of NsaCompressGrad with random data, its two phases and what it must give.
#pragma once

#include <string>
#include <vector>

#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "ops/nsa_compress_grad/cases.h"
#include "ops/nsa_compress_grad/reference.h"
#include "support/compare.h"
#include "support/run.h"
#include "support/same_bits.h"
#include "support/tensor.h"

namespace aclgrad::test {

using nsa_compress_grad::Case;
using nsa_compress_grad::window_starts;

inline constexpr aclDataType kFloats[] = {ACL_FLOAT16, ACL_BF16};

// Where the tensors' elements lie.
struct Views {
  Arrangement dy = Arrangement::kContiguous;
  Arrangement x = Arrangement::kContiguous;
  Arrangement w = Arrangement::kContiguous;
  Arrangement dx = Arrangement::kContiguous;
  Arrangement dw = Arrangement::kContiguous;
};

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Case& chosen, aclDataType dtype, const Views& views = {}, uint64_t seed = 1)
      : shape(chosen),
        starts(window_starts(chosen.tokens, chosen.window, chosen.step, chosen.ends)),
        dy({std::ssize(starts), chosen.heads, chosen.width}, dtype, views.dy),
        x({chosen.tokens, chosen.heads, chosen.width}, dtype, views.x),
        w({chosen.window, chosen.heads}, dtype, views.w),
        dx({chosen.tokens, chosen.heads, chosen.width}, dtype, views.dx),
        dw({chosen.window, chosen.heads}, dtype, views.dw) {
    dy.fill_normal(seed, 0.25);
    x.fill_normal(seed + 1, 0.25);
    w.fill_normal(seed + 2, 0.25);
  }

  Outcome run_it() const { return run_on(x, dx); }
  Outcome run_on(const Tensor& input, const Tensor& input_grad) const {
    const IntArray array(shape.ends);
    const aclIntArray* ends = shape.ends.empty() ? nullptr : array.handle();
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnNsaCompressGradGetWorkspaceSize(
              dy.handle(), input.handle(), w.handle(), ends, shape.window, shape.step, 0, nullptr,
              input_grad.handle(), dw.handle(), size, executor);
        },
        aclnnNsaCompressGrad);
  }
  void expect_right() const {
    const auto exact = nsa_compress_grad::reference(
        static_cast<size_t>(shape.heads), static_cast<size_t>(shape.width),
        static_cast<size_t>(shape.window), starts, dy.values(), x.values(), w.values());
    const double windows = static_cast<double>(starts.size());
    expect_close("inputGradOut", dx, exact.dx, exact.dx_magnitude, windows);
    expect_close("weightGradOut", dw, exact.dw, exact.dw_magnitude,
                 windows * static_cast<double>(shape.width));
  }
  void run_and_check() const {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }
  // Right here; the same bits on every target and for every thread count, also where the sums of dw
  // show the order of the additions.
  void run_everywhere() {
    run_and_check();
    expect_same_bits_everywhere([&] { return run_it(); }, {&dx, &dw});
    x.fill_constant(1.0);
    w.fill_constant(1.0);
    const auto width = static_cast<size_t>(shape.width);
    const auto heads = static_cast<size_t>(shape.heads);
    dy.fill_cancelling(7, [&](size_t i) { return i / width % heads; });
    ASSERT_TRUE(run_it().ok());
    expect_same_bits_everywhere([&] { return run_it(); }, {&dx, &dw});
  }
  void expect_bits_of(const Problem& other) const {
    expect_same_bits("inputGradOut", dx.bits(), other.dx.bits());
    expect_same_bits("weightGradOut", dw.bits(), other.dw.bits());
  }

  Case shape;
  std::vector<int64_t> starts;
  Tensor dy, x, w, dx, dw;
};

inline std::string describe(const Case& shape, aclDataType dtype) {
  return std::string(dtype_short_name(dtype)) + "/" + std::to_string(shape.tokens) + "x" +
         std::to_string(shape.heads) + "x" + std::to_string(shape.width) + "-l" +
         std::to_string(shape.window) + "-d" + std::to_string(shape.step) + " sequences " +
         std::to_string(shape.ends.size());
}

}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// gamma as the kernels read it.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "base/dtype.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm_backward/problem.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// gamma of columns [begin, end) as FP32 in strip order, zeros behind it to the end of the strip.
template <class T>
void prepare_gamma(const Problem& problem, const void* gamma, int64_t begin, int64_t end,
                   float* out) {
  const auto place = [&](int64_t col) { return out + strip_place<T>(static_cast<size_t>(col)); };
  if (!problem.has_gamma()) {
    for (int64_t col = begin; col < end; ++col) *place(col) = 1.0f;
  } else {
    const RowOffsets columns(problem.gamma, problem.gamma.rank);
    visit_float(problem.gamma.dtype, [&](auto type) {
      const auto* from = static_cast<const decltype(type)*>(gamma);
      for (int64_t col = begin; col < end; ++col) *place(col) = to_float(from[columns(col)]);
    });
  }
  const int64_t padded = round_up(end, static_cast<int64_t>(kStrip<T>));
  for (int64_t col = end; col < padded; ++col) *place(col) = 0.0f;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

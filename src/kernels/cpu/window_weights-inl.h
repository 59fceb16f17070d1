// SPDX-License-Identifier: Apache-2.0
// One head's weights of a window as FP32: whole vectors of them where they are dense.

#if defined(ACLGRAD_KERNELS_CPU_WINDOW_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_WINDOW_WEIGHTS_INL_H_
#undef ACLGRAD_KERNELS_CPU_WINDOW_WEIGHTS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_WINDOW_WEIGHTS_INL_H_
#endif

#include <cstdint>

#include "base/half.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// `count` of them, a multiple of sixteen, `stride` elements apart.
template <class T>
void convert_window_weights(const T* from, int64_t stride, int64_t count, float* to) {
  if (stride != 1) {
    for (int64_t j = 0; j < count; ++j) to[j] = to_float(from[j * stride]);
    return;
  }
  constexpr auto kStep = static_cast<int64_t>(kLanes);
  for (int64_t j = 0; j < count; j += kStep) store_raw(load16(from + j), to + j);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

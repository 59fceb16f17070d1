// SPDX-License-Identifier: Apache-2.0
// Loops over constants, and lambdas that are inlined by order.

#if defined(ACLGRAD_KERNELS_CPU_CONSTANTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_CONSTANTS_INL_H_
#undef ACLGRAD_KERNELS_CPU_CONSTANTS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_CONSTANTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// Behind a lambda's parameters: it is inlined by order. g++ calls what it finds too long, and what
// such a call can reach, everything that is captured, stays in memory.
#undef ACLGRAD_INLINED
#define ACLGRAD_INLINED HWY_ATTR __attribute__((always_inline))

// Calls fn with the numbers [0, N) as constants: what they index stays in registers. Where a loop
// is unrolled in its place, g++ 12 may have decided before to keep that in memory.
template <size_t N, class Fn>
HWY_INLINE void for_constants(Fn&& fn) {
  [&]<size_t... I>(std::index_sequence<I...>) ACLGRAD_INLINED {
    (fn(std::integral_constant<size_t, I>()), ...);
  }
  (std::make_index_sequence<N>());
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

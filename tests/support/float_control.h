// SPDX-License-Identifier: Apache-2.0
// The register of a core that says how floating-point numbers are rounded and whether subnormals
// count: MXCSR, or FPCR of AArch64.
#ifndef ACLGRAD_TESTS_SUPPORT_FLOAT_CONTROL_H_
#define ACLGRAD_TESTS_SUPPORT_FLOAT_CONTROL_H_

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace aclgrad::test {

#if defined(__SSE__)
inline constexpr uint64_t kSubnormalsAreZero = 0x8040;  // as results and as inputs
inline constexpr uint64_t kRoundingBits = 0x6000;
inline uint64_t float_control() { return _mm_getcsr(); }
inline void set_float_control(uint64_t bits) { _mm_setcsr(static_cast<uint32_t>(bits)); }
#else
inline constexpr uint64_t kSubnormalsAreZero = 0x1000000;
inline constexpr uint64_t kRoundingBits = 0xC00000;
inline uint64_t float_control() {
  uint64_t bits;
  asm volatile("mrs %0, fpcr" : "=r"(bits));
  return bits;
}
inline void set_float_control(uint64_t bits) { asm volatile("msr fpcr, %0" : : "r"(bits)); }
#endif

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_FLOAT_CONTROL_H_

// SPDX-License-Identifier: Apache-2.0
// The floating-point environment of kernels: round to nearest even, subnormals kept, no traps.
#ifndef ACLGRAD_BASE_FLOAT_ENVIRONMENT_H_
#define ACLGRAD_BASE_FLOAT_ENVIRONMENT_H_

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace aclgrad {

// Sets the default environment for a scope and gives the caller's back at its end. Costs about a
// nanosecond: the control register is written only where it differs. Exception flags, which nearly
// every program has raised, do not count at the beginning: they change no result.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : saved_(read()) {
    if ((saved_ & ~kFlags) != kDefault) write(kDefault);
  }
  ~DefaultFloatEnvironment() {
    // Also drops the exception flags that the kernel raised.
    if (read() != saved_) write(saved_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__SSE__)
  using Register = uint32_t;
  static constexpr Register kDefault = 0x1F80;  // all exceptions masked, RN, no FTZ, no DAZ
  static constexpr Register kFlags = 0x3F;
  static Register read() { return _mm_getcsr(); }
  static void write(Register value) { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = uint64_t;
  static constexpr Register kDefault = 0;
  static constexpr Register kFlags = 0;  // in a register of their own, which is left alone
  static Register read() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(Register value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
#error "aclgrad supports x86-64 and AArch64"
#endif
  Register saved_;
};

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_FLOAT_ENVIRONMENT_H_

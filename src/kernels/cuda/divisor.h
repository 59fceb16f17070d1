// SPDX-License-Identifier: Apache-2.0
// Division by a number that is known before the launch, by a multiplication: a GPU has no
// instruction for division. For the kernels and for tests on the host.
#ifndef ACLGRAD_KERNELS_CUDA_DIVISOR_H_
#define ACLGRAD_KERNELS_CUDA_DIVISOR_H_

#include <bit>
#include <cstdint>

namespace aclgrad::cuda {

// Of numbers below 2^31, which its own sum needs.
class Divisor {
 public:
  static constexpr int64_t kNumbers = int64_t{1} << 31;

  constexpr Divisor() = default;
  // 1 to 2^31.
  constexpr explicit Divisor(uint32_t value) : shift_(static_cast<int>(std::bit_width(value - 1))) {
    // 2^(32 + shift) / value, rounded up, without the 2^32 that is in all of them.
    const uint64_t above = (uint64_t{1} << shift_) - value;
    multiplier_ = static_cast<uint32_t>((above << 32) / value + 1);
  }

  constexpr uint32_t divide(uint32_t number) const {
    const auto high = static_cast<uint32_t>((uint64_t{number} * multiplier_) >> 32);
    return (high + number) >> shift_;
  }

 private:
  uint32_t multiplier_ = 1;  // of 1
  int shift_ = 0;
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_DIVISOR_H_

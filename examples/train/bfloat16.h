// SPDX-License-Identifier: Apache-2.0
// FP32 to BF16 and back, to nearest even.
#ifndef ACLGRAD_TRAIN_BFLOAT16_H_
#define ACLGRAD_TRAIN_BFLOAT16_H_

#include <bit>
#include <cstdint>

namespace aclgrad::train {

inline uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<uint16_t>(nan ? 0x7FC0u : rounded);
}

inline float from_bfloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_BFLOAT16_H_

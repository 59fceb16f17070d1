// SPDX-License-Identifier: Apache-2.0
// Shapes of attention scores with their mask: "8x16x512x512", batch x heads x rows x columns, whose
// heads share the mask, [8, 1, 512, 512]; "mask1x1/8x16x512x512" with the mask [1, 1, 512, 512],
// "mask8x16/..." with one for every head.
#ifndef ACLGRAD_BENCH_ATTENTION_H_
#define ACLGRAD_BENCH_ATTENTION_H_

#include <stdexcept>
#include <string>

#include "bench/bench.h"

namespace aclgrad::bench {

struct AttentionShape {
  Dims scores, mask;
};

// Throws std::invalid_argument when it is no such shape.
inline AttentionShape parse_attention(const std::string& name) {
  std::string shape = name;
  const std::string variant = take_variant(shape, "mask");
  const Dims scores = parse_dims(shape, 4);
  Dims mask = variant.empty() ? Dims{scores[0], 1} : parse_dims(variant, 2);
  for (size_t i = 0; i < 2; ++i) {
    if (mask[i] == 1 || mask[i] == scores[i]) continue;
    throw std::invalid_argument("shape '" + name + "': expected a mask of 1 or " +
                                std::to_string(scores[0]) + " by 1 or " +
                                std::to_string(scores[1]));
  }
  mask.insert(mask.end(), scores.begin() + 2, scores.end());
  return {scores, mask};
}

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_ATTENTION_H_

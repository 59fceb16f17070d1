// SPDX-License-Identifier: Apache-2.0
// One run, where the rows of a block lie and what they are scaled with, for all instruction sets
// alike.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_ROWS_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_ROWS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "ops/scaled_masked_softmax_backward/problem.h"
#include "ops/scaled_masked_softmax_backward/tree.h"

namespace aclgrad::scaled_masked_softmax_backward {

// The scale as FP32: one factor, a power of two, goes to dy, the other to the result.
struct Factors {
  float on_dy;
  float on_dx;
};

// All of the power where the scale is over 1 (see kLargestSum).
inline Factors split_scale(double scale) {
  const bool large = std::isfinite(scale) && std::abs(scale) >= 2.0;
  const int power = large ? std::min(std::ilogb(scale), 127) : 0;
  return {std::ldexp(1.0f, power), static_cast<float>(std::ldexp(scale, -power))};
}
// Not 0, not Inf or NaN, and FP32 does not hold it with all its digits.
inline bool is_unusual(double scale) {
  const double size = std::abs(scale);
  return size != 0.0 && std::isfinite(size) && !(size >= 0x1p-126 && size < 0x1p128);
}

// How many sums, from kLeastSum on, are ordinary; 0: all rows take FP64.
inline uint32_t ordinary_sums(double scale) {
  if (is_unusual(scale)) return 0;
  return std::bit_cast<uint32_t>(kLargestSum) - std::bit_cast<uint32_t>(kLeastSum);
}

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  size_t cols;
  Factors factors;
  uint32_t ordinary_sums;  // how many, from kLeastSum on; 0: all rows take FP64
  bool clean;              // dx of a row with a finite sum holds no NaN, and dy is taken as it is
  bool streaming;          // dx does not fit the cache
};

// Where a row lies, as offsets in elements.
struct Offsets {
  int64_t dy = 0, y = 0, mask = 0, dx = 0;

  void add(const Offsets& step, int64_t count) {
    dy += step.dy * count;
    y += step.y * count;
    mask += step.mask * count;
    dx += step.dx * count;
  }
  bool operator==(const Offsets&) const = default;
};
using Nest = AttentionNest<Offsets>;
using Steps = Nest::Steps;

// Where rows lie: a row's first elements.
template <class T>
struct Row {
  const T* dy;
  const T* y;
  const uint8_t* mask;
  T* dx;
  int64_t dy_ahead = 0, y_ahead = 0;  // distance of the row that is to be prefetched meanwhile

  Row moved(const Offsets& step, int64_t count) const {
    return {dy + count * step.dy, y + count * step.y, mask + count * step.mask,
            dx + count * step.dx, dy_ahead,           y_ahead};
  }
};

}  // namespace aclgrad::scaled_masked_softmax_backward

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_ROWS_H_

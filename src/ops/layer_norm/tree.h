// SPDX-License-Identifier: Apache-2.0
// How LayerNorm's sums are cut: numbers that decide the order of additions, hence the bits, and the
// size of a task.
#ifndef ACLGRAD_OPS_LAYER_NORM_TREE_H_
#define ACLGRAD_OPS_LAYER_NORM_TREE_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace aclgrad::layer_norm {

// Columns whose moments are taken together: their first visit, for the mean, leaves them in L1 for
// the second one, around it. 16 KiB of FP32. Panels are joined in FP64, in order.
inline constexpr int64_t kPanel = 4096;

// Elements that one thread does in about 20 us: not worth cutting.
inline constexpr int64_t kSmall = 32768;

// Tasks at most; more only cost their hand-over.
inline constexpr int64_t kMostSlabs = 1024;

// True: too few rows to share, and wide enough that their panels can be.
constexpr bool is_wide(int64_t rows, int64_t cols) {
  return rows < 32 && cols >= 2 * kPanel && rows * cols > kSmall;
}

// Rows of one task.
constexpr int64_t slab_rows(int64_t rows, int64_t cols) {
  const int64_t least = std::max(int64_t{1}, kSmall / std::max(int64_t{1}, cols));
  return std::max(least, ceil_div(rows, kMostSlabs));
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_TREE_H_

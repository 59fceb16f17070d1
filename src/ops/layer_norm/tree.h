// SPDX-License-Identifier: Apache-2.0
// How LayerNorm's sums are cut: numbers that decide the order of additions, hence the bits, and the
// size of a task.
#ifndef ACLGRAD_OPS_LAYER_NORM_TREE_H_
#define ACLGRAD_OPS_LAYER_NORM_TREE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "kernels/cpu/lane_count.h"

namespace aclgrad::layer_norm {

// Columns whose moments are taken together: a visit that has to be repeated finds them in L1. 16
// KiB of FP32. Panels are joined in FP64, in order. A panel's sum is FP64: vector i of sixteen
// columns (sixteen-bit types: of a strip) goes to chain i mod 2. Its squares are FP32: in rows of
// up to 32 columns around the mean, both vectors in one chain; of up to 1024 columns vector i in
// chain i mod 4; in longer ones around the mean of the panel's first sixteen columns, vector i in
// chain i mod 2, carried to FP64 every 512 columns, unless that is far from the mean
// (moments-inl.h).
inline constexpr int64_t kPanel = 4096;

// Chains of a panel's sum, and of its squares around another number than the mean; columns whose
// squares are one set of chains, around the mean and around another number.
inline constexpr size_t kPanelChains = 2;
inline constexpr size_t kChainColumns = kRowChainElements;
inline constexpr size_t kSquareColumns = kPanelChains * kLanes * kChain;

// Columns of two vectors, one for each chain of the sum; rows up to here are two vectors added.
inline constexpr size_t kTwo = kPanelChains * kLanes;

// The part of the squares around another number that the step from there to the mean may make up;
// beyond it the squares are taken again around the mean.
inline constexpr double kMostAdded = 0.25;

// Room for gamma or beta of `cols` columns as FP32: whole strips of the widest kind, and one vector
// that is read too much of BF16's where a strip begins at an odd column.
inline constexpr int64_t kWidestStrip = 32;
constexpr int64_t weight_floats(int64_t cols) {
  return round_up(cols, kWidestStrip) + static_cast<int64_t>(kLanes);
}

// Elements that one thread does in about 20 us: not worth cutting.
inline constexpr int64_t kSmall = 32768;

// Tasks at most; more only cost their hand-over.
inline constexpr int64_t kMostSlabs = 1024;

// True: too few rows to share, and wide enough that their panels can be.
constexpr bool is_wide(int64_t rows, int64_t cols) { return rows < 32 && cols > kSmall; }

// Few wide rows: a task takes so many panels, of several rows where there are some, for which it
// brings gamma and beta to L1 once.
inline constexpr int64_t kTaskPanels = kSmall / kPanel;

// Bytes of x of wide rows that are summed before they are written: they come from the last-level
// cache then. Where two rows are more than that all rows go together, for gamma and beta would come
// from memory for each (bf16 6x4000000: 6.9 ms one by one, 4.6 together).
inline constexpr int64_t kBatchBytes = int64_t{8} << 20;

// Rows of short tasks' blocks: sixteen rows of any columns are whole lines.
inline constexpr int64_t kRowBlock = 16;

// Rows of one task.
constexpr int64_t slab_rows(int64_t rows, int64_t cols) {
  const int64_t least = std::max(int64_t{1}, kSmall / std::max(int64_t{1}, cols));
  const int64_t slab = std::max(least, ceil_div(rows, kMostSlabs));
  return slab < kRowBlock ? slab : round_up(slab, kRowBlock);
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_TREE_H_

// SPDX-License-Identifier: Apache-2.0
// The reduction tree of LayerNormBackward: what decides the order of additions and roundings, hence
// the bits.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_TREE_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_TREE_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace aclgrad::layer_norm_backward {

// Rows whose dgamma and dbeta terms form one FP32 chain; also the unit in which slabs are cut.
inline constexpr int64_t kRowBlock = 16;

// Columns of one panel when few wide rows are cut along the columns.
inline constexpr int64_t kPanel = 4096;

// Column sums, and gamma as FP32, are padded to a multiple of the widest strip of columns.
inline constexpr int64_t kWidestStrip = 32;

// Under this many rows there are too few slabs to share; the columns are shared instead.
inline constexpr int64_t kWideRows = 32;

// Over this many columns a row no longer stays in L2 between its two visits, so cutting along the
// rows saves nothing.
inline constexpr int64_t kWideCols = 65536;

// Elements that one thread does in about 20 us: not worth cutting.
inline constexpr int64_t kSmall = 32768;

// True: the problem is cut in column panels, each summed over all rows.
constexpr bool is_wide(int64_t rows, int64_t cols) {
  return (rows < kWideRows && cols >= 2 * kPanel) || cols > kWideCols;
}

// Bytes of dy and x that stay in the last-level cache between two visits.
inline constexpr int64_t kCachedBytes = int64_t{28} << 20;

// Rows of a wide problem that pass both visits before others do: a row block, or half of one (parts
// of it gain nothing), where they stay in that cache. The totals of all columns wait in the
// workspace then, and the chains of parts of a block: with gamma and the rows' sums 21 or 29 bytes
// a column, for which there must be rows enough to be at most 5 % of the operands. Does not
// influence the bits.
constexpr int64_t batch_rows(int64_t rows, int64_t cols, int64_t element, int64_t dx_element) {
  const int64_t row_bytes = cols * 2 * element;
  if (rows * row_bytes <= kCachedBytes) return rows;
  const bool whole = kRowBlock * row_bytes <= kCachedBytes;
  const int64_t batch = whole ? kRowBlock : kRowBlock / 2;
  const int64_t waiting = whole ? 21 : 29;
  return batch * row_bytes > kCachedBytes || rows * (2 * element + dx_element) < 20 * waiting
             ? rows
             : batch;
}

// Elements from which memory counts: 16-bit operands of 50 MB.
inline constexpr int64_t kLarge = int64_t{1} << 23;

// Enough for any machine.
inline constexpr int64_t kMostSlabs = 256;

// Rows of one slab. A slab costs 16 bytes of FP64 totals per column, written and read once where
// they do not stay in the caches (slab_totals.h): with 64 rows that is 4 % of the operands' bytes
// in 16 bits, without dx 6 %, of which there are regions for fewer slabs than there are.
constexpr int64_t slab_rows(int64_t rows, int64_t cols) {
  if (rows * cols <= kSmall) return std::max(kRowBlock, round_up(rows, kRowBlock));
  const bool large = rows * cols >= kLarge;
  const int64_t least = large || rows >= 4096 ? 64 : rows >= 1024 ? 32 : 16;
  return std::max(least, round_up(ceil_div(rows, kMostSlabs), kRowBlock));
}

// mean(g * xhat) of a row from its sum of g * (x - mean).
constexpr double mean_gx_of(double sum, float rstd, double reciprocal_cols) {
  return sum * static_cast<double>(rstd) * reciprocal_cols;
}

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_TREE_H_

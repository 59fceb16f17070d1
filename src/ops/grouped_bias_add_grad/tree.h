// SPDX-License-Identifier: Apache-2.0
// The reduction tree of GroupedBiasAddGrad: numbers that decide the order of additions, hence the
// bits (but is_small_group()). A group's sums depend on its own rows only, counted from its first
// one:
//
//   narrow rows  is_narrow(...): as below with F = narrow_fold(...), so that a wide row is one
//                vector; groups of few rows (has_few_rows(...)) in FP32 to the end
//   wide row w   rows [w F, (w + 1) F) of the group, F = folded_rows(...)
//   chain        16 wide rows, FP32, element by element
//   block        block_rows(...) rows: its chains in order into FP64 totals, then the F rows of
//                totals into one, halving their number as often as needed
//   group        its blocks in order, FP64; one rounding at the end
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/checked.h"
#include "kernels/cpu/lane_count.h"

namespace aclgrad::grouped_bias_add_grad {

// Rows of fewer elements are taken several at once, as one wide row of up to this many bytes:
// sixteen streams of reads are only as fast as one when each has some KB (H = 128 in FP32: half the
// speed). Not a power of two, because then all sixteen would use the same few lines of the L1
// cache.
inline constexpr int64_t kLongRow = 2080;
inline constexpr int64_t kWideRowBytes = 8320;
inline constexpr int64_t kWidestRow = kWideRowBytes / 2 + kLongRow;  // elements

// Groups of up to this many rows are not folded; those of up to this many elements a row are small.
inline constexpr int64_t kSmallRows = 1024;
inline constexpr int64_t kShortRow = 64;

// Rows of a wide row, at most.
constexpr int64_t most_folded_rows(int64_t cols, int64_t element_bytes) {
  return cols >= kLongRow ? 1 : ceil_div(kWideRowBytes, cols * element_bytes);
}

// Narrow rows: as many of them as fit, a power of two, stand side by side in the lanes of a vector.
constexpr bool is_narrow(int64_t cols) { return cols <= static_cast<int64_t>(kLanes); }
constexpr int64_t narrow_fold(int64_t cols) {
  return static_cast<int64_t>(std::bit_floor(kLanes / static_cast<size_t>(cols)));
}

// Groups of up to four vectors of narrow rows: three additions follow each other in a lane and at
// most four join the lanes, so FP32 rounds seven times, of the eight that the library allows. Where
// no lanes are joined a chain will do.
inline constexpr int64_t kFewVectors = 4;
constexpr int64_t few_rows(int64_t cols) {
  const int64_t fold = narrow_fold(cols);
  return fold > 1 ? kFewVectors * fold : static_cast<int64_t>(kChain);
}
constexpr bool has_few_rows(int64_t rows, int64_t cols) { return rows <= few_rows(cols); }

// Small groups of short rows, which are a block at most: their sums are in registers while a chain
// is added. The order of the additions is the same.
constexpr bool is_small_group(int64_t rows, int64_t cols) {
  return rows <= kSmallRows && !is_narrow(cols) && cols <= kShortRow;
}

// A block's FP64 totals should be few against what it reads, 256 rows at least (0.8 % of FP32, 1.6
// % of 16-bit data), and 64 wide rows are about as much as a thread should do at a time. Groups of
// several blocks have wide rows of `most` rows.
constexpr int64_t block_rows(int64_t most) {
  const auto chain = static_cast<int64_t>(kChain);
  return most * round_up(std::max(int64_t{64}, ceil_div(256, most)), chain);
}

// Rows of a wide row in a group of `rows` that are not narrow: few rows stay as they are, because
// folding their totals takes too much (two cores of Zen 5, times as fast unfolded, FP32 and BF16:
// 400000x300-g2000 1.13 and 1.29, 400000x512-g2000 1.13 and 1.62).
constexpr int64_t folded_rows(int64_t rows, int64_t most) {
  return rows <= std::min(block_rows(most), kSmallRows) ? 1 : most;
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_

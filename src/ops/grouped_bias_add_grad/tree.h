// SPDX-License-Identifier: Apache-2.0
// The reduction tree of GroupedBiasAddGrad: numbers that decide the order of additions, hence the
// bits. A group's sums depend on its own rows only, counted from its first one:
//
//   wide row w   rows [w F, (w + 1) F) of the group, F = folded_rows(cols)
//   chain        16 wide rows, FP32, element by element
//   block        256 wide rows: its chains in order into FP64 totals, then its F rows of totals
//                in order into one
//   group        its blocks in order, FP64; one rounding at the end
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_

#include <cstdint>

namespace aclgrad::grouped_bias_add_grad {

// Wide rows of a block: with 256 a block's FP64 totals are 0.8 % (FP32) or 1.6 % (16-bit) of what
// it reads, and at least 64 MB of data are enough blocks for any machine.
inline constexpr int64_t kBlockWideRows = 256;

// Rows of fewer elements are taken several at once, as one wide row: sixteen short streams of reads
// are slow (H = 128 in FP32: a quarter of the speed of H = 2880, 2-core Zen 4).
inline constexpr int64_t kWideRow = 256;

// Rows that form one wide row: a power of two, 1 from kWideRow columns on.
constexpr int64_t folded_rows(int64_t cols) {
  int64_t rows = 1;
  while (rows * cols < kWideRow) rows *= 2;
  return rows;
}

constexpr int64_t block_rows(int64_t cols) { return kBlockWideRows * folded_rows(cols); }

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_

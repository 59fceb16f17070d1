// SPDX-License-Identifier: Apache-2.0
// The reduction tree of GroupedBiasAddGrad: numbers that decide the order of additions, hence the
// bits. A group's sums depend on its own rows only, counted from its first one:
//
//   narrow rows  is_narrow(...): F = narrow_fold(...) of them are a row of the chains below; groups
//                of few rows (has_few_rows(...)) in FP32 to the end
//   chain        16 rows, FP32, element by element
//   block        block_rows(...) rows: its chains in order into FP64 totals; of narrow rows then
//                the F rows of totals into one, halving their number as often as needed
//   group        its blocks in order, FP64; one rounding at the end
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/checked.h"
#include "kernels/cpu/lane_count.h"

namespace aclgrad::grouped_bias_add_grad {

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

// A block's FP64 totals should be few against what it reads, 256 rows at least (0.8 % of FP32, 1.6
// % of 16-bit data), and 64 times 8 KB are about as much as a thread should do at a time.
constexpr int64_t block_rows(int64_t cols, int64_t element_bytes) {
  constexpr int64_t kPartBytes = 8320;
  // Compared first: shapes that no memory holds come here, too.
  const int64_t part = cols >= kPartBytes ? 1 : ceil_div(kPartBytes, cols * element_bytes);
  return part * round_up(std::max(int64_t{64}, ceil_div(256, part)), static_cast<int64_t>(kChain));
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TREE_H_

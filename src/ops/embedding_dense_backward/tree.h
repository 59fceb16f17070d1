// SPDX-License-Identifier: Apache-2.0
// The reduction tree of one output element, a function of the run's length and of the number of
// columns. The run of table row v is the list of gradient rows that add to it, by rising position:
//
//   gradient rows --16 in a row, FP32, starting from +0--> chains
//   chains        --in order, FP64--> segment
//   segments      --in order, FP64--> total, divided once by the length where that is asked for,
//                                     rounded once to FP32 and once to the output's dtype
//
// A run of up to 16 rows is one chain, one of less than two segment lengths one segment.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TREE_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TREE_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "kernels/cpu/lane_count.h"

namespace aclgrad::embedding_dense_backward {

// Gradient rows of a segment. Three times the columns at least: the FP64 totals of all segments
// then take less than 3 bytes an index, and fit a buffer that the sort has left.
inline constexpr int64_t kLeastSegment = 1024;
constexpr int64_t segment_rows(int64_t cols) {
  return std::max(kLeastSegment, round_up(3 * cols, static_cast<int64_t>(kChain)));
}

// The last segment takes what is left over, so there are never more than rows / segment_rows.
constexpr int64_t segments_of(int64_t run_length, int64_t cols) {
  return std::max(int64_t{1}, run_length / segment_rows(cols));
}

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TREE_H_

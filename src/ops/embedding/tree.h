// SPDX-License-Identifier: Apache-2.0
// How Embedding's rows are cut into tasks. It adds nothing, so the bits do not depend on this.
#ifndef ACLGRAD_OPS_EMBEDDING_TREE_H_
#define ACLGRAD_OPS_EMBEDDING_TREE_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"

namespace aclgrad::embedding {

// Bytes of y that one thread writes in about 20 us: not worth cutting.
inline constexpr int64_t kBlockBytes = int64_t{1} << 18;

// Rows of a task where a row has next to no bytes: a lookup then costs more than its copy.
inline constexpr int64_t kMostBlockRows = 8192;

// Tasks at most, for the rows; more only cost their hand-over.
inline constexpr int64_t kMostBlocks = 4096;

// Bytes of one part of a row so long that its parts are shared among threads.
inline constexpr int64_t kPanelBytes = int64_t{1} << 20;

// Rows of one task.
constexpr int64_t block_rows(int64_t rows, int64_t row_bytes) {
  const int64_t least = std::clamp(kBlockBytes / row_bytes, int64_t{1}, kMostBlockRows);
  return std::max(least, ceil_div(rows, kMostBlocks));
}

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_TREE_H_

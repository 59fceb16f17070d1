// SPDX-License-Identifier: Apache-2.0
// How NsaCompress is launched on a GPU, and which numbers a thread computes: a few neighbouring
// columns of a window and head. For the kernels and for tests on the host.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_PLAN_H_
#define ACLGRAD_OPS_NSA_COMPRESS_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/checked.h"
#include "kernels/cuda/geometry.h"
#include "ops/nsa_compress/problem.h"

namespace aclgrad::nsa_compress {

struct Tuning {
  unsigned threads;
  int columns;         // of a thread, in one access of sixteen bytes
  int most_sequences;  // that travel with a launch: 3 KB, of the 4 that every GPU takes
};
// Not measured.
inline constexpr Tuning kTuning = {256, 8, 128};

// Of a launch of `windows` windows. `columns`: of a thread.
constexpr cuda::Geometry plan_cuda(int64_t windows, int64_t heads, int64_t width, int64_t columns) {
  const int64_t pieces = windows * heads * (width / columns);
  return {cuda::blocks_for(ceil_div(pieces, int64_t{kTuning.threads})), kTuning.threads};
}

// The sequences of the launch that begins with number `first`, and their windows.
struct Part {
  int64_t sequences, first_window, windows;
};
inline Part part_from(std::span<const Sequence> all, int64_t first) {
  const int64_t left = static_cast<int64_t>(all.size()) - first;
  const int64_t count = std::min(left, int64_t{kTuning.most_sequences});
  const Sequence& begin = all[static_cast<size_t>(first)];
  const Sequence& last = all[static_cast<size_t>(first + count - 1)];
  return {count, begin.first_window, last.first_window + last.windows - begin.first_window};
}

struct Piece {
  int64_t window, head, column;
};
constexpr Piece piece_at(int64_t number, int64_t heads, int64_t width, int64_t columns) {
  const int64_t ranges = width / columns;
  return {number / ranges / heads, number / ranges % heads, number % ranges * columns};
}

}  // namespace aclgrad::nsa_compress

#endif  // ACLGRAD_OPS_NSA_COMPRESS_PLAN_H_

// SPDX-License-Identifier: Apache-2.0
// How NsaCompress is launched on a GPU, and which numbers a thread computes: a few neighbouring
// columns of a window and head. For the kernels and for tests on the host.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_PLAN_H_
#define ACLGRAD_OPS_NSA_COMPRESS_PLAN_H_

#include <cstdint>

#include "base/checked.h"
#include "kernels/cuda/geometry.h"

namespace aclgrad::nsa_compress {

// Of a launch of `windows` windows. `columns`: of a thread.
constexpr cuda::Geometry plan_cuda(unsigned threads, int64_t windows, int64_t heads, int64_t width,
                                   int64_t columns) {
  const int64_t pieces = windows * heads * (width / columns);
  return {cuda::blocks_for(ceil_div(pieces, int64_t{threads})), threads};
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

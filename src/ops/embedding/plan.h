// SPDX-License-Identifier: Apache-2.0
// How Embedding is launched on a GPU, and where a thread finds its part: numbers that decide the
// speed and never the bits. For the kernels and for tests on the host.
#ifndef ACLGRAD_OPS_EMBEDDING_PLAN_H_
#define ACLGRAD_OPS_EMBEDDING_PLAN_H_

#include <cstdint>

#include "base/checked.h"
#include "kernels/cuda/geometry.h"

namespace aclgrad::embedding {

struct CudaTuning {
  unsigned threads;  // of a block
  int accesses;      // of a thread, for a part of a row: as many loads are under way
  unsigned search_threads;
};
// Chosen by counting what is under way at a time; not measured.
inline constexpr CudaTuning kTuning = {256, 8, 256};

// A row's units, what a thread copies in one access, are cut into parts.
struct CudaPlan {
  int threads_of_row = 1;
  int64_t parts = 0;
  cuda::Geometry copy, search;
};

constexpr CudaPlan plan_cuda(int64_t rows, int64_t units) {
  CudaPlan plan;
  while (plan.threads_of_row < cuda::kWarpLanes && plan.threads_of_row < units) {
    plan.threads_of_row *= 2;
  }
  plan.parts = ceil_div(units, int64_t{kTuning.accesses} * plan.threads_of_row);
  const int64_t at_once = static_cast<int64_t>(kTuning.threads) / plan.threads_of_row;
  plan.copy = {cuda::blocks_for(ceil_div(rows * plan.parts, at_once)), kTuning.threads};
  plan.search = {1, kTuning.search_threads};
  return plan;
}

// The first unit of a part that the row's thread `lane` copies; the others follow `threads_of_row`
// apart.
constexpr int64_t first_unit(int64_t part, int threads_of_row, int lane) {
  return part * kTuning.accesses * threads_of_row + lane;
}

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_PLAN_H_

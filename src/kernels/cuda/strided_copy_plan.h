// SPDX-License-Identifier: Apache-2.0
// How a strided copy is cut on a GPU: the loops of both views in the target's order, in accesses as
// wide as both allow, or in square tiles where the source is dense along another dimension than
// the target. For the kernels and for tests on the host.
#ifndef ACLGRAD_KERNELS_CUDA_STRIDED_COPY_PLAN_H_
#define ACLGRAD_KERNELS_CUDA_STRIDED_COPY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/view.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/geometry.h"

namespace aclgrad::cuda {

struct CopyTuning {
  unsigned threads;    // of a block
  int accesses;        // of a thread, under way together
  int64_t least_tile;  // elements of both dimensions, else most of a tile is empty
};
// Not measured. Sixteen bytes are what a thread can take at once.
inline constexpr CopyTuning kCopyTuning = {256, 4, 16};
inline constexpr int kMostAccessBytes = 16;

// Elements along one side of a tile: a row of it is at least 64 bytes, two sectors of memory.
constexpr int tile_edge(int element_bytes) { return element_bytes <= 2 ? 64 : 32; }
// Elements between the rows of a tile in shared memory, whose columns lie in different banks then.
constexpr int tile_pitch(int element_bytes) {
  return tile_edge(element_bytes) + (element_bytes < 4 ? 4 / element_bytes : 1);
}

enum class CopyKind : uint8_t {
  kInOrder,   // by one thread
  kAccesses,  // each on its own
  kTiles,
};

// A dimension of both views, steps in accesses.
struct CopyLoop {
  int64_t count = 1, source = 0, target = 0;
};

struct CopyPlan {
  CopyKind kind = CopyKind::kAccesses;
  int bytes = 0;      // of an access
  bool wide = false;  // numbers that a Divisor does not take
  int rank = 0;
  int64_t count = 1;  // of accesses or tiles
  int64_t source_begin = 0, target_begin = 0;
  CopyLoop loops[kMaxRank];  // of what is counted, the fastest first
  Divisor divisors[kMaxRank];
  // kTiles: inside one the first runs along the target, the second along the source.
  CopyLoop inner[2];
  Geometry launch;
};

// Where an access or a tile begins, and which one it is in the first two loops.
struct CopyPlace {
  int64_t source, target;
  int64_t index[2];
};

// Number: uint32_t unless the plan is wide.
template <class Number>
constexpr CopyPlace place_in_copy(const CopyPlan& plan, Number number) {
  CopyPlace place{plan.source_begin, plan.target_begin, {0, 0}};
  for (int i = 0; i < plan.rank; ++i) {
    Number index = number;
    if (i + 1 < plan.rank) {
      Number quotient = 0;
      if constexpr (sizeof(Number) == sizeof(uint32_t)) {
        quotient = plan.divisors[i].divide(number);
      } else {
        quotient = number / static_cast<Number>(plan.loops[i].count);
      }
      index = number - quotient * static_cast<Number>(plan.loops[i].count);
      number = quotient;
    }
    const auto at = static_cast<int64_t>(index);
    place.source += at * plan.loops[i].source;
    place.target += at * plan.loops[i].target;
    if (i < 2) place.index[i] = at;
  }
  return place;
}

namespace copy {

constexpr int64_t magnitude(int64_t value) { return value < 0 ? -value : value; }

// The dimensions that are more than one index, the last of the views first.
inline void collect(const View& from, const View& to, CopyPlan& plan) {
  for (int i = to.rank - 1; i >= 0; --i) {
    const auto index = static_cast<size_t>(i);
    plan.count *= to.dims[index];
    if (to.dims[index] == 1) continue;
    plan.loops[plan.rank++] = {to.dims[index], from.strides[index], to.strides[index]};
  }
}

// In the order of the target's memory, forwards.
inline void follow_target(CopyPlan& plan) {
  for (int i = 0; i < plan.rank; ++i) {
    CopyLoop loop = plan.loops[i];
    if (loop.target < 0) {
      plan.source_begin += (loop.count - 1) * loop.source;
      plan.target_begin += (loop.count - 1) * loop.target;
      loop = {loop.count, -loop.source, -loop.target};
    }
    int at = i;
    for (; at > 0 && plan.loops[at - 1].target > loop.target; --at) {
      plan.loops[at] = plan.loops[at - 1];
    }
    plan.loops[at] = loop;
  }
}

// Neighbours that step as one in both views.
inline void join(CopyPlan& plan) {
  int rank = 0;
  for (int i = 0; i < plan.rank; ++i) {
    const CopyLoop loop = plan.loops[i];
    if (rank > 0) {
      CopyLoop& last = plan.loops[rank - 1];
      if (loop.source == last.source * last.count && loop.target == last.target * last.count) {
        last.count *= loop.count;
        continue;
      }
    }
    plan.loops[rank++] = loop;
  }
  plan.rank = rank;
}

// Several elements of a run at once. `addresses`: of both first elements, one over the other.
inline void widen(CopyPlan& plan, uintptr_t addresses) {
  if (plan.rank == 0 || plan.loops[0].source != 1 || plan.loops[0].target != 1) return;
  // What all steps, and the run's length, are multiples of.
  auto steps = static_cast<uint64_t>(plan.loops[0].count);
  steps |= static_cast<uint64_t>(plan.source_begin) | static_cast<uint64_t>(plan.target_begin);
  for (int i = 1; i < plan.rank; ++i) {
    steps |= static_cast<uint64_t>(plan.loops[i].source);
    steps |= static_cast<uint64_t>(plan.loops[i].target);
  }
  int together = 1;
  while (2 * together * plan.bytes <= kMostAccessBytes &&
         addresses % static_cast<uintptr_t>(2 * together * plan.bytes) == 0 &&
         steps % static_cast<uint64_t>(2 * together) == 0) {
    together *= 2;
  }
  plan.bytes *= together;
  plan.count /= together;
  plan.loops[0].count /= together;
  plan.source_begin /= together;
  plan.target_begin /= together;
  for (int i = 1; i < plan.rank; ++i) {
    plan.loops[i].source /= together;
    plan.loops[i].target /= together;
  }
}

// Where the target is dense along one loop and the source along another.
inline void tile(CopyPlan& plan) {
  const CopyLoop& first = plan.loops[0];
  if (plan.rank < 2 || magnitude(first.source) <= 1 || first.count < kCopyTuning.least_tile) return;
  int dense = 1;
  while (dense < plan.rank && magnitude(plan.loops[dense].source) != 1) ++dense;
  if (dense == plan.rank || plan.loops[dense].count < kCopyTuning.least_tile) return;
  for (; dense > 1; --dense) std::swap(plan.loops[dense], plan.loops[dense - 1]);
  plan.kind = CopyKind::kTiles;
  plan.count = 1;
  const int64_t edge = tile_edge(plan.bytes);
  for (int i = 0; i < 2; ++i) {
    plan.inner[i] = plan.loops[i];
    plan.loops[i] = {ceil_div(plan.inner[i].count, edge), edge * plan.inner[i].source,
                     edge * plan.inner[i].target};
  }
  for (int i = 0; i < plan.rank; ++i) plan.count *= plan.loops[i].count;
}

}  // namespace copy

// Nothing to launch where there are no elements. `in_order`: by one thread, in row-major order of
// the indices. `addresses`: of both first elements, one over the other.
inline CopyPlan plan_copy(const View& from, const View& to, bool in_order, uintptr_t addresses) {
  CopyPlan plan;
  plan.bytes = static_cast<int>(dtype_size(to.dtype));
  copy::collect(from, to, plan);
  if (plan.count == 0) return plan;
  if (!in_order) copy::follow_target(plan);
  copy::join(plan);
  if (in_order) {
    plan.kind = CopyKind::kInOrder;
    plan.launch = {1, 1};
    return plan;
  }
  copy::widen(plan, addresses);
  copy::tile(plan);
  plan.wide = plan.count > Divisor::kNumbers;
  if (!plan.wide) {
    for (int i = 0; i < plan.rank; ++i) {
      plan.divisors[i] = Divisor(static_cast<uint32_t>(plan.loops[i].count));
    }
  }
  constexpr int64_t kOfBlock = int64_t{kCopyTuning.threads} * kCopyTuning.accesses;
  const bool tiles = plan.kind == CopyKind::kTiles;
  plan.launch = {blocks_for(tiles ? plan.count : ceil_div(plan.count, kOfBlock)),
                 kCopyTuning.threads};
  return plan;
}

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_KERNELS_CUDA_STRIDED_COPY_PLAN_H_

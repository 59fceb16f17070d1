// SPDX-License-Identifier: Apache-2.0
// How LayerNorm is cut for a GPU, from the shape alone, and the workspace it takes there.
#ifndef ACLGRAD_OPS_LAYER_NORM_PLAN_H_
#define ACLGRAD_OPS_LAYER_NORM_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/checked.h"
#include "kernels/cuda/geometry.h"
#include "ops/layer_norm/problem.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"

namespace aclgrad::layer_norm {

// Who takes a row: a warp that keeps it in registers, a warp that visits it twice, the warps of a
// block panel by panel, or all of the GPU, kernel after kernel.
enum class RowKind : uint8_t { kHeld, kWarp, kBlock, kApart };

// Rows of which a thread holds so many elements, and the blocks of an SM that its registers are to
// leave room for.
struct HeldTuning {
  int elements;
  int blocks_of_sm;
};
struct GpuTuning {
  int warps;  // of a block
  // Of rows that are held: a warp takes many, so that it loads its columns' gamma and beta once.
  int64_t most_held_blocks;
  int64_t most_panels;  // of a row that a block takes: their moments are in shared memory
  int at_once;          // loads of a thread under way, where a row is visited twice
  // Of the loads of the second visit, where accesses fit, and where elements come one by one.
  int written_accesses, written_elements;
  int kept;  // elements of a thread whose gamma and beta stay in registers too
  HeldTuning held[5];
};
// Counted, not measured. A warp has sixteen loads under way, 1 or 2 KiB; 32 warps of an SM 32 KiB
// and more. Rows that are not held come from L2 again, when the GPU has few enough of them. 32
// elements a thread spill into as little as two blocks of an SM leave: one block it is.
inline constexpr GpuTuning kGpu = {8, 2048, 2048, 16,
                                   2, 4,    8,    {{1, 3}, {4, 3}, {8, 3}, {16, 2}, {32, 1}}};

constexpr int64_t kMostHeldCols = int64_t{std::end(kGpu.held)[-1].elements} * cuda::kWarpLanes;
// Up to here tree.h's sums are those of a row that stays in registers.
static_assert(kMostHeldCols == int64_t{kChainColumns});

struct GpuPlan {
  RowKind kind = RowKind::kHeld;
  int held = 0;          // which of kGpu.held
  int warps_of_row = 1;  // of a block
  int64_t blocks = 0;    // before cuda::blocks_for()
  int64_t panels = 0;
};

inline GpuPlan plan_on_gpu(int64_t rows, int64_t cols) {
  GpuPlan plan;
  plan.panels = ceil_div(cols, kPanel);
  if (cols <= kMostHeldCols) {
    while (kGpu.held[plan.held].elements * int64_t{cuda::kWarpLanes} < cols) ++plan.held;
    plan.blocks = std::min(ceil_div(rows, int64_t{kGpu.warps}), kGpu.most_held_blocks);
  } else if (plan.panels == 1) {
    plan.kind = RowKind::kWarp;
    plan.blocks = ceil_div(rows, int64_t{kGpu.warps});
  } else if (is_wide(rows, cols) || plan.panels > kGpu.most_panels) {
    plan.kind = RowKind::kApart;
    plan.blocks = ceil_div(saturating_product({rows, plan.panels}), int64_t{kGpu.warps});
  } else {
    plan.kind = RowKind::kBlock;
    plan.warps_of_row = static_cast<int>(std::min(plan.panels, int64_t{kGpu.warps}));
    plan.blocks = rows;
  }
  return plan;
}

inline cuda::Geometry gpu_geometry(int64_t pieces, int64_t of_block) {
  return {cuda::blocks_for(ceil_div(pieces, of_block)),
          static_cast<unsigned>(kGpu.warps * cuda::kWarpLanes)};
}
// Of a warp for each row, and of a thread for each number.
inline cuda::Geometry plan_warps(int64_t rows) { return gpu_geometry(rows, kGpu.warps); }
inline cuda::Geometry plan_threads(int64_t numbers) {
  return gpu_geometry(numbers, int64_t{kGpu.warps} * cuda::kWarpLanes);
}

// What a row is normalised with.
struct RowNumbers {
  float mean, rstd;
  int64_t exact;  // 1: y is computed in FP64, with these
  double exact_mean, exact_rstd;
};

struct GpuScratch {
  int64_t gamma = 0, beta = 0;  // as dense FP32
  int64_t moments = 0;          // kApart: Moments of all panels, then RowNumbers of all rows
};
inline GpuScratch scratch_on_gpu(const Problem& problem) {
  GpuScratch out;
  const auto as_it_is = [](const View& view) {
    return view.dtype == ACL_FLOAT && is_one_run(view);
  };
  const int64_t weights = saturating_product({problem.cols, static_cast<int64_t>(sizeof(float))});
  if (!as_it_is(problem.gamma)) out.gamma = weights;
  if (!as_it_is(problem.beta)) out.beta = weights;
  const GpuPlan plan = plan_on_gpu(problem.rows, problem.cols);
  if (problem.cols > 0 && plan.kind == RowKind::kApart) {
    const int64_t row_bytes = plan.panels * static_cast<int64_t>(sizeof(Moments)) +
                              static_cast<int64_t>(sizeof(RowNumbers));
    out.moments = saturating_product({problem.rows, row_bytes});
  }
  return out;
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_PLAN_H_

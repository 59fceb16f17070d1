// SPDX-License-Identifier: Apache-2.0
// How LayerNormBackward is cut for a GPU: which blocks of threads take which rows, and what of them
// fits shared memory. Functions of the shape (and of how much shared memory there is), so that they
// are tested on the host. None of it changes the bits: the order of additions is tree.h's.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_PLAN_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/checked.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cuda/geometry.h"
#include "ops/layer_norm_backward/problem.h"
#include "ops/layer_norm_backward/tree.h"

namespace aclgrad::layer_norm_backward {

// Columns whose sums along a row are one set of chains. A team of sixteen threads adds them, and
// leaves the lanes' two sums where there are more.
inline constexpr auto kChunk = static_cast<int64_t>(kRowChainElements);
inline constexpr int kTeam = 16;
inline constexpr int kChunkSums = 2 * static_cast<int>(kLanes);

constexpr int64_t chunks_of(int64_t cols) { return ceil_div(cols, kChunk); }
constexpr int64_t row_blocks_of(int64_t rows) { return ceil_div(rows, kRowBlock); }

// What the kernels of rows leave for the one that joins dgamma and dbeta: `count` pairs of rows of
// `cols` numbers, of which `per_slab` are added up before they go to the total.
inline constexpr int64_t kOneSlab = std::numeric_limits<int64_t>::max();
struct ColumnParts {
  bool slab_totals = false;  // FP64 totals of slabs; else FP32 chains of row blocks
  int64_t count = 0;
  int64_t per_slab = 1;
};
inline ColumnParts chain_parts(int64_t rows, int64_t cols) {
  const int64_t blocks = row_blocks_of(rows);
  if (rows > 0 && is_wide(rows, cols)) return {false, blocks, kOneSlab};
  return {false, blocks, slab_rows(rows, cols) / kRowBlock};
}

// Rows that lie in shared memory between their two visits. A block of threads takes a unit of rows,
// `groups` row blocks at a time, `stage_rows` rows of each at a time, and has `slots` such stages
// in shared memory. In the second visit a thread takes `accesses` times sixteen bytes of columns of
// a row block.
struct StagedPlan {
  bool possible = false;
  int threads = 0;
  int accesses = 0;
  int groups = 0;
  int stage_rows = 0;
  int slots = 0;
  int64_t unit_rows = 0;
  int64_t units = 0;
  ColumnParts parts;
  int64_t shared = 0;

  constexpr int rows() const { return groups * stage_rows; }
};

// One row of a stage, in shared memory.
struct StagedRow {
  float mean_g, mean_gx;
  uint32_t flags;
  uint32_t reserved;
  int64_t dx;       // its offset
  int64_t dy_next;  // those of the row that comes to its place
  int64_t x_next;   // -1 in both: none does
  double exact_g, exact_gx;
};

// Where things lie in a block's shared memory, in bytes. What fits there fits an int.
struct SharedLayout {
  int gamma, totals, exchange, lane_sums, rows, statistics, maxima, bytes;

  constexpr SharedLayout(const StagedPlan& plan, int cols, int element) {
    constexpr int kFloat = sizeof(float);
    gamma = plan.slots * plan.rows() * 2 * cols * element;
    totals = gamma + cols * kFloat;
    const int pairs = plan.parts.slab_totals ? 2 * cols : 0;
    exchange = totals + pairs * static_cast<int>(sizeof(double));
    lane_sums = exchange + (plan.groups > 1 ? plan.groups * pairs : 0) * kFloat;
    const int chunks = static_cast<int>(chunks_of(cols));
    rows = lane_sums + (chunks > 1 ? plan.rows() * chunks * kChunkSums : 0) * kFloat;
    statistics = rows + plan.rows() * static_cast<int>(sizeof(StagedRow));
    maxima = statistics + 2 * plan.rows() * 2 * kFloat;
    bytes = maxima + kMaxima * kFloat;
  }

  // Four of each warp, and two marks that a row needs a closer look.
  static constexpr int kMostWarps = 16;
  static constexpr int kMaxima = 4 * kMostWarps + 2;
};

// Of blocks that share an SM with another one, or have it alone.
struct BlockTuning {
  int threads;    // about, where one access of each row is enough for a thread
  int64_t stage;  // bytes, about
};
struct StagedTuning {
  int most_threads;  // of a block
  BlockTuning half, alone;
  // Numbers of slabs that fill the GPU, as blocks alone or two by two: then totals are left instead
  // of chains.
  int64_t least_alone, most_alone, least_halves;
  int64_t many_units;     // so many row blocks are not taken together at the cost of units
  int64_t most_together;  // row blocks of a unit, and of them those that a block takes at a time
  // Accesses of rows under way in the first visit, of threads that have one of each row, two, or
  // more: as many as leave the chains of the second visit in registers.
  int unroll[3];
};
// Counted, not measured: each of an H200's 132 SMs wants some 40 KiB of loads under way, and half
// of the stages are. FP64 totals of a slab cost 16 bytes a column for 64 rows and more (of FP16: 4
// % of the operands), chains 8 bytes for 16 rows (8 %), half of an idle GPU much more.
inline constexpr StagedTuning kStaged = {
    512, {256, int64_t{32} << 10}, {512, int64_t{64} << 10}, 120, 132, 224, 264, 64, {4, 2, 1}};

static_assert(kStaged.most_threads <= SharedLayout::kMostWarps * cuda::kWarpLanes);

inline constexpr int64_t kMostOwnCols = 32;

namespace detail {

// Stages as large as `shared` bytes allow, up to the tuning's.
inline bool fit_stage(StagedPlan& plan, int64_t cols, int64_t element, int64_t shared, int slots,
                      int64_t most) {
  plan.slots = slots;
  for (plan.stage_rows = static_cast<int>(kRowBlock); plan.stage_rows > 0; plan.stage_rows /= 2) {
    const int64_t stage = 2 * cols * element * plan.rows();
    if (stage * slots > shared) continue;
    if (plan.stage_rows > 1 && (stage > most || plan.rows() > plan.threads)) continue;
    plan.shared = SharedLayout(plan, static_cast<int>(cols), static_cast<int>(element)).bytes;
    if (plan.shared <= shared) return true;
  }
  return false;
}

inline void choose_threads(StagedPlan& plan, int64_t row_accesses, int threads) {
  constexpr int64_t kWarp = 32;
  const int64_t blocks = plan.unit_rows / kRowBlock;
  plan.accesses = 1;
  while (int64_t{plan.accesses} * (plan.accesses == 1 ? threads : kStaged.most_threads) <
         row_accesses) {
    plan.accesses *= 2;
  }
  plan.groups = 1;
  if (plan.accesses == 1) {
    const int64_t most = std::clamp(threads / row_accesses, int64_t{1}, kStaged.most_together);
    plan.groups = static_cast<int>(ceil_div(blocks, ceil_div(blocks, most)));
  }
  const int64_t busy = plan.groups * ceil_div(row_accesses, int64_t{plan.accesses});
  plan.threads = static_cast<int>(round_up(busy, kWarp));
}

}  // namespace detail

// For rows of elements of `element` bytes, whose number of columns is a multiple of sixteen bytes.
// `shared`: bytes of shared memory that a block may have.
inline StagedPlan plan_staged(int64_t rows, int64_t cols, int64_t element, bool columns,
                              int64_t shared) {
  StagedPlan plan;
  const int64_t row_accesses = cols * element / 16;
  // Two chains a column for no more columns than a thread has registers for.
  const int64_t most_accesses = kMostOwnCols * element / 16;
  if (rows == 0 || is_wide(rows, cols)) return plan;
  if (row_accesses > most_accesses * kStaged.most_threads) return plan;
  const auto fits = [&](const BlockTuning& tuning, int64_t bytes, int slots) {
    detail::choose_threads(plan, row_accesses, tuning.threads);
    return detail::fit_stage(plan, cols, element, bytes, slots, tuning.stage);
  };
  // What each of two blocks may have that share an SM; a block costs a KiB more.
  constexpr int64_t kBlockShared = 1024;
  const int64_t half = (shared + kBlockShared) / 2 - kBlockShared;
  const int64_t slab = slab_rows(rows, cols);
  const int64_t slabs = ceil_div(rows, slab);
  const bool few = slabs >= kStaged.least_alone && slabs <= kStaged.most_alone;
  if (columns && (few || slabs >= kStaged.least_halves)) {
    plan.unit_rows = slab;
    plan.parts = {true, slabs, 1};
    plan.possible = few ? fits(kStaged.alone, shared, 2)
                        : fits(kStaged.half, half, 2) || fits(kStaged.alone, shared, 2);
  }
  if (!plan.possible) {
    const int64_t blocks = row_blocks_of(rows);
    const int64_t together =
        std::clamp(blocks / kStaged.many_units, int64_t{1}, kStaged.most_together);
    plan.unit_rows = kRowBlock * together;
    plan.parts = chain_parts(rows, cols);
    plan.possible = fits(kStaged.half, half, 2) || fits(kStaged.alone, shared, 2) ||
                    fits(kStaged.alone, shared, 1);
  }
  plan.units = ceil_div(rows, plan.unit_rows);
  return plan;
}

// The launches that visit rows which are not staged, and the one that joins the parts of dgamma and
// dbeta: a block of it adds 32 of the sums, whose parts its warps bring to shared memory.
struct VisitTuning {
  int threads;     // of a block of visits
  int join_warps;  // of a block that joins
  int join_tile;   // parts of each sum in shared memory
  int written;     // rows of a column whose loads are under way in the second visit
};
// Counted, not measured: eight warps are enough to start and end with little waiting.
inline constexpr VisitTuning kVisits = {256, 8, 64, 4};
inline constexpr int kJoinCols = cuda::kWarpLanes;

struct VisitPlan {
  cuda::Geometry sums;       // the first visit: a team a chunk of a row
  cuda::Geometry rows;       // of rows of several chunks: a warp a row
  cuda::Geometry columns;    // the second visit: a thread a column of a row block
  int64_t panel_chunks = 0;  // of a row, which are joined before the next ones
};

inline cuda::Geometry visit_geometry(int64_t pieces, int64_t of_block) {
  return {cuda::blocks_for(ceil_div(pieces, of_block)), static_cast<unsigned>(kVisits.threads)};
}
inline VisitPlan plan_visits(int64_t rows, int64_t cols) {
  const int64_t chunks = chunks_of(cols);
  VisitPlan plan;
  plan.sums = visit_geometry(rows * chunks, kVisits.threads / kTeam);
  if (chunks > 1) plan.rows = visit_geometry(rows, kVisits.threads / cuda::kWarpLanes);
  plan.columns = visit_geometry(row_blocks_of(rows) * cols, kVisits.threads);
  plan.panel_chunks = is_wide(rows, cols) ? kPanel / kChunk : chunks;
  return plan;
}
inline cuda::Geometry plan_join(int64_t cols) {
  return {cuda::blocks_for(ceil_div(2 * cols, int64_t{kJoinCols})),
          static_cast<unsigned>(kVisits.join_warps * cuda::kWarpLanes)};
}

// Workspace of a run on a GPU, in bytes; 0: not needed. Whether rows can be staged is known only
// when their addresses are, so there is enough for both ways.
struct GpuScratch {
  int64_t lane_sums = 0;  // float [rows][chunks][kChunkSums]
  int64_t parts = 0;      // ColumnParts
  int64_t rows = 0;       // RowNumbers of every row
};

// What the second visit needs to know of a row that is not staged.
struct RowNumbers {
  float mean_g, mean_gx;
  int64_t exact;  // 1: its dx takes FP64, with these means
  double exact_g, exact_gx;
};

inline GpuScratch scratch_on_gpu(const Problem& problem) {
  GpuScratch out;
  const auto float_size = static_cast<int64_t>(sizeof(float));
  if (problem.want_dx) {
    const int64_t chunks = chunks_of(problem.cols);
    if (chunks > 1) {
      out.lane_sums = saturating_product({problem.rows, chunks, kChunkSums, float_size});
    }
    out.rows = saturating_product({problem.rows, static_cast<int64_t>(sizeof(RowNumbers))});
  }
  if (problem.want_dgamma || problem.want_dbeta) {
    // Totals of slabs are twice as long as chains and half as many or fewer, but for a last slab of
    // one row block. They are left where a slab has two row blocks and more.
    const int64_t chains = round_up(row_blocks_of(problem.rows), 2);
    out.parts = saturating_product({chains, 2, problem.cols, float_size});
  }
  return out;
}

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_PLAN_H_

// SPDX-License-Identifier: Apache-2.0
// How EmbeddingDenseBackward is cut on a GPU, from the shape and the alignment alone. The sums do
// not depend on it.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_PLAN_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_PLAN_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/checked.h"
#include "kernels/cuda/geometry.h"
#include "ops/embedding_dense_backward/problem.h"
#include "ops/embedding_dense_backward/tree.h"

namespace aclgrad::embedding_dense_backward {

struct CudaTuning {
  int threads;          // of a block
  int blocks_of_sm;     // that the registers are limited for
  int access_bytes;     // of a thread, where all rows are aligned to that
  int accesses;         // of a row that a thread has under way in the sweep
  int64_t panel_bytes;  // of an output row that a block sweeps
  int64_t unit_bytes;   // of an output panel that a block sweeps
  int64_t least_items;  // table rows and entries of a block of the sweep
  int64_t most_items;
  int64_t long_run;  // gradient rows beyond which a run is not the sweep's
  int64_t run_unit;  // sorted positions whose long runs a block sums
  int chain_batch;   // loads of a chain that a thread has under way
  unsigned read_threads, fold_threads;
  int fold_batch;
};
// Counted, not measured: an H200 has 4.3 TB/s and answers after 0.8 us, so 26 KB have to be under
// way on each of its 132 multiprocessors. In the sweep 16 warps have four accesses of 512 bytes
// each (32 KB), in long runs eight (64 KB). A block of the sweep waits about 1 us until it knows
// its rows; at 64 KB it then has 4 us of its share of the bandwidth.
inline constexpr CudaTuning kCudaTuning = {256,  2,  16,   4, 16 << 10, 64 << 10, 16,
                                           1024, 64, 1024, 8, 256,      128,      16};

inline constexpr int kWarp = 32;
// A row's threads in long runs: one places a gradient row of the chain.
inline constexpr int kLeastChainThreads = 16;

struct CudaPlan {
  int columns = 1;         // of an access
  int64_t accesses = 0;    // of a row
  int row_threads = 1;     // that take a row's accesses side by side; a power of two
  int64_t panel = 0;       // accesses of a row that a block sweeps
  int64_t panels = 0;      // of a row
  int64_t unit_items = 0;  // table rows and entries that a block sweeps
  int64_t units = 0;
  int chain_threads = 0;  // row_threads of long runs
  int64_t tiles = 0;      // of a row, chain_threads accesses each
  int64_t run_units = 0;
  int64_t segment = 0;  // of the tree
  int64_t slots = 0;    // for partial sums; 0: no run has several segments
  int key_bits = 0;

  constexpr int64_t sweep_blocks() const { return units * panels; }
  constexpr int64_t run_blocks() const { return run_units * tiles; }

  cuda::Geometry read, table, fold;
};

// The line on which every table row follows its gradient rows: the row of its item `item`, before
// which there are `entries` of those.
constexpr int64_t row_at(int64_t item, int64_t entries, int64_t table_rows) {
  return item - entries < table_rows ? item - entries : table_rows;
}
// Whether entry `entry` of the order, whose key is `key`, is one of them.
constexpr bool is_before(int64_t entry, int64_t key, int64_t item) { return key + entry < item; }

// Keys of what does not count; they are sorted behind the table's rows.
constexpr int64_t padding_key(int64_t table_rows) { return table_rows; }
constexpr int64_t bad_key(int64_t table_rows) { return table_rows + 1; }

inline bool has_wide_numbers(const Problem& problem) {
  constexpr int64_t kNarrow = std::numeric_limits<int32_t>::max();
  return problem.rows > kNarrow || problem.table_rows > kNarrow;
}

// `columns`: that all rows can be accessed by.
inline CudaPlan plan_cuda(const Problem& problem, int columns) {
  const auto size = static_cast<int64_t>(dtype_size(problem.dw.dtype));
  const auto threads_for = [](int64_t accesses) {
    return static_cast<int>(
        std::bit_ceil(static_cast<uint64_t>(std::min<int64_t>(accesses, kWarp))));
  };
  CudaPlan plan;
  plan.columns = columns;
  plan.accesses = problem.cols / columns;
  plan.row_threads = threads_for(plan.accesses);
  const int64_t piece = int64_t{kCudaTuning.accesses} * plan.row_threads;
  const int64_t most = std::max(piece, kCudaTuning.panel_bytes / (columns * size) / piece * piece);
  plan.panels = ceil_div(plan.accesses, most);
  plan.panel = round_up(ceil_div(plan.accesses, plan.panels), piece);
  plan.panels = ceil_div(plan.accesses, plan.panel);
  const int64_t row_bytes = std::min(plan.panel, plan.accesses) * columns * size;
  plan.unit_items = std::clamp(kCudaTuning.unit_bytes / row_bytes, kCudaTuning.least_items,
                               kCudaTuning.most_items);
  // One item more than there are: bad indices follow a row behind the table's.
  plan.units = ceil_div(problem.table_rows + problem.rows + 1, plan.unit_items);
  plan.chain_threads = std::max(plan.row_threads, kLeastChainThreads);
  plan.tiles = ceil_div(plan.accesses, int64_t{plan.chain_threads});
  // A run is long only if there are more gradient rows than that.
  plan.run_units =
      problem.rows > kCudaTuning.long_run ? ceil_div(problem.rows, kCudaTuning.run_unit) : 0;
  plan.segment = segment_rows(problem.cols);
  plan.slots = problem.rows >= 2 * plan.segment ? problem.rows / plan.segment : 0;
  plan.key_bits =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(bad_key(problem.table_rows))));
  const auto launch = [](int64_t pieces, int64_t at_once, unsigned threads) {
    return cuda::Geometry{cuda::blocks_for(ceil_div(pieces, at_once)), threads};
  };
  plan.read = launch(problem.rows, kCudaTuning.read_threads, kCudaTuning.read_threads);
  plan.table = launch(plan.run_blocks() + plan.sweep_blocks(), 1,
                      static_cast<unsigned>(kCudaTuning.threads));
  plan.fold = launch(plan.slots * ceil_div(problem.cols, int64_t{kCudaTuning.fold_threads}), 1,
                     kCudaTuning.fold_threads);
  return plan;
}
static_assert(kCudaTuning.run_unit <= kLeastSegment, "a unit has at most one segment of a run");

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_PLAN_H_

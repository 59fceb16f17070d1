// SPDX-License-Identifier: Apache-2.0
// How the table is cut into work. Blocks of rows go over the table once; runs of many gradient rows
// are left out of them and are summed as units of one segment by one tile of columns.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_SWEEP_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_SWEEP_H_

#include <algorithm>

#include "base/checked.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/tree.h"

namespace aclgrad::embedding_dense_backward {

// Bytes read and written by a block: about 20 us of one core.
inline constexpr int64_t kSweepBlockBytes = int64_t{1} << 20;
inline constexpr int64_t kMaxSweepBlocks = 4096;
// Gradient rows from which a run is summed in units. Every run of that length covers two
// neighbouring multiples of half of it, which is how such runs are found. Their list lies in the
// workspace, so that a problem which has none has no such run.
inline constexpr int64_t kLongRun = 320;
static_assert(kLongRun > kStackIndices);
// Columns of a unit at most; their FP64 totals take 8 KB. Narrower tiles come to each row, and to
// its page, more often: 512 are 10 % slower where D is 768. So they are only where the longest unit
// would be more than half of a thread's part (tile_columns()). Columns do not mix: the bits do not
// depend on the threads.
inline constexpr int64_t kTile = 1024;
inline constexpr int64_t kLeastTile = 128;

// Columns of a panel: rows beyond that are cut, so that a table of few wide rows is shared out too.
inline constexpr int64_t kPanel = 65536;

// Columns [first, last) of dy and dw.
struct Columns {
  size_t first;
  size_t last;
  size_t count() const { return last - first; }
};

struct LongRun {
  int64_t row;
  int64_t begin;  // in the order
  int64_t end;
  int64_t segments;
  int64_t first_segment;
  int64_t first_partial;  // row of `partials`; runs of one segment have none
};

// The entry with which segment `segment` of a run begins, or, behind the last one, the run ends.
inline int64_t segment_begin(const LongRun& run, int64_t segment, int64_t cols) {
  return segment == run.segments ? run.end : run.begin + segment * segment_rows(cols);
}

// A place in the table and the entry of the order that comes there.
struct Place {
  int64_t row;
  int64_t entry;
};

struct Sweep {
  const Problem* problem = nullptr;
  const Plan* plan = nullptr;
  const void* dy = nullptr;
  void* dw = nullptr;
  RowOffsets dy_rows;
  RowOffsets dw_rows;
  Order order;
  bool stream = false;  // dw does not fit the cache
  bool staged = false;  // its rows, but for those of long runs, pass through a stage
  int64_t ahead = 1;  // gradient rows between the one that is added and the one that is prefetched
  int64_t tile = kTile;  // columns of a unit
  int64_t tiles = 1;
  LongRun* long_runs = nullptr;
  int64_t long_run_count = 0;
  int64_t units = 0;
  bool has_partials = false;   // some long run has several segments
  double* partials = nullptr;  // [those segments, cols]

  // The part number `index` of the columns, cut in parts of `width`.
  Columns columns(int64_t index, int64_t width) const {
    const int64_t first = index * width;
    return {static_cast<size_t>(first),
            static_cast<size_t>(std::min(first + width, problem->cols))};
  }
  double* partial(int64_t row) const { return partials + row * problem->cols; }

  int64_t run_end(int64_t entry) const {
    const int64_t key = order.keys[entry];
    int64_t low = entry + 1;
    int64_t high = order.count;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (order.keys[middle] == key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  int64_t run_begin(int64_t entry) const {
    const int64_t key = order.keys[entry];
    int64_t low = 0;
    int64_t high = entry;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (order.keys[middle] < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  bool is_long(int64_t entry) const {
    const int64_t last = entry + kLongRun - 1;
    return last < order.count && order.keys[last] == order.keys[entry];
  }
};

// Where block `block` begins: blocks are equal in bytes, those of the table rows and of the
// gradient rows taken together, and end between two table rows. A heavy head of a skewed
// distribution gets blocks of few rows.
inline Place block_begin(const Sweep& sweep, int64_t block) {
  const Order& order = sweep.order;
  const int64_t table_rows = sweep.problem->table_rows;
  if (block == 0) return {0, 0};
  if (block == sweep.plan->sweep_blocks) return {table_rows, order.count};
  const auto row_cost = static_cast<int64_t>(dtype_size(sweep.problem->dw.dtype));
  const auto entry_cost = static_cast<int64_t>(dtype_size(sweep.problem->dy.dtype));
  const int64_t total = table_rows * row_cost + order.count * entry_cost;
  const int64_t target = total * block / sweep.plan->sweep_blocks;
  int64_t low = 0;
  int64_t high = order.count;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (order.keys[middle] * row_cost + middle * entry_cost < target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const int64_t entry = low;
  const int64_t least = entry == 0 ? 0 : order.keys[entry - 1] + 1;
  const int64_t most = entry == order.count ? table_rows : order.keys[entry];
  if (least > most) return {least, sweep.run_end(entry)};  // inside a run: behind it
  return {std::clamp(ceil_div(target - entry * entry_cost, row_cost), least, most), entry};
}

// Columns of a unit, whose longest one adds `rows` gradient rows: in so many tiles that it takes no
// more than half of a thread's part of the whole, as near as kLeastTile and whole lines allow.
inline int64_t tile_columns(const Sweep& sweep, int64_t rows) {
  const Problem& problem = *sweep.problem;
  const int64_t tiles =
      ceil_div(2 * rows * aclgrad_threads(), sweep.order.count + problem.table_rows);
  return std::clamp(round_up(ceil_div(problem.cols, tiles), int64_t{64}), kLeastTile, kTile);
}

// Fills long_runs, cuts their columns in tiles and numbers their partial sums.
inline void find_long_runs(Sweep& sweep) {
  const Order& order = sweep.order;
  const int64_t cols = sweep.problem->cols;
  const int64_t step = kLongRun / 2;
  int64_t total = 0;  // segments
  int64_t partials = 0;
  int64_t longest = 0;  // rows of a segment
  for (int64_t entry = 0; entry + step < order.count;) {
    if (order.keys[entry] != order.keys[entry + step]) {
      entry += step;
      continue;
    }
    const int64_t begin = sweep.run_begin(entry);
    const int64_t end = sweep.run_end(entry);
    if (end - begin >= kLongRun) {
      const int64_t segments = segments_of(end - begin, cols);
      sweep.long_runs[sweep.long_run_count++] = {order.keys[entry], begin, end,
                                                 segments,          total, partials};
      total += segments;
      if (segments > 1) partials += segments;
      longest = std::max(longest, end - begin - (segments - 1) * segment_rows(cols));
    }
    entry = round_up(end, step);
  }
  if (total == 0) return;
  sweep.tile = tile_columns(sweep, longest);
  sweep.tiles = ceil_div(cols, sweep.tile);
  sweep.units = total * sweep.tiles;
  sweep.has_partials = partials > 0;
}

// `segment` is numbered over all runs.
inline const LongRun& run_of_segment(const Sweep& sweep, int64_t segment) {
  const LongRun* begin = sweep.long_runs;
  return *(std::upper_bound(
               begin, begin + sweep.long_run_count, segment,
               [](int64_t number, const LongRun& run) { return number < run.first_segment; }) -
           1);
}

// What a thread does: a unit of the long runs, or a block of the sweep.
struct Work {
  bool is_unit;
  int64_t index;  // of all units, or of all blocks
};

// Every thread begins with its part of the units, which are the larger pieces, and goes on with its
// part of the blocks: rows that follow each other stay with a thread (two Zen 4 cores,
// 65536x1000x768-equal and 65536x2x768 1.02 to 1.06 times as fast as with all units in front).
inline Work work_of(int64_t index, int64_t units, int64_t blocks) {
  if (units == 0) return {false, index};
  const int64_t all = units + blocks;
  const int64_t runs = run_count(all, aclgrad_threads());
  const int64_t run = run_of(all, runs, index);
  const int64_t first_unit = run_begin(units, runs, run);
  const int64_t first = run_begin(all, runs, run);
  const int64_t own_units = run_begin(units, runs, run + 1) - first_unit;
  const int64_t within = index - first;
  if (within < own_units) return {true, first_unit + within};
  return {false, first - first_unit + within - own_units};
}

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_SWEEP_H_

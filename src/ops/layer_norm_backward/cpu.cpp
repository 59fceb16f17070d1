// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward on the CPU: one parallel pass over slabs of rows. Inside a slab a few rows at a
// time are visited twice (block-inl.h): once from memory along the rows, once from L2 down the
// columns, where dx is written and the terms of dgamma and dbeta stay in registers; meanwhile the
// next rows are prefetched. finish_columns() joins the slabs. Few wide rows are cut in column
// panels instead (the sums along the rows then need a pass of their own). Long because of these two
// cuts, and because both look for the rows that take FP64 (exact-inl.h).
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "ops/layer_norm_backward/problem.h"
#include "ops/layer_norm_backward/row_forms.h"
#include "ops/layer_norm_backward/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm_backward/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/carried-inl.h"
#include "ops/layer_norm_backward/exact-inl.h"
#include "ops/layer_norm_backward/gather-inl.h"

#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_CPU_SHARED_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_CPU_SHARED_
namespace aclgrad::layer_norm_backward {
namespace {

// Rows that are visited together, from the bytes of dy and x in a row: a row block, eight or four
// rows while both visits stay in L1; else two, from L2, because more rows a power of two apart
// crowd each other out of the caches. Does not influence the bits.
constexpr int64_t group_rows_of(int64_t row_bytes) {
  constexpr int64_t kPartOfL1 = int64_t{24} << 10;
  if (kRowBlock * row_bytes <= kPartOfL1 / 2) return kRowBlock;
  return 8 * row_bytes <= kPartOfL1 ? 8 : 4 * row_bytes <= kPartOfL1 ? 4 : 2;
}

// Columns that one task joins from all slabs.
constexpr int64_t kFinishColumns = 256;

// Bytes of dx gathered before whole lines are written, where rows are not whole lines.
constexpr size_t kDxStageBytes = size_t{64} << 10;

// One run as the kernels see it: addresses, where rows lie, sizes in elements.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  const float* gamma;  // FP32 in strip order, readable to the end of its last strip
  int64_t padded_cols;
  double reciprocal_cols;
  bool columns;    // dgamma or dbeta wanted
  bool one_block;  // of rows, in one slab: its chains are all there is to sum
  bool streaming;  // dx is wanted and does not fit the cache
  const Places& places;
  const RowForms& forms;
  bool gathered;  // not all of the forms are dense

  double* slab_totals(int64_t slab) const {
    return static_cast<double*>(at.partial_region) + slab * 2 * padded_cols;
  }
  // Wide problems: the sums of every panel of every row, then the means of every row.
  double* row_totals(int64_t row, int64_t panel) const {
    return static_cast<double*>(at.row_region) + (row * plan.panels + panel) * 2;
  }
  RowMeans& row_means(int64_t row) const {
    return reinterpret_cast<RowMeans*>(row_totals(problem.rows, 0))[row];
  }
};

// Memory of the calling thread for `count` floats, kept for its next call; null when there is none.
float* thread_scratch(int64_t count) {
  thread_local std::unique_ptr<float[]> memory;
  thread_local int64_t size = 0;
  if (size < count) {
    memory.reset(new (std::nothrow) float[static_cast<size_t>(count)]);
    size = memory == nullptr ? 0 : count;
  }
  return memory.get();
}

}  // namespace
}  // namespace aclgrad::layer_norm_backward
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

// Part of the work of one row block: what becomes of the column sums of one group.
struct Group {
  bool first, last;  // of the groups of the row block
  float* chain;      // chains carried from group to group, all columns; null: one group is all
  bool first_block;  // totals hold nothing yet
  double* totals;    // dgamma, then dbeta `stride` further on; null: not wanted, or not needed
  int64_t stride;
};

// Full chains of columns [begin, end) of the group go to the totals.
HWY_INLINE void flush_chains(const Group& group, int64_t begin, int64_t end, const float* chain) {
  for (int64_t at = begin; at < end; at += static_cast<int64_t>(kLanes)) {
    double* totals = group.totals + at;
    if (group.first_block) {
      set_to(totals, load16(chain));
      set_to(totals + group.stride, load16(chain + kLanes));
    } else {
      add_to(totals, load16(chain));
      add_to(totals + group.stride, load16(chain + kLanes));
    }
    chain += 2 * kLanes;
  }
}

// Calls put(r, offset of row row + r) for r in [0, count).
template <class Put>
void each_offset(const RowOffsets& rows, int64_t row, size_t count, Put&& put) {
  if (rows.uniform()) {  // without a question per row
    const int64_t stride = rows.stride();
    int64_t offset = row * stride;
    for (size_t r = 0; r < count; ++r, offset += stride) put(r, offset);
  } else {
    for (size_t r = 0; r < count; ++r) put(r, rows(row + static_cast<int64_t>(r)));
  }
}

// One number a row, from row `row` on.
void read_numbers(const View& view, const void* base, const RowOffsets& rows, int64_t row,
                  size_t count, float* out) {
  if (view.dtype == ACL_FLOAT && rows.uniform() && rows.stride() == 1) {
    std::copy_n(static_cast<const float*>(base) + row, count, out);
    return;
  }
  visit_float(view.dtype, [&](auto type) {
    const auto* from = static_cast<const decltype(type)*>(base);
    each_offset(rows, row, count, [&](size_t r, int64_t at) { out[r] = to_float(from[at]); });
  });
}

// Rows [row, row + count) of the problem.
template <class T>
void locate(const Job& job, int64_t row, size_t count, Rows<T>& rows) {
  const Problem& problem = job.problem;
  const auto* dy = static_cast<const T*>(job.at.dy);
  const auto* x = static_cast<const T*>(job.at.x);
  auto* dx = static_cast<char*>(job.at.dx);
  const auto element = static_cast<int64_t>(dtype_size(problem.dx.dtype));
  rows.count = count;
  rows.ordinary = false;
  rows.exact = 0;
  each_offset(job.places.dy, row, count, [&](size_t r, int64_t at) { rows.dy[r] = dy + at; });
  each_offset(job.places.x, row, count, [&](size_t r, int64_t at) { rows.x[r] = x + at; });
  each_offset(job.places.dx, row, count,
              [&](size_t r, int64_t at) { rows.dx[r] = dx + at * element; });
  read_numbers(problem.mean, job.at.mean, job.places.mean, row, count, rows.mean);
  read_numbers(problem.rstd, job.at.rstd, job.places.rstd, row, count, rows.rstd);
}

// Where dx is not streamed row by row although it should be, it may go through a stage.
template <class T>
using DxStage = Stage<T, kDxStageBytes>;

// Where dx of rows that follow each other and are not whole lines goes on its way past the caches:
// of short rows the registers, if nothing keeps them from it, else a stage.
template <class T>
struct DxWay {
  DxStage<T> stage{true};
  DxCarry<T> carry;
  bool carried = false;  // the last rows were

  void flush() {
    if (carried) carry.flush();
    carried = false;
    stage.flush();
  }
};

// Some of the columns of a group of rows, and where their chains stand.
struct Tile {
  int64_t begin, end;
  float* chain;
};

template <class T, bool kPlain>
HWY_INLINE void visit_tile(const Job& job, const Rows<T>& rows, size_t first, size_t last,
                           const Store& store, const Tile& tile) {
  if (job.gathered) {
    write_gathered_columns<T, kPlain>(rows, first, last, job.forms, job.gamma, store, tile.begin,
                                      tile.end, tile.chain);
  } else {
    write_columns<T, kPlain>(rows, first, last, job.gamma, store, static_cast<size_t>(tile.begin),
                             static_cast<size_t>(tile.end), tile.chain);
  }
}

// Out of line, so that ordinary rows do not pay for what it keeps.
template <class T, bool kPlain>
HWY_NOINLINE void visit_exact_tile(const Job& job, const Rows<T>& rows, uint32_t near_zero,
                                   const Store& store, const Tile& tile) {
  visit_with_exact_rows(rows, near_zero, job.forms, job.gamma, store.dtype, tile.begin,
                        tile.end - tile.begin, tile.chain, [&](size_t first, size_t last) {
                          visit_tile<T, kPlain>(job, rows, first, last, store, tile);
                        });
}

template <class T, bool kPlain>
HWY_INLINE void write_tile(const Job& job, const Rows<T>& rows, uint32_t near_zero,
                           const Store& store, const Tile& tile) {
  const bool near =
      near_zero != 0 && (job.gathered || any_near_mean(rows, near_zero, tile.begin, tile.end));
  if (HWY_LIKELY(rows.exact == 0 && !near)) {
    visit_tile<T, kPlain>(job, rows, 0, rows.count, store, tile);
  } else {
    visit_exact_tile<T, kPlain>(job, rows, near_zero, store, tile);
  }
}

// The final sums of columns [begin, end) in strip order: sums(v) are those of vector v.
template <class T, class Sums>
HWY_INLINE void write_sums(const View& view, void* base, int64_t begin, int64_t end,
                           const Sums& sums) {
  const RowOffsets places(view, view.rank);
  visit_float(view.dtype, [&](auto type) HWY_ATTR {
    using Out = decltype(type);
    auto* out = static_cast<Out*>(base);
    alignas(64) float in_order[kStrip<T>];
    const auto count = static_cast<size_t>(end - begin);
    for (size_t at = 0; at < count; at += kStrip<T>) {
      Strip<T> strip;
      for (size_t i = 0; i < kStripVectors<T>; ++i) strip.v[i] = sums(at / kLanes + i);
      store_in_order<T>(strip, in_order);
      const size_t columns = std::min(count - at, kStrip<T>);
      const int64_t first = begin + static_cast<int64_t>(at);
      if (places.uniform() && places.stride() == 1) {
        for (size_t i = 0; i < columns; i += kLanes) {
          Store::write(out + first + i, std::min(kLanes, columns - i), load16(in_order + i));
        }
        continue;
      }
      for (size_t i = 0; i < columns; ++i) {
        const int64_t col = first + static_cast<int64_t>(i);
        const int64_t place = places.uniform() ? col * places.stride() : places(col);
        out[place] = from_float<Out>(in_order[i]);
      }
    }
  });
}

// `totals` holds dgamma, then dbeta `stride` further on. They are added to `onto`: 0, or -0 to
// leave a total as it is that is -0 (a chain of terms that underflow).
template <class T>
void write_column_sums(const Job& job, int64_t begin, int64_t end, const double* totals,
                       int64_t stride, float onto = 0.0f) {
  const Problem& problem = job.problem;
  const auto write = [&](const View& view, void* base, const double* from) HWY_ATTR {
    write_sums<T>(view, base, begin, end,
                  [&](size_t v) HWY_ATTR { return add(set16(onto), round16(from + v * kLanes)); });
  };
  if (problem.want_dgamma) write(problem.dgamma, job.at.dgamma, totals);
  if (problem.want_dbeta) write(problem.dbeta, job.at.dbeta, totals + stride);
}

// The same from chains that are all there is.
template <class T>
HWY_NOINLINE void write_chains(const Job& job, int64_t begin, int64_t end, const float* chain) {
  const Problem& problem = job.problem;
  const auto write = [&](const View& view, void* base, const float* from) HWY_ATTR {
    write_sums<T>(view, base, begin, end,
                  [&](size_t v) HWY_ATTR { return add(zero16(), load16(from + 2 * v * kLanes)); });
  };
  if (problem.want_dgamma) write(problem.dgamma, job.at.dgamma, chain);
  if (problem.want_dbeta) write(problem.dbeta, job.at.dbeta, chain + kLanes);
}

#if HWY_TARGET <= HWY_AVX3
// Rows that are carried are to come, the first of which belongs at `dx`.
template <class T>
HWY_INLINE void enter_carry(DxWay<T>& way, T* dx) {
  if (way.carried && way.carry.end() == reinterpret_cast<char*>(dx)) return;
  way.flush();
  way.carry.begin(reinterpret_cast<char*>(dx), true);
  way.carried = true;
}
template <class T>
HWY_INLINE void write_carried(const Job& job, const Rows<T>& rows, DxWay<T>& way, float* chain) {
  carry_columns(rows, job.gamma, static_cast<size_t>(job.problem.cols), chain, way.carry);
}
#else
template <class T>
void enter_carry(DxWay<T>&, T*) {}
template <class T>
void write_carried(const Job&, const Rows<T>&, DxWay<T>&, float*) {}
#endif

// Second visit of a group of rows: columns [begin, end), a tile at a time, so that its chains stay
// in L1 and every row is read and written in runs long enough for the memory's pages.
template <class T>
void write_rows(const Job& job, Rows<T>& rows, const Group& group, int64_t begin, int64_t end,
                DxWay<T>* way) {
  const Problem& problem = job.problem;
  const bool plain = problem.dx.dtype == problem.x.dtype && problem.want_dx &&
                     (rows.ordinary || dx_has_no_nan(rows));
  Store store{problem.want_dx ? problem.dx.dtype : ACL_DT_UNDEFINED,
              job.streaming && plain && job.forms.dx.dense()};
  const uint32_t near_zero = problem.want_dgamma ? rows_near_zero(rows) : 0;
  bool carried = false;
  if (way != nullptr) {
    store.streaming = false;
    const auto cols = static_cast<size_t>(problem.cols);
    carried = carries_rows<T>(cols) && plain && !job.gathered && rows.exact == 0 &&
              (near_zero == 0 || !any_near_mean(rows, near_zero, 0, problem.cols));
    if (carried) {
      enter_carry(*way, static_cast<T*>(rows.dx[0]));
    } else {
      if (way->carried) way->flush();
      T* room = way->stage.room(static_cast<T*>(rows.dx[0]), rows.count * cols);
      for (size_t r = 0; r < rows.count; ++r) rows.dx[r] = room + r * cols;
    }
  }
  for (size_t r = 0; store.streaming && r < rows.count; ++r) {
    store.streaming = begins_line(static_cast<T*>(rows.dx[r]) + begin);
  }
  alignas(64) float tile_chain[2 * kTile];
  for (int64_t at = begin; at < end; at += kTile) {
    float* chain = group.chain == nullptr ? tile_chain : group.chain + 2 * (at - begin);
    const Tile tile{at, std::min(at + kTile, end), chain};
    const int64_t columns = round_up(tile.end - at, static_cast<int64_t>(kStrip<T>));
    if (group.first) std::fill_n(chain, 2 * columns, 0.0f);
    if (carried) {
      write_carried(job, rows, *way, chain);
    } else if (plain) {
      write_tile<T, true>(job, rows, near_zero, store, tile);
    } else {
      write_tile<T, false>(job, rows, near_zero, store, tile);
    }
    if (group.last && group.totals != nullptr) {
      flush_chains(group, at - begin, at - begin + columns, chain);
    } else if (job.one_block && group.last) {
      write_chains<T>(job, at, tile.end, chain);
    }
  }
}

// First visit of a group of rows.
template <class T>
HWY_INLINE void find_means(const Job& job, Rows<T>& rows) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  if (job.gathered) {
    sum_gathered_rows(rows, job.forms, job.gamma, cols, job.reciprocal_cols);
  } else {
    InPlace<T> source{rows};
    sum_rows(rows, source, job.gamma, cols, job.reciprocal_cols);
  }
  rows.ordinary = all_ordinary(rows);
  if (HWY_UNLIKELY(!rows.ordinary)) look_closer(rows, job.forms, job.gamma, cols);
}

// One slab: all columns of its rows; its totals of dgamma and dbeta go to its region.
template <class T>
void slab(const Job& job, int64_t index) {
  const int64_t cols = job.problem.cols;
  const auto size = static_cast<int64_t>(sizeof(T));
  const int64_t begin = index * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  int64_t group_rows = group_rows_of(cols * 2 * size);
  float* chain = nullptr;
  if (group_rows < kRowBlock) {
    chain = thread_scratch(2 * job.padded_cols);
    if (chain == nullptr) group_rows = kRowBlock;  // slower, same bits
  }
  const bool dense =
      job.forms.dx.dense() && job.places.dx.uniform() && job.places.dx.stride() == cols;
  const bool staged = job.streaming && dense && job.problem.dx.dtype == job.problem.x.dtype &&
                      cols * size % static_cast<int64_t>(kLineBytes) != 0 &&
                      kRowBlock * cols * size + int64_t{kLineBytes} <= int64_t{kDxStageBytes};
  const bool uniform = !job.gathered && job.places.dy.uniform() && job.places.x.uniform();
  DxWay<T> way;
  Rows<T> rows;
  for (int64_t block = begin; block < end; block += kRowBlock) {
    const int64_t block_end = std::min(block + kRowBlock, end);
    for (int64_t row = block; row < block_end; row += group_rows) {
      const int64_t group_end = std::min(row + group_rows, block_end);
      locate(job, row, static_cast<size_t>(group_end - row), rows);
      if (uniform) {
        // Behind the last row: the rows themselves, which are at hand.
        const int64_t ahead = group_end < job.problem.rows ? (group_end - row) * size : 0;
        rows.ahead = {ahead * job.places.dy.stride(), ahead * job.places.x.stride()};
      }
      if (job.problem.want_dx) find_means(job, rows);
      const Group group{row == block,
                        group_end == block_end,
                        chain,
                        block == begin,
                        job.columns && !job.one_block ? job.slab_totals(index) : nullptr,
                        job.padded_cols};
      write_rows<T>(job, rows, group, 0, cols, staged ? &way : nullptr);
    }
  }
  way.flush();
  if (job.streaming) hwy::FlushStream();
}

// By which the first pass asks for what comes in the row.
inline constexpr Ahead kPanelAhead = {intptr_t{8} << 10, intptr_t{8} << 10};

// Wide problems, first pass: one row's sums over one panel.
template <class T>
void panel_sums(const Job& job, int64_t row, int64_t panel) {
  const int64_t first = panel * kPanel;
  const auto begin = static_cast<size_t>(first);
  const auto count = static_cast<size_t>(std::min(kPanel, job.problem.cols - first));
  Rows<T> rows;
  locate(job, row, 1, rows);
  double sums[2];
  if (job.gathered) {
    sum_gathered_row(rows, job.forms, job.gamma, begin, count, sums);
  } else {
    InPlace<T> source{rows};
    sum_row<T>(source, 0, job.gamma, begin, count, rows.mean[0], rows.rstd[0], kPanelAhead, sums);
  }
  std::copy_n(sums, 2, job.row_totals(row, panel));
}

// Between the passes: the means of one row, from its panels in order.
template <class T>
void row_means(const Job& job, int64_t row) {
  Rows<T> rows;
  locate(job, row, 1, rows);
  double sums[2] = {0.0, 0.0};
  for (int64_t p = 0; p < job.plan.panels; ++p) {
    sums[0] += job.row_totals(row, p)[0];
    sums[1] += job.row_totals(row, p)[1];
  }
  const Means means = {sums[0] * job.reciprocal_cols, sums[1] * job.reciprocal_cols};
  rows.mean_g[0] = static_cast<float>(means.g);
  rows.mean_gx[0] = static_cast<float>(means.gx);
  if (!all_ordinary(rows)) {
    look_closer(rows, job.forms, job.gamma, static_cast<size_t>(job.problem.cols));
  }
  const bool exact = rows.exact != 0;
  const Means& found = exact ? rows.exact_means[0] : means;
  job.row_means(row) = {found.g, found.gx, exact};
}

// Wide problems, second pass: rows [first, last) of one panel. The totals of dgamma and dbeta wait
// in the workspace where there are more batches of rows to come.
template <class T>
void panel(const Job& job, int64_t first, int64_t last, int64_t index) {
  const int64_t begin = index * kPanel;
  const int64_t end = std::min(begin + kPanel, job.problem.cols);
  alignas(64) double own_totals[2 * kPanel];
  const bool waits = job.plan.partial_bytes > 0;
  double* totals = waits ? job.slab_totals(0) + begin : own_totals;
  const int64_t stride = waits ? job.padded_cols : kPanel;
  // Behind the totals.
  float* chain = waits && job.plan.batch_rows < kRowBlock
                     ? reinterpret_cast<float*>(job.slab_totals(1)) + 2 * begin
                     : nullptr;
  Rows<T> rows;
  for (int64_t block = first; block < last; block += kRowBlock) {
    const int64_t block_end = std::min(block + kRowBlock, last);
    locate(job, block, static_cast<size_t>(block_end - block), rows);
    rows.ahead = {kTile * sizeof(T), kTile * sizeof(T)};
    for (size_t r = 0; job.problem.want_dx && r < rows.count; ++r) {
      const RowMeans& means = job.row_means(block + static_cast<int64_t>(r));
      rows.mean_g[r] = static_cast<float>(means.g);
      rows.mean_gx[r] = static_cast<float>(means.gx);
      rows.exact_means[r] = {means.g, means.gx};
      if (means.exact) rows.exact |= 1u << r;
    }
    const Group group{block % kRowBlock == 0,
                      block_end % kRowBlock == 0 || block_end == job.problem.rows,
                      chain,
                      block < kRowBlock,
                      job.columns ? totals : nullptr,
                      stride};
    write_rows<T>(job, rows, group, begin, end, nullptr);
  }
  if (last == job.problem.rows) write_column_sums<T>(job, begin, end, totals, stride, -0.0f);
  if (job.streaming) hwy::FlushStream();
}

template <class T>
void run_wide(const Job& job) {
  const Plan& plan = job.plan;
  const int64_t all = job.problem.rows;
  for (int64_t first = 0; first < all; first += plan.batch_rows) {
    const int64_t last = std::min(first + plan.batch_rows, all);
    if (job.problem.want_dx) {
      parallel_blocks((last - first) * plan.panels, [&](int64_t index) {
        panel_sums<T>(job, first + index / plan.panels, index % plan.panels);
      });
      parallel_blocks(last - first, [&](int64_t row) { row_means<T>(job, first + row); });
    }
    parallel_blocks(plan.panels, [&](int64_t index) { panel<T>(job, first, last, index); });
  }
}

// dgamma and dbeta of columns [begin, end) from all slabs, in the slabs' order.
template <class T>
void finish_columns(const Job& job, int64_t begin, int64_t end) {
  if (job.plan.slabs == 1) {
    return write_column_sums<T>(job, begin, end, job.slab_totals(0) + begin, job.padded_cols);
  }
  alignas(64) double totals[2 * kFinishColumns];
  const TagF64 d64;
  const auto count = static_cast<size_t>(round_up(end - begin, static_cast<int64_t>(kStrip<T>)));
  for (double* half : {totals, totals + kFinishColumns}) std::fill_n(half, count, 0.0);
  for (int64_t s = 0; s < job.plan.slabs; ++s) {
    for (size_t half = 0; half < 2; ++half) {
      const double* from =
          job.slab_totals(s) + static_cast<int64_t>(half) * job.padded_cols + begin;
      double* to = totals + half * kFinishColumns;
      for (size_t i = 0; i < count; i += kWideLanes) {
        hn::Store(hn::Add(hn::Load(d64, to + i), hn::LoadU(d64, from + i)), d64, to + i);
      }
    }
  }
  write_column_sums<T>(job, begin, end, totals, kFinishColumns);
}

// gamma of columns [begin, end) as FP32 in strip order, zeros behind it to the end of the strip.
template <class T>
void prepare_gamma(const Problem& problem, const void* gamma, int64_t begin, int64_t end,
                   float* out) {
  const auto place = [&](int64_t col) { return out + strip_place<T>(static_cast<size_t>(col)); };
  if (!problem.has_gamma()) {
    for (int64_t col = begin; col < end; ++col) *place(col) = 1.0f;
  } else {
    const RowOffsets columns(problem.gamma, problem.gamma.rank);
    visit_float(problem.gamma.dtype, [&](auto type) {
      const auto* from = static_cast<const decltype(type)*>(gamma);
      for (int64_t col = begin; col < end; ++col) {
        *place(col) = to_float(from[columns.uniform() ? col * columns.stride() : columns(col)]);
      }
    });
  }
  const int64_t padded = round_up(end, static_cast<int64_t>(kStrip<T>));
  for (int64_t col = end; col < padded; ++col) *place(col) = 0.0f;
}

template <class T>
void run(const Job& job) {
  const Plan& plan = job.plan;
  if (plan.gamma_bytes > 0) {
    auto* out = static_cast<float*>(job.at.gamma_region);
    parallel_blocks(plan.panels, [&](int64_t index) {
      const int64_t begin = index * kPanel;
      const int64_t end = std::min(begin + kPanel, job.problem.cols);
      prepare_gamma<T>(job.problem, job.at.gamma, begin, end, out);
    });
  }
  if (plan.wide) return run_wide<T>(job);
  parallel_blocks(plan.slabs, [&](int64_t index) { slab<T>(job, index); });
  if (!job.columns || job.one_block) return;
  const auto finish = [&](int64_t index) {
    const int64_t begin = index * kFinishColumns;
    finish_columns<T>(job, begin, std::min(begin + kFinishColumns, job.problem.cols));
  };
  const int64_t blocks = ceil_div(job.problem.cols, kFinishColumns);
  if (plan.slabs == 1) {
    for (int64_t i = 0; i < blocks; ++i) finish(i);
  } else {
    parallel_blocks(blocks, finish);
  }
}

void run_f32(const Job& job) { run<float>(job); }
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::layer_norm_backward {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Places& places, const Addresses& at) {
  const int64_t output_bytes =
      problem.rows * problem.cols * static_cast<int64_t>(dtype_size(problem.dx.dtype));
  const bool columns = problem.want_dgamma || problem.want_dbeta;
  const Job job{problem,
                plan,
                at,
                static_cast<const float*>(plan.gamma_bytes > 0 ? at.gamma_region : at.gamma),
                round_up(problem.cols, kWidestStrip),
                1.0 / static_cast<double>(problem.cols),
                columns,
                columns && problem.rows > 0 && plan.partial_bytes == 0 && !plan.wide,
                problem.want_dx && outputs_should_stream(output_bytes),
                places,
                places.forms,
                !places.forms.dense()};
  switch (problem.x.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(job);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(job);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(job);
  }
}

}  // namespace aclgrad::layer_norm_backward
#endif  // HWY_ONCE

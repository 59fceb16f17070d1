// SPDX-License-Identifier: Apache-2.0
// The second visit of a group of rows: which way dx takes, which rows take FP64, and what becomes
// of the chains of dgamma and dbeta.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_SECOND_VISIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_SECOND_VISIT_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_SECOND_VISIT_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_SECOND_VISIT_INL_H_
#endif

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/stage-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/carried-inl.h"
#include "ops/layer_norm_backward/column_sums-inl.h"
#include "ops/layer_norm_backward/columns-inl.h"
#include "ops/layer_norm_backward/exact-inl.h"
#include "ops/layer_norm_backward/gather-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/ordinary-inl.h"
#include "ops/layer_norm_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Bytes of dx gathered before whole lines are written, where rows are not whole lines: 64 KiB, and
// the line that was begun.
inline constexpr size_t kDxStageBytes = (size_t{64} << 10) + 2 * kLineBytes;

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
    return write_gathered_columns<T, kPlain>(rows, first, last, job.forms, job.gamma, store,
                                             tile.begin, tile.end, tile.chain);
  }
  const auto begin = static_cast<size_t>(tile.begin);
  const auto end = static_cast<size_t>(tile.end);
  if constexpr (kPlain && HWY_TARGET != HWY_SCALAR) {  // where a form each is worth its code
    if (!rows.ahead.any()) {
      return write_columns<T, kPlain, Fetch::kNothing>(rows, first, last, job.gamma, store, begin,
                                                       end, tile.chain);
    }
    if (!rows.ahead.twice) {
      return write_columns<T, kPlain, Fetch::kOnce>(rows, first, last, job.gamma, store, begin, end,
                                                    tile.chain);
    }
  }
  write_columns<T, kPlain>(rows, first, last, job.gamma, store, begin, end, tile.chain);
}

// Out of line, so that ordinary rows do not pay for what it keeps.
template <class T, bool kPlain>
HWY_NOINLINE void visit_exact_tile(const Job& job, const Rows<T>& rows, uint32_t near_zero,
                                   const Store& store, const Tile& tile) {
  Store exactly = store;
  exactly.behind = false;
  visit_with_exact_rows(rows, near_zero, job.forms, job.gamma, store.dtype, tile.begin,
                        tile.end - tile.begin, tile.chain, [&](size_t first, size_t last) {
                          visit_tile<T, kPlain>(job, rows, first, last, exactly, tile);
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

// dx has the dtype of x and holds no NaN.
template <class T>
HWY_INLINE bool is_plain(const Job& job, const Rows<T>& rows) {
  const Problem& problem = job.problem;
  return problem.dx.dtype == problem.x.dtype && problem.want_dx &&
         (rows.ordinary || dx_has_no_nan(rows));
}

// No term of dgamma needs a closer look.
template <class T>
HWY_INLINE bool has_usual_terms(const Job& job, const Rows<T>& rows, uint32_t near_zero) {
  return near_zero == 0 || !any_near_mean(rows, near_zero, 0, job.problem.cols);
}
template <class T>
HWY_INLINE bool has_usual_terms(const Job& job, const Rows<T>& rows) {
  return has_usual_terms(job, rows, job.problem.want_dgamma ? rows_near_zero(rows) : 0);
}

// dx of these rows goes to the stage.
template <class T>
HWY_INLINE void enter_stage(Rows<T>& rows, size_t cols, DxWay<T>& way) {
  if (way.carried) way.flush();
  T* room = way.stage.room(static_cast<T*>(rows.dx[0]), rows.count * cols);
  for (size_t r = 0; r < rows.count; ++r) rows.dx[r] = room + r * cols;
}

// Whether all rows begin a line at column `begin` of dx, which may stream then.
template <class T>
HWY_INLINE bool begin_lines(const Rows<T>& rows, int64_t begin) {
  for (size_t r = 0; r < rows.count; ++r) {
    if (!begins_line(static_cast<T*>(rows.dx[r]) + begin)) return false;
  }
  return true;
}

// Where a row block begins: nothing in the chains of so many columns.
template <class T>
HWY_INLINE void clear_chains(float* chain, int64_t cols) {
  std::fill_n(chain, 2 * round_up(cols, static_cast<int64_t>(kStrip<T>)), 0.0f);
}

// What becomes of the chains of columns [at, end) behind a group; the group's begin at `begin`.
template <class T>
HWY_INLINE void leave_chains(const Job& job, const Group& group, int64_t begin, int64_t at,
                             int64_t end, const float* chain) {
  if (!group.last) return;
  if (group.totals != nullptr) {
    const int64_t columns = round_up(end - at, static_cast<int64_t>(kStrip<T>));
    flush_chains(group, at - begin, at - begin + columns, chain);
  } else if (job.one_block) {
    write_chains<T>(job, at, end, chain);
  }
}

// Second visit of a group of rows: columns [begin, end), a tile at a time, so that its chains stay
// in L1 and every row is read and written in runs long enough for the memory's pages, or in longer
// runs (kRunTile).
template <class T>
HWY_INLINE void write_rows(const Job& job, Rows<T>& rows, const Group& group, int64_t begin,
                           int64_t end, DxWay<T>* way) {
  const Problem& problem = job.problem;
  const bool plain = is_plain(job, rows);
  Store store{problem.want_dx ? problem.dx.dtype : ACL_DT_UNDEFINED,
              job.streaming && plain && job.forms.dx.dense(), false};
  const uint32_t near_zero = problem.want_dgamma ? rows_near_zero(rows) : 0;
  bool carried = false;
  if (way != nullptr) {
    store.streaming = false;
    const auto cols = static_cast<size_t>(problem.cols);
    carried = carries_rows<T>(cols) && plain && !job.gathered && rows.exact == 0 &&
              has_usual_terms(job, rows, near_zero);
    if (carried) {
      enter_carry(*way, static_cast<T*>(rows.dx[0]));
    } else {
      enter_stage(rows, cols, *way);
    }
  }
  if (store.streaming) store.streaming = begin_lines(rows, begin);
  alignas(64) float tile_chain[2 * kLongTile];
  const bool in_runs = kTakesPrefetches && group.chain != nullptr && plain && !job.gathered &&
                       !job.plan.wide && rows.exact == 0 && near_zero == 0;
  const int64_t step = in_runs ? kRunTile : rows.tile();
  store.behind = way != nullptr && rows.open && end - begin <= step;
  for (int64_t at = begin; at < end; at += step) {
    float* chain = group.chain == nullptr ? tile_chain : group.chain + 2 * (at - begin);
    const Tile tile{at, std::min(at + step, end), chain};
    if (group.first) clear_chains<T>(chain, tile.end - at);
    if (carried) {
      write_carried(job, rows, *way, chain);
    } else if (plain) {
      write_tile<T, true>(job, rows, near_zero, store, tile);
    } else {
      write_tile<T, false>(job, rows, near_zero, store, tile);
    }
    leave_chains<T>(job, group, begin, at, tile.end, chain);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// EmbeddingDenseBackward on the CPU. The positions of the indices are sorted by table row
// (order.h); then one parallel sweep writes the table, every row once: runs of gradient rows are
// summed in registers, strip of columns by strip, and rows without any become zeros. Long runs are
// taken out of the sweep and summed by several tasks (sweep.h), a few of them together in the order
// of dy (few_runs-inl.h); finish_run() joins what those left. Narrow tables go other ways
// (narrow.h).
#include <algorithm>
#include <cstddef>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "ops/embedding_dense_backward/buckets.h"
#include "ops/embedding_dense_backward/few_runs.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/owners.h"
#include "ops/embedding_dense_backward/problem.h"
#include "ops/embedding_dense_backward/sweep.h"
#include "ops/embedding_dense_backward/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/embedding_dense_backward/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/embedding_dense_backward/buckets-inl.h"
#include "ops/embedding_dense_backward/chains-inl.h"
#include "ops/embedding_dense_backward/few_runs-inl.h"
#include "ops/embedding_dense_backward/owners-inl.h"
#include "ops/embedding_dense_backward/table_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Bytes of zeros that may wait in the stage with the rows around them.
constexpr size_t kFewZeros = 4096;

// One block of the sweep: rows [at.row, end.row) of the table in one panel.
template <class T, class TOut>
void sweep_block(const Sweep& sweep, Place at, Place end, Columns panel) {
  alignas(64) double totals[kTile];
  Stage<TOut> stage(true);
  const bool staged = sweep.staged;
  const bool stream = sweep.stream && !staged;
  const auto place = [&](int64_t row) {
    TOut* out = static_cast<TOut*>(sweep.dw) + sweep.dw_rows(row);
    return staged ? stage.room(out, panel.last) : out;
  };
  while (at.row < end.row) {
    const int64_t next = at.entry < end.entry ? sweep.order.keys[at.entry] : end.row;
    if (next > at.row) {
      if (staged && static_cast<size_t>(next - at.row) * panel.last * sizeof(TOut) <= kFewZeros) {
        for (; at.row < next; ++at.row) std::fill_n(place(at.row), panel.last, TOut{});
        continue;
      }
      if (staged) stage.flush();
      write_zero_rows<TOut>(sweep, at.row, next, panel);
      at.row = next;
      continue;
    }
    const int64_t row = at.row++;
    if (sweep.is_long(at.entry)) {
      at.entry = sweep.run_end(at.entry);
      continue;
    }
    const int64_t begin = at.entry;
    while (at.entry < end.entry && sweep.order.keys[at.entry] == row) ++at.entry;
    const int64_t count = at.entry - begin;
    TOut* out = place(row);
    if (count == 1) {
      write_single<T, TOut>(sweep, begin, end.entry, panel, out, stream);
      continue;
    }
    if (count <= static_cast<int64_t>(kChain)) {
      write_short_run<T, TOut>(sweep, begin, count, end.entry, panel, out, stream);
      continue;
    }
    for (size_t first = panel.first; first < panel.last; first += kTile) {
      const Columns tile{first, std::min(first + size_t{kTile}, panel.last)};
      sum_tile<T>(sweep, begin, at.entry, tile, totals);
      write_tile(sweep, totals, count, tile, out, stream);
    }
  }
  if (staged) stage.flush();
  if (sweep.stream) hwy::FlushStream();
}

// One unit of the long runs: a segment by a tile of columns.
template <class T, class TOut>
void sum_unit(const Sweep& sweep, int64_t unit) {
  const LongRun& run = run_of_segment(sweep, unit / sweep.tiles);
  const int64_t segment = unit / sweep.tiles - run.first_segment;
  const Columns tile = sweep.columns(unit % sweep.tiles, sweep.tile);
  const int64_t begin = segment_begin(run, segment, sweep.problem->cols);
  const int64_t end = segment_begin(run, segment + 1, sweep.problem->cols);
  alignas(64) double totals[kTile];
  sum_tile<T>(sweep, begin, end, tile, totals);
  if (run.segments == 1) {
    TOut* out = static_cast<TOut*>(sweep.dw) + sweep.dw_rows(run.row);
    write_tile(sweep, totals, run.end - run.begin, tile, out, sweep.stream);
    if (sweep.stream) hwy::FlushStream();
  } else {
    std::copy_n(totals, tile.count(), sweep.partial(run.first_partial + segment) + tile.first);
  }
}

// One tile of one long run: joins its segments, in order.
template <class TOut>
void finish_run(const Sweep& sweep, const LongRun& run, Columns tile) {
  if (run.segments == 1) return;
  alignas(64) double totals[kTile];
  std::copy_n(sweep.partial(run.first_partial) + tile.first, tile.count(), totals);
  for (int64_t segment = 1; segment < run.segments; ++segment) {
    const double* partial = sweep.partial(run.first_partial + segment) + tile.first;
    for (size_t i = 0; i < tile.count(); ++i) totals[i] += partial[i];
  }
  TOut* out = static_cast<TOut*>(sweep.dw) + sweep.dw_rows(run.row);
  write_tile(sweep, totals, run.end - run.begin, tile, out, sweep.stream);
  if (sweep.stream) hwy::FlushStream();
}

// One share of a few runs; not inlined, so that its 26 to 50 KB of the stack are not under all
// other blocks.
template <class T>
HWY_NOINLINE void sum_share(const Sweep& sweep, int64_t index, int64_t shares) {
  FewRuns<T>(sweep, index, shares).sum();
}

template <class T, class TOut>
void run(const Sweep& sweep) {
  const Plan& plan = *sweep.plan;
  const int64_t blocks = plan.sweep_blocks * plan.panels;
  const int64_t shares =
      takes_rows_one_by_one<T>(sweep.problem->cols) ? shares_of_few_runs(sweep, sizeof(T)) : 0;
  const int64_t units = shares > 0 ? shares : sweep.units;
  parallel_blocks(units + blocks, [&](int64_t index) {
    const Work work = work_of(index, units, blocks);
    if (work.is_unit) {
      return shares > 0 ? sum_share<T>(sweep, work.index, shares)
                        : sum_unit<T, TOut>(sweep, work.index);
    }
    const int64_t rows = work.index / plan.panels;
    sweep_block<T, TOut>(sweep, block_begin(sweep, rows), block_begin(sweep, rows + 1),
                         sweep.columns(work.index % plan.panels, kPanel));
  });
  if (!sweep.has_partials) return;
  parallel_blocks(sweep.long_run_count * sweep.tiles, [&](int64_t block) {
    finish_run<TOut>(sweep, sweep.long_runs[block / sweep.tiles],
                     sweep.columns(block % sweep.tiles, sweep.tile));
  });
}

template <class T>
void run_for_output(const Sweep& sweep) {
  visit_float(sweep.problem->dw.dtype, [&](auto type) { run<T, decltype(type)>(sweep); });
}
void run_f32(const Sweep& sweep) { run_for_output<float>(sweep); }
void run_f16(const Sweep& sweep) { run_for_output<float16_t>(sweep); }
void run_bf16(const Sweep& sweep) { run_for_output<bfloat16_t>(sweep); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::embedding_dense_backward {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);
HWY_EXPORT(sum_owned);
HWY_EXPORT(sum_buckets);

// Bytes of gradient rows that are on their way from memory while one is added.
constexpr int64_t kBytesAhead = 8192;

// Whether rows of the table, which follow each other without being whole lines, wait in a stage
// until their lines are: stored in two ways, a line that two rows share goes to memory twice, and
// one that passes the caches is read first (two cores of Zen 3, as many indices as rows, times as
// fast: f32 28 columns 1.09, 33 1.06, 40 1.1, 50 1.1, 65 1.1, 95 1.1, 127 1.09, 255 1.07, 511 1.05,
// bf16 65 1.1, 127 1.17, 191 1.18, 257 1.12, 513 1.14, 16384x50304x767 1.08). Shorter rows wait for
// their gradient rows (f32 17 and 24 columns level).
bool waits_in_stage(const Sweep& sweep) {
  constexpr int64_t kLeast = 112, kMost = 8000;  // bytes of a row, the latter of what a stage holds
  const int64_t cols = sweep.problem->cols;
  const auto size = static_cast<int64_t>(dtype_size(sweep.problem->dw.dtype));
  return sweep.stream && cols * size % int64_t{kLineBytes} != 0 && cols * size >= kLeast &&
         cols * size <= kMost && sweep.dw_rows.uniform() && sweep.dw_rows.stride() == cols &&
         reinterpret_cast<uintptr_t>(sweep.dw) % static_cast<uintptr_t>(size) == 0;
}

int64_t size_of(const View& view) { return static_cast<int64_t>(dtype_size(view.dtype)); }

bool table_should_stream(const Problem& problem) {
  return outputs_should_stream(problem.table_rows * problem.cols * size_of(problem.dw));
}

Sweep make_sweep(const Problem& problem, const Plan& plan, const Addresses& at,
                 const Order& order) {
  Sweep sweep;
  sweep.problem = &problem;
  sweep.plan = &plan;
  sweep.dy = at.dy;
  sweep.dw = at.dw;
  sweep.dy_rows = plan.dy_rows;
  sweep.dw_rows = plan.dw_rows;
  sweep.order = order;
  sweep.stream = table_should_stream(problem);
  sweep.staged = waits_in_stage(sweep);
  sweep.ahead = std::clamp(kBytesAhead / (problem.cols * size_of(problem.dy)), int64_t{1},
                           static_cast<int64_t>(kChain));
  // What is left of the sort serves the long runs.
  auto* spare = static_cast<std::byte*>(order.spare);
  sweep.long_runs = reinterpret_cast<LongRun*>(spare);
  const int64_t list_bytes = problem.rows / kLongRun * static_cast<int64_t>(sizeof(LongRun));
  sweep.partials = reinterpret_cast<double*>(spare + round_up(list_bytes, 64));
  return sweep;
}

void dispatch(const Sweep& sweep) {
  switch (sweep.problem->dy.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(sweep);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(sweep);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(sweep);
  }
}

template <class Key>
BadIndex run_with(const Problem& problem, const Plan& plan, Addresses at) {
  Key buffers[2][2 * kStackIndices];
  Key histogram[size_t{1} << kMaxDigitBits];
  if (problem.rows <= kStackIndices) {
    at.buffers = {buffers[0], buffers[1]};
    at.histograms = histogram;
  }
  Order order;
  if (problem.rows > 0) {
    const bool at_once = make_keys_at_once(problem.indices);
    const auto sum_narrow = [&](bool has_keys, BadIndex bad) {
      const NarrowTable table{problem, plan, at, table_should_stream(problem), has_keys};
      if (plan.owners > 0) {
        HWY_DYNAMIC_DISPATCH(sum_owned)({table}, bad);
      } else {
        HWY_DYNAMIC_DISPATCH(sum_buckets)(table, bad);
      }
      return bad;
    };
    const bool narrow = plan.owners > 0 || plan.has_buckets;
    if (narrow && at_once && !begin_by_rising(problem, at.indices)) {
      return sum_narrow(false, {-1, 0, 0.0});
    }
    Addresses in_sort = at;
    // Buckets of indices whose keys are made at once leave the room of their records to the sort.
    if (plan.has_buckets && at_once) in_sort.buffers = room_of_records(problem, at);
    Sort<Key> sort(problem, plan, in_sort);
    const auto found = sort.read();
    if (narrow && !found.rise) return sum_narrow(plan.owners > 0 || !at_once, found.bad);
    order = sort.order_of(found);
  }
  Sweep sweep = make_sweep(problem, plan, at, order);
  find_long_runs(sweep);
  dispatch(sweep);
  return order.bad;
}

}  // namespace

BadIndex run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  return plan.wide ? run_with<int64_t>(problem, plan, at) : run_with<int32_t>(problem, plan, at);
}

}  // namespace aclgrad::embedding_dense_backward
#endif  // HWY_ONCE

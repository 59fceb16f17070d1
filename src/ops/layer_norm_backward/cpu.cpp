// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward on the CPU: one parallel pass over slabs of rows. Inside a slab a few rows at a
// time are visited twice: row_coefficients() brings them from memory into L2 and sums along the
// rows; write_rows() goes down the columns of those rows, where the terms of dgamma and dbeta stay
// in registers, and writes dx. finish_columns() joins the slabs. Few wide rows are cut in column
// panels instead (the sums along the rows then need a pass of their own).
#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "ops/layer_norm_backward/problem.h"
#include "ops/layer_norm_backward/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm_backward/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/sums-inl.h"

#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_CPU_SHARED_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_CPU_SHARED_
namespace aclgrad::layer_norm_backward {
namespace {

// Bytes of dy and x that are visited together: the second visit must still find them in L2, beside
// the next rows, which are being prefetched. Does not influence the bits.
constexpr int64_t kGroupBytes = int64_t{192} << 10;

// Columns visited for all rows of a group before the next ones: 4 KiB of chains.
constexpr int64_t kTile = 512;

// Columns that one task joins from all slabs.
constexpr int64_t kFinishColumns = 256;

// One run as the kernels see it: addresses, row offsets, sizes in elements.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  const float* gamma;  // FP32, ones when absent
  int64_t padded_cols;
  double reciprocal_cols;
  bool columns;    // dgamma or dbeta wanted
  bool streaming;  // dx is wanted and does not fit the cache
  RowOffsets dy_rows, x_rows, dx_rows, mean_rows, rstd_rows;

  double* slab_totals(int64_t slab) const {
    return static_cast<double*>(at.partial_region) + slab * 2 * padded_cols;
  }
  double* row_totals(int64_t row, int64_t panel) const {
    return static_cast<double*>(at.row_region) + (row * plan.panels + panel) * 2;
  }
};

// One element of any float dtype.
float element(aclDataType dtype, const void* base, int64_t offset) {
  return visit_float(
      dtype, [&](auto type) { return to_float(static_cast<const decltype(type)*>(base)[offset]); });
}
void put_element(aclDataType dtype, void* base, int64_t offset, float value) {
  visit_float(dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(base)[offset] = from_float<T>(value);
  });
}

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

// What a row needs besides its elements: dx = rstd * ((g - mean_g) - xhat * mean_gx).
struct Row {
  int64_t dy, x, dx;  // offsets of the first element
  float mean, rstd, mean_g, mean_gx;
};

Row locate(const Job& job, int64_t row) {
  const Problem& problem = job.problem;
  return Row{job.dy_rows(row),
             job.x_rows(row),
             job.dx_rows(row),
             element(problem.mean.dtype, job.at.mean, job.mean_rows(row)),
             element(problem.rstd.dtype, job.at.rstd, job.rstd_rows(row)),
             0.0f,
             0.0f};
}

}  // namespace
}  // namespace aclgrad::layer_norm_backward
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Sums of g and g * xhat over columns [begin, begin + count) of a row.
template <class T>
HWY_INLINE void sum_row(const Job& job, const Row& row, int64_t begin, int64_t count,
                        double (&sums)[2]) {
  const T* dy = static_cast<const T*>(job.at.dy) + row.dy + begin;
  const T* x = static_cast<const T*>(job.at.x) + row.x + begin;
  const float* gamma = job.gamma + begin;
  const F32x16 mean = set16(row.mean);
  const F32x16 rstd = set16(row.rstd);
  row_sums<2>(static_cast<size_t>(count), sums,
              [&](size_t i, size_t lanes, F32x16(&acc)[2]) HWY_ATTR {
                const size_t at = i * kLanes;
                if (HWY_LIKELY(lanes == kLanes)) {
                  const F32x16 g = mul(load16(dy + at), load16(gamma + at));
                  const F32x16 xhat = mul(sub(load16(x + at), mean), rstd);
                  acc[0] = add(acc[0], g);
                  acc[1] = fma(g, xhat, acc[1]);
                } else {
                  const F32x16 g = mul(load_first(dy + at, lanes), load_first(gamma + at, lanes));
                  const F32x16 xhat = mul(sub(load_first(x + at, lanes), mean), rstd);
                  acc[0] = add(acc[0], keep_first(g, lanes));
                  acc[1] = fma(keep_first(g, lanes), keep_first(xhat, lanes), acc[1]);
                }
              });
}

// How dx leaves the registers. Its dtype is decided per store, not per kernel: the branch always
// goes the same way, and a third of the instantiations remains.
struct Store {
  aclDataType dtype;  // undefined: dx is not wanted
  bool streaming;

  HWY_INLINE void put(void* row, int64_t at, size_t lanes, const F32x16& v) const {
    if (dtype == ACL_FLOAT) {
      write(static_cast<float*>(row) + at, lanes, v);
    } else if (dtype == ACL_FLOAT16) {
      write(static_cast<float16_t*>(row) + at, lanes, v);
    } else {
      write(static_cast<bfloat16_t*>(row) + at, lanes, v);
    }
  }
  template <class T>
  HWY_INLINE void write(T* to, size_t lanes, const F32x16& v) const {
    if (lanes < kLanes) {
      store_first(v, to, lanes);
    } else if (streaming) {
      stream16(v, to);
    } else {
      store16(v, to);
    }
  }
};

// One row's addresses, in registers while its elements are visited.
template <class T>
struct RowAt {
  RowAt() = default;
  RowAt(const Job& job, const Row& row)
      : dy(static_cast<const T*>(job.at.dy) + row.dy),
        x(static_cast<const T*>(job.at.x) + row.x),
        dx(static_cast<char*>(job.at.dx) +
           row.dx * static_cast<int64_t>(dtype_size(job.problem.dx.dtype))),
        mean(row.mean),
        rstd(row.rstd),
        mean_g(row.mean_g),
        mean_gx(row.mean_gx) {}
  const T* dy;
  const T* x;
  void* dx;
  float mean, rstd, mean_g, mean_gx;
};

// Part of the work of one row block: the rows of one group, and what becomes of their column sums.
struct Group {
  const Row* rows;
  size_t count;
  bool first, last;  // of the groups of the row block
  float* chain;  // chains carried from group to group, all columns; null: one group is the block
  bool first_block;  // totals hold nothing yet
  double* totals;    // dgamma, then dbeta `stride` further on
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

template <class T>
HWY_INLINE void find_means(const Job& job, Row& row) {
  double sums[2];
  sum_row<T>(job, row, 0, job.problem.cols, sums);
  row.mean_g = static_cast<float>(sums[0] * job.reciprocal_cols);
  row.mean_gx = static_cast<float>(sums[1] * job.reciprocal_cols);
}

// Sixteen columns of one row: writes dx and adds the terms of dgamma and dbeta. Only the first
// `lanes` columns are there unless kWhole.
template <class T, bool kWhole>
HWY_INLINE void visit(const RowAt<T>& row, int64_t at, size_t lanes, const F32x16& gamma,
                      const Store& store, F32x16& dgamma, F32x16& dbeta) {
  const F32x16 dy = kWhole ? load16(row.dy + at) : load_first(row.dy + at, lanes);
  const F32x16 x = kWhole ? load16(row.x + at) : load_first(row.x + at, lanes);
  const F32x16 rstd = set16(row.rstd);
  const F32x16 xhat = mul(sub(x, set16(row.mean)), rstd);
  dgamma = fma(dy, xhat, dgamma);
  dbeta = add(dbeta, dy);
  if (store.dtype == ACL_DT_UNDEFINED) return;
  const F32x16 centred = sub(mul(dy, gamma), set16(row.mean_g));
  const F32x16 dx = mul(fnma(xhat, set16(row.mean_gx), centred), rstd);
  store.put(row.dx, at, kWhole ? kLanes : lanes, dx);
}

// Columns [begin, end) of R rows. `chain` holds the FP32 chains of those columns, dgamma and dbeta
// by turns.
template <class T, size_t R>
HWY_INLINE void visit_rows(const RowAt<T> (&rows)[R], const float* gamma_row, const Store& store,
                           int64_t begin, int64_t end, float* chain) {
  int64_t at = begin;
  for (; at + static_cast<int64_t>(kLanes) <= end; at += static_cast<int64_t>(kLanes)) {
    const F32x16 gamma = load16(gamma_row + at);
    F32x16 dgamma = load16(chain);
    F32x16 dbeta = load16(chain + kLanes);
    for (size_t r = 0; r < R; ++r) {
      visit<T, true>(rows[r], at, kLanes, gamma, store, dgamma, dbeta);
    }
    store_raw(dgamma, chain);
    store_raw(dbeta, chain + kLanes);
    chain += 2 * kLanes;
  }
  if (at == end) return;
  const auto lanes = static_cast<size_t>(end - at);
  const F32x16 gamma = load_first(gamma_row + at, lanes);
  F32x16 dgamma = load16(chain);
  F32x16 dbeta = load16(chain + kLanes);
  for (size_t r = 0; r < R; ++r) {
    visit<T, false>(rows[r], at, lanes, gamma, store, dgamma, dbeta);
  }
  store_raw(dgamma, chain);
  store_raw(dbeta, chain + kLanes);
}

// Columns [begin, end) of a group of rows, a tile of columns at a time: its chains stay in L1, and
// every row is read and written in runs long enough for the memory's pages.
template <class T>
void write_rows(const Job& job, const Group& group, int64_t begin, int64_t end) {
  RowAt<T> rows[kRowBlock];
  Store store{job.problem.dx.dtype, job.streaming};
  const auto line = kLanes * dtype_size(store.dtype);
  for (size_t r = 0; r < group.count; ++r) {
    rows[r] = RowAt<T>(job, group.rows[r]);
    const auto first = reinterpret_cast<uintptr_t>(rows[r].dx) +
                       static_cast<uintptr_t>(begin) * dtype_size(store.dtype);
    if (store.streaming && first % line != 0) store.streaming = false;
  }
  alignas(64) float tile_chain[2 * kTile];
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t tile_end = std::min(tile + kTile, end);
    float* chain = group.chain == nullptr ? tile_chain : group.chain + 2 * (tile - begin);
    const auto columns = round_up(tile_end - tile, static_cast<int64_t>(kLanes));
    if (group.first) std::fill_n(chain, 2 * columns, 0.0f);
    size_t r = 0;
    for (; r + 2 <= group.count; r += 2) {
      const RowAt<T> two[2] = {rows[r], rows[r + 1]};
      visit_rows<T, 2>(two, job.gamma, store, tile, tile_end, chain);
    }
    if (r < group.count) {
      const RowAt<T> one[1] = {rows[r]};
      visit_rows<T, 1>(one, job.gamma, store, tile, tile_end, chain);
    }
    if (group.last && job.columns) flush_chains(group, tile - begin, tile_end - begin, chain);
  }
}

// One slab: all columns of its rows; its totals of dgamma and dbeta go to its region.
template <class T>
void slab(const Job& job, int64_t index) {
  const int64_t cols = job.problem.cols;
  const int64_t begin = index * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  const int64_t bytes_of_row = cols * 2 * static_cast<int64_t>(sizeof(T));
  int64_t group_rows = std::clamp(kGroupBytes / bytes_of_row, int64_t{1}, kRowBlock);
  float* chain = nullptr;
  if (group_rows < kRowBlock) {
    chain = thread_scratch(2 * job.padded_cols);
    if (chain == nullptr) group_rows = kRowBlock;  // slower, same bits
  }
  Row rows[kRowBlock];
  for (int64_t block = begin; block < end; block += kRowBlock) {
    const int64_t block_end = std::min(block + kRowBlock, end);
    for (int64_t row = block; row < block_end; row += group_rows) {
      const int64_t group_end = std::min(row + group_rows, block_end);
      const int64_t count = group_end - row;
      for (int64_t r = 0; r < count; ++r) {
        rows[r] = locate(job, row + r);
        if (job.problem.want_dx) find_means<T>(job, rows[r]);
      }
      const Group group{rows,
                        static_cast<size_t>(count),
                        row == block,
                        group_end == block_end,
                        chain,
                        block == begin,
                        job.columns ? job.slab_totals(index) : nullptr,
                        job.padded_cols};
      write_rows<T>(job, group, 0, cols);
    }
  }
  if (job.streaming) hwy::FlushStream();
}

// Wide problems, first pass: one row's sums over one panel.
template <class T>
void panel_sums(const Job& job, int64_t index) {
  const int64_t row = index / job.plan.panels;
  const int64_t panel = index % job.plan.panels;
  const int64_t begin = panel * kPanel;
  double sums[2];
  sum_row<T>(job, locate(job, row), begin, std::min(kPanel, job.problem.cols - begin), sums);
  double* totals = job.row_totals(row, panel);
  totals[0] = sums[0];
  totals[1] = sums[1];
}

// The final sums of columns [begin, end): `totals` holds dgamma, then dbeta `stride` further on.
void write_column_sums(const Job& job, int64_t begin, int64_t end, const double* totals,
                       int64_t stride) {
  const auto write = [&](const View& view, void* base, const double* from) {
    const RowOffsets place(view, view.rank);
    for (int64_t col = begin; col < end; ++col) {
      put_element(view.dtype, base, place(col), static_cast<float>(from[col - begin]));
    }
  };
  if (job.problem.want_dgamma) write(job.problem.dgamma, job.at.dgamma, totals);
  if (job.problem.want_dbeta) write(job.problem.dbeta, job.at.dbeta, totals + stride);
}

// Wide problems, second pass: all rows of one panel.
template <class T>
void panel(const Job& job, int64_t index) {
  const int64_t begin = index * kPanel;
  const int64_t end = std::min(begin + kPanel, job.problem.cols);
  alignas(64) double totals[2 * kPanel];
  Row rows[kRowBlock];
  for (int64_t block = 0; block < job.problem.rows; block += kRowBlock) {
    const auto count = static_cast<size_t>(std::min(kRowBlock, job.problem.rows - block));
    for (size_t r = 0; r < count; ++r) {
      const int64_t row = block + static_cast<int64_t>(r);
      rows[r] = locate(job, row);
      double sums[2] = {0.0, 0.0};
      for (int64_t p = 0; job.problem.want_dx && p < job.plan.panels; ++p) {
        sums[0] += job.row_totals(row, p)[0];
        sums[1] += job.row_totals(row, p)[1];
      }
      rows[r].mean_g = static_cast<float>(sums[0] * job.reciprocal_cols);
      rows[r].mean_gx = static_cast<float>(sums[1] * job.reciprocal_cols);
    }
    const Group group{rows, count, true, true, nullptr, block == 0, totals, kPanel};
    write_rows<T>(job, group, begin, end);
  }
  write_column_sums(job, begin, end, totals, kPanel);
  if (job.streaming) hwy::FlushStream();
}

// dgamma and dbeta of columns [begin, end) from all slabs, in the slabs' order.
void finish_columns(const Job& job, int64_t begin, int64_t end) {
  alignas(64) double totals[2 * kFinishColumns] = {};
  const TagF64 d64;
  const auto count = static_cast<size_t>(round_up(end - begin, kLanes));
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
  write_column_sums(job, begin, end, totals, kFinishColumns);
}

template <class T>
void run(const Job& job) {
  const Plan& plan = job.plan;
  if (plan.wide) {
    if (job.problem.want_dx) {
      parallel_blocks(job.problem.rows * plan.panels,
                      [&](int64_t index) { panel_sums<T>(job, index); });
    }
    parallel_blocks(plan.panels, [&](int64_t index) { panel<T>(job, index); });
    return;
  }
  parallel_blocks(plan.slabs, [&](int64_t index) { slab<T>(job, index); });
  if (!job.columns) return;
  const auto finish = [&](int64_t index) {
    const int64_t begin = index * kFinishColumns;
    finish_columns(job, begin, std::min(begin + kFinishColumns, job.problem.cols));
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

// gamma as a dense FP32 row: as it is, converted, or ones.
const float* gamma_as_f32(const Problem& problem, const Addresses& at) {
  if (problem.gamma.dtype == ACL_FLOAT) return static_cast<const float*>(at.gamma);
  auto* out = static_cast<float*>(at.gamma_region);
  for (int64_t i = 0; i < problem.cols; ++i) {
    out[i] = problem.has_gamma() ? element(problem.gamma.dtype, at.gamma, i) : 1.0f;
  }
  return out;
}

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const int64_t output_bytes =
      problem.rows * problem.cols * static_cast<int64_t>(dtype_size(problem.dx.dtype));
  const Job job{problem,
                plan,
                at,
                gamma_as_f32(problem, at),
                round_up(problem.cols, static_cast<int64_t>(kLanes)),
                1.0 / static_cast<double>(problem.cols),
                problem.want_dgamma || problem.want_dbeta,
                problem.want_dx && outputs_should_stream(output_bytes),
                RowOffsets(problem.dy, problem.row_dim),
                RowOffsets(problem.x, problem.row_dim),
                RowOffsets(problem.dx, problem.want_dx ? problem.row_dim : 0),
                RowOffsets(problem.mean, problem.mean.rank),
                RowOffsets(problem.rstd, problem.rstd.rank)};
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

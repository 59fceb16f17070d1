// SPDX-License-Identifier: Apache-2.0
// LayerNorm on the CPU: one parallel pass over the rows. A row comes from memory to be summed, and
// is written from L1 or L2 while the next one is summed, so that the memory is read and written at
// the same time. Moments are taken panel by panel and joined, so that a row of any length is read
// from memory at most twice. Few wide rows share their panels among threads instead. Where a row's
// columns are not one run they pass through buffers on the stack, a panel at a time
// (gathered-inl.h). y is written in place or through a stage.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/halves.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "ops/layer_norm/job.h"
#include "ops/layer_norm/problem.h"
#include "ops/layer_norm/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/stage-inl.h"
#include "ops/layer_norm/across-inl.h"
#include "ops/layer_norm/block-inl.h"
#include "ops/layer_norm/find-inl.h"
#include "ops/layer_norm/gathered-inl.h"
#include "ops/layer_norm/joined-inl.h"
#include "ops/layer_norm/moments-inl.h"
#include "ops/layer_norm/wide-inl.h"
#include "ops/layer_norm/write_and_find-inl.h"

#ifndef ACLGRAD_OPS_LAYER_NORM_CPU_SHARED_
#define ACLGRAD_OPS_LAYER_NORM_CPU_SHARED_
namespace aclgrad::layer_norm {
namespace {

// Rows that are visited together, in bytes of x: more of them would have to wait for each other's
// memory, and fewer would not hide their last sums. Does not influence the bits.
constexpr int64_t kGroupBytes = int64_t{8} << 10;

// FP32 rows of more columns go in pairs where prefetches wait: gamma and beta, 8 bytes a column,
// leave L1 before the next row and are loaded once for both. Where prefetches are dropped, what
// calls the next row to L1 (kAheadToL1) does more for one (two Zen 4 cores, ms: f32 8192x4096 7.1
// in pairs and 5.9 one by one, 2048x12288 6.4 and 5.5). Only where a vector is one register: the
// sums of two rows do not fit sixteen others.
constexpr int64_t kPairColumns = 2048;

// Whether rows are summed and written one after the other: a group of them is so short that reading
// and writing overlap by themselves. Otherwise what is written holds up what was asked for, and
// longer rows, or those that leave no part of kTwo, are summed while others are written (two cores
// of Granite Rapids, 400000x64 together: f32 8.4 -> 7.0 ms, bf16 5.8 -> 5.1; but f32 300000x48 5.0
// -> 6.8, bf16 500000x33 6.2 -> 8.4; of Zen 4, 400000x64: f32 5.7 -> 5.3, 16 bits 4.3 -> 4.0). Not
// 64 columns of FP32 on AVX2, whose sums fit registers only apart (Zen 4: 4.7 ms, together 5.5).
constexpr int64_t kApartColumns = 64;
template <class T>
bool go_apart(int64_t cols, bool in_parts) {
  return cols < kApartColumns || (cols == kApartColumns && in_parts && sizeof(T) == sizeof(float));
}

// Bytes of the stage of a task, and the columns of a row that does not fit it that pass at a time.
constexpr size_t kYStageBytes = size_t{64} << 10;
constexpr int64_t kTile = 1024;

}  // namespace
}  // namespace aclgrad::layer_norm
#endif  // shared by all instruction sets

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows whose y lies where rows.y points to, all their columns.
template <class T>
HWY_INLINE void write_in_place(const Job& job, const Rows<T>& rows) {
  Store store{job.problem.y.dtype, job.streaming};
  for (size_t r = 0; store.streaming && r < rows.count; ++r) {
    store.streaming = begins_line(static_cast<const char*>(rows.y[r]));
  }
  const auto cols = static_cast<size_t>(job.problem.cols);
  write_rows(rows, weights_of<T>(job), cols, store, is_plain(job, rows), false);
}

// Where y passes before it is written past the caches: a long row, too, so that it can be summed
// ahead like others.
template <class T>
using YStage = Stage<T, kYStageBytes>;

// The same through a stage, row by row, a tile at a time.
template <class T>
void write_staged(const Job& job, const Rows<T>& rows, Rows<T>& part, YStage<T>& stage) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  const Store store{job.problem.y.dtype, false};
  const bool plain = is_plain(job, rows);
  const Weights<T> weights = weights_of<T>(job);
  part.count = 1;
  part.ordinary = rows.ordinary;
  for (size_t r = 0; r < rows.count; ++r) {
    part.mean[0] = rows.mean[r];
    part.rstd[0] = rows.rstd[r];
    if (!rows.ordinary) part.exact[0] = rows.exact[r];
    for (size_t at = 0; at < cols; at += size_t{kTile}) {
      const size_t columns = std::min(size_t{kTile}, cols - at);
      part.x[0] = rows.x[r] + at;
      part.y[0] = stage.room(static_cast<T*>(rows.y[r]) + at, columns);
      write_rows(part, weights.from(at), columns, store, plain, true);
    }
  }
}

// Moves rows that follow each other to the stage, where it holds them.
template <class T>
bool enter_stage(const Job& job, Rows<T>& rows, YStage<T>& stage) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  if (!job.y_follows || rows.count * cols > YStage<T>::kMost) return false;
  T* room = stage.room(static_cast<T*>(rows.y[0]), rows.count * cols);
  for (size_t r = 0; r < rows.count; ++r) rows.y[r] = room + r * cols;
  rows.room = true;
  return true;
}

// Whether y is to pass through a stage: lines that are not whole cannot be streamed. Short rows
// with gaps between them are not worth it.
template <class T>
bool is_staged(const Job& job) {
  const auto size = static_cast<int64_t>(sizeof(T));
  if (!job.streaming || job.problem.y.dtype != job.problem.x.dtype) return false;
  const bool whole = begins_line(static_cast<const char*>(job.at.y)) && job.y_rows.uniform() &&
                     job.y_rows.stride() * size % int64_t{kLineBytes} == 0;
  const bool worth_it = job.y_follows || job.problem.cols * size >= 1024;
  return !whole && worth_it && reinterpret_cast<uintptr_t>(job.at.y) % sizeof(T) == 0;
}

template <class T>
int64_t group_rows(int64_t cols) {
  const auto size = static_cast<int64_t>(sizeof(T));
  if (cols > static_cast<int64_t>(kChainColumns)) {
    const bool in_pairs = kParts == 1 && size == 4 && !kDropsPrefetches && cols > kPairColumns;
    return in_pairs ? 2 : 1;
  }
  return std::clamp(kGroupBytes / (cols * size), int64_t{1}, static_cast<int64_t>(kRows));
}

// Rows::columns_stride of `count` rows from row `row` on.
template <class T>
int64_t columns_stride(const Job& job, int64_t row, size_t count) {
  constexpr bool kInParts = HWY_TARGET == HWY_AVX2;
  constexpr bool kTurned = kTurnsRows && std::is_same_v<T, float>;
  if (!(kInParts || kTurned) || count != kRows || !job.x_rows.uniform()) return 0;
  const int64_t cols = job.problem.cols;
  constexpr auto kOne = static_cast<int64_t>(kInParts ? kStep<T> : kEight);
  // Of one to three columns, most of which are read in vain, turning is faster, too (f32 4166667x3,
  // Emerald Rapids: 25.5 -> 18.7 ms).
  constexpr int64_t kLeast = kInParts ? kOne / 2 : 1;
  constexpr auto kMost = static_cast<int64_t>(kInParts ? kMostOfParts : kMostColumns);
  if (cols < kLeast || cols > kMost) return 0;
  const int64_t stride = job.x_rows.stride();
  // What is read too much belongs to the next rows, never to what lies between rows.
  const int64_t behind = (job.problem.rows - row - static_cast<int64_t>(count)) * cols;
  const int64_t too_much = round_up(cols, kOne) - cols;
  return too_much == 0 || (stride == cols && behind >= too_much) ? stride : 0;
}

// Whether blocks of rows are written across their borders: FP32 rows of the slab are whole lines
// together, and follow each other in x and y. Where prefetches wait, so are rows that are whole
// lines (600000x32 on two cores of Granite Rapids: 8.5 -> 6.6 ms).
template <class T>
bool writes_across(const Job& job) {
  const int64_t cols = job.problem.cols;
  return kTurnsRows && std::is_same_v<T, float> && job.plan.slab_rows % int64_t{kRows} == 0 &&
         cols >= int64_t{kLeastAcross} && cols <= int64_t{kMostAcross} &&
         (is_staged<T>(job) || (!kDropsPrefetches && job.streaming)) &&
         begins_line(static_cast<const char*>(job.at.y)) && job.y_follows && job.x_rows.uniform() &&
         job.x_rows.stride() == cols;
}

// Rows from `row` on, as many as a group and `end` allow.
template <class T>
HWY_INLINE void locate(const Job& job, int64_t row, int64_t end, int64_t group, Rows<T>& to) {
  to.count = static_cast<size_t>(std::min(group, end - row));
  to.x[0] = first_of<T>(job, row);
  to.y[0] = first_of_y(job, row);
  const auto count = static_cast<int64_t>(to.count);
  to.columns_stride = columns_stride<T>(job, row, to.count);
  to.room = false;
  to.open = kReadsWhole<T> && job.x_rows.uniform() && job.x_rows.stride() == job.problem.cols &&
            (job.problem.rows - row - count) * job.problem.cols >= int64_t{kStrip<T>};
  if (job.x_rows.uniform() && job.y_rows.uniform()) {
    for (int64_t r = 1; r < count; ++r) to.x[r] = to.x[0] + r * job.x_rows.stride();
    for (int64_t r = 1; r < count; ++r) to.y[r] = static_cast<char*>(to.y[0]) + r * job.y_row_bytes;
    return;
  }
  for (int64_t r = 1; r < count; ++r) {
    to.x[r] = first_of<T>(job, row + r);
    to.y[r] = first_of_y(job, row + r);
  }
}

#if HWY_TARGET == HWY_AVX2
// Whether y of rows in parts goes past the caches register by register: the rows follow each other,
// and each is whole registers, if not lines.
template <class T>
bool streams_parts(const Job& job) {
  return std::is_same_v<T, float> && job.streaming && job.y_follows &&
         job.problem.cols % int64_t{kPartLanes} == 0 &&
         reinterpret_cast<uintptr_t>(job.at.y) % (kPartLanes * sizeof(float)) == 0;
}
#endif

// Rows that are written on their own.
template <class T>
HWY_INLINE void write_apart(const Job& job, Rows<T>& rows, YStage<T>& stage, bool staged,
                            bool in_stage, Rows<T>& part) {
  if (in_stage) {
    const Store store{job.problem.y.dtype, false};
    write_rows(rows, weights_of<T>(job), static_cast<size_t>(job.problem.cols), store,
               is_plain(job, rows), true);
  } else if (staged) {
    write_staged(job, rows, part, stage);
  } else {
    write_in_place(job, rows);
  }
}

// One task: a slab of rows that go_apart().
template <class T>
void short_slab(const Job& job, int64_t index) {
  const int64_t begin = index * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  const int64_t group = group_rows<T>(job.problem.cols);
  const bool staged = is_staged<T>(job);
#if HWY_TARGET <= HWY_AVX3
  const bool across = writes_across<T>(job);
  const AcrossWriter across_writer(job.gamma, job.beta,
                                   across ? static_cast<size_t>(job.problem.cols) : 0);
#endif
#if HWY_TARGET == HWY_AVX2
  const bool past_caches = streams_parts<T>(job);
#endif
  YStage<T> stage(job.streaming);
  Rows<T> rows, part;
  for (int64_t row = begin; row < end; row += group) {
    locate(job, row, end, group, rows);
    find_statistics(job, rows);
    put_statistics(job, row, rows);
#if HWY_TARGET <= HWY_AVX3
    if constexpr (std::is_same_v<T, float>) {
      if (across && rows.count == kRows && is_plain(job, rows)) {
        stage.flush();
        across_writer.write(rows);
        continue;
      }
    }
#endif
#if HWY_TARGET == HWY_AVX2
    if (rows.columns_stride != 0 && is_plain(job, rows)) {
      if (past_caches) {
        stage.flush();
        write_parts(rows, weights_of<T>(job), static_cast<size_t>(job.problem.cols), true);
        continue;
      }
      if (staged && enter_stage(job, rows, stage)) {
        write_parts(rows, weights_of<T>(job), static_cast<size_t>(job.problem.cols), false);
        continue;
      }
    }
#endif
    write_apart(job, rows, stage, staged, staged && enter_stage(job, rows, stage), part);
  }
  stage.flush();
  if (job.streaming) hwy::FlushStream();
}

// Whether rows that are not whole lines pass through the stage, although they might be joined line
// by line: short ones of sixteen bits on AVX2, which reads and writes whole strips there (two cores
// of Zen 3, times as fast: 384615x65 bf16 1.09, f16 1.15, 196850x127 1.21 and 1.33, 98039x255 1.17
// and 1.16, but 80000x319 0.89 and 0.89).
template <class T>
bool prefers_stage(int64_t cols) {
  constexpr int64_t kMost = 256;
  return kReadsWhole<T> && cols <= kMost;
}

// The same of longer rows.
template <class T>
void slab(const Job& job, int64_t index) {
  const int64_t begin = index * job.plan.slab_rows;
  const int64_t end = std::min(begin + job.plan.slab_rows, job.problem.rows);
  const int64_t group = group_rows<T>(job.problem.cols);
  const bool joined = job.y_follows && is_staged<T>(job) && !prefers_stage<T>(job.problem.cols);
  const bool staged = !joined && is_staged<T>(job);
  SharedLine<T> line;
  YStage<T> stage(job.streaming);
  Rows<T> blocks[2], part;
  Rows<T>* rows = &blocks[0];
  Rows<T>* next = &blocks[1];
  locate(job, begin, end, group, *rows);
  find_statistics(job, *rows);
  for (int64_t row = begin; row < end; row += group) {
    put_statistics(job, row, *rows);
    const bool more = row + group < end;
    if (more) locate(job, row + group, end, group, *next);
    if (joined && is_plain(job, *rows)) {
      write_joined_and_find(job, *rows, line, more ? next : nullptr);
      if (more) finish_dense(job, *next);
      std::swap(rows, next);
      continue;
    }
    line.flush();
    const bool in_stage = staged && enter_stage(job, *rows, stage);
    if (more && staged == in_stage && is_plain(job, *rows)) {
      write_and_find(job, *rows, job.streaming && !staged, *next);
      finish_dense(job, *next);
    } else {
      write_apart(job, *rows, stage, staged, in_stage, part);
      if (more) find_statistics(job, *next);
    }
    std::swap(rows, next);
  }
  line.flush();
  stage.flush();
  if (job.streaming) hwy::FlushStream();
}

#if ACLGRAD_HAS_HALVES
// Whether AVX2's kernel of sixteen rows in parts takes them (parts-inl.h): of 24 columns it
// computes three registers, this one two vectors of sixteen, the half of one in vain (two cores of
// Zen 4, AVX2's time for 48 MB over AVX-512's: f32 8 columns 0.81, 12 0.95, 24 0.88, 48 0.87, 56
// 0.91, 64 1.03, but 17 to 23 1.2 to 1.3; bf16 8 to 16 0.7, 17 to 32 0.9 to 1.1, 33 0.96, 48 0.89,
// 56 1.12; f16 4 to 8 0.6, 16 0.77, 24 0.76, 32 0.99, 40 0.78, 56 0.85, 64 1.14).
template <class T>
bool suits_halves(const Job& job) {
  const Problem& problem = job.problem;
  const int64_t cols = problem.cols;
  const bool follow = !job.gathered && job.x_rows.uniform() && job.x_rows.stride() == cols &&
                      job.y_follows && problem.y.dtype == problem.x.dtype;
  if (!kTakesHalves || !follow || problem.rows < int64_t{kRows}) return false;
  const auto between = [cols](int64_t least, int64_t most) {
    return cols >= least && cols <= most;
  };
  if constexpr (std::is_same_v<T, float16_t>) return between(4, 56);
  if constexpr (std::is_same_v<T, bfloat16_t>) return between(8, 16) || between(33, 48);
  return between(4, 16) || (cols % 8 == 0 && between(24, 56));
}
#endif

template <class T>
void run(const Job& whole) {
#if ACLGRAD_HAS_HALVES
  if (suits_halves<T>(whole)) return N_AVX2::run<T>(whole);
#endif
  Job job = whole;
  const Problem& problem = job.problem;
  const Plan& plan = job.plan;
  const Addresses& at = job.at;
  if (plan.wide) return run_wide<T>(job);
  const auto place = [&](const View& view, const void* given_at, int64_t bytes, float absent,
                         void* region) {
    if (bytes > 0) prepare<T>(view, given_at, 0, problem.cols, absent, static_cast<float*>(region));
  };
  place(problem.gamma, at.gamma, plan.gamma_bytes, 1.0f, at.gamma_region);
  place(problem.beta, at.beta, plan.beta_bytes, 0.0f, at.beta_region);
  const auto usual = [&](const float* numbers, bool as_it_is) {
    return all_usual(numbers, as_it_is ? problem.cols : weight_floats(problem.cols));
  };
  job.usual_weights = problem.eps >= 0.0 && usual(job.gamma, plan.gamma_as_it_is) &&
                      usual(job.beta, plan.beta_as_it_is);
  parallel_blocks(plan.slabs, [&](int64_t index) {
    if (job.gathered) return gathered_slab<T>(job, index);
    if (go_apart<T>(job.problem.cols, HWY_TARGET == HWY_AVX2)) return short_slab<T>(job, index);
    slab<T>(job, index);
  });
}
void run_f32(const Job& job) { run<float>(job); }
void run_f16(const Job& job) { run<float16_t>(job); }
void run_bf16(const Job& job) { run<bfloat16_t>(job); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace aclgrad::layer_norm {
namespace {

HWY_EXPORT(run_f32);
HWY_EXPORT(run_f16);
HWY_EXPORT(run_bf16);

// The sum of no elements is 0; their variance is 0 / 0.
void run_without_columns(const Job& job) {
  for (int64_t row = 0; row < job.problem.rows; ++row) {
    put(job.problem.mean, job.at.mean, job.mean_rows(row), 0.0f);
    put(job.problem.rstd, job.at.rstd, job.rstd_rows(row), std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace

void run_cpu(const Problem& problem, const Plan& plan, const Addresses& at) {
  const int64_t y_bytes =
      problem.rows * problem.cols * static_cast<int64_t>(dtype_size(problem.y.dtype));
  const Segments x_form(problem.x, problem.row_dim), y_form(problem.y, problem.row_dim);
  const RowOffsets y_rows(problem.y, problem.row_dim);
  const Job job{problem,
                plan,
                at,
                static_cast<const float*>(plan.gamma_bytes > 0 ? at.gamma_region : at.gamma),
                static_cast<const float*>(plan.beta_bytes > 0 ? at.beta_region : at.beta),
                1.0 / static_cast<double>(problem.cols),
                outputs_should_stream(y_bytes),
                RowOffsets(problem.x, problem.row_dim),
                y_rows,
                RowOffsets(problem.mean, problem.mean.rank),
                RowOffsets(problem.rstd, problem.rstd.rank),
                x_form,
                y_form,
                !x_form.dense() || !y_form.dense(),
                y_form.dense() && y_rows.uniform() && y_rows.stride() == problem.cols,
                y_rows.stride() * static_cast<int64_t>(dtype_size(problem.y.dtype))};
  if (problem.cols == 0) return run_without_columns(job);
  switch (problem.x.dtype) {
    case ACL_FLOAT16:
      return HWY_DYNAMIC_DISPATCH(run_f16)(job);
    case ACL_BF16:
      return HWY_DYNAMIC_DISPATCH(run_bf16)(job);
    default:
      return HWY_DYNAMIC_DISPATCH(run_f32)(job);
  }
}

}  // namespace aclgrad::layer_norm
#endif  // HWY_ONCE

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
#include "ops/layer_norm/job.h"
#include "ops/layer_norm/problem.h"
#include "ops/layer_norm/tree.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm/cpu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/stage-inl.h"
#include "ops/layer_norm/across-inl.h"
#include "ops/layer_norm/block-inl.h"
#include "ops/layer_norm/choices-inl.h"
#include "ops/layer_norm/find-inl.h"
#include "ops/layer_norm/gathered-inl.h"
#include "ops/layer_norm/joined-inl.h"
#include "ops/layer_norm/moments-inl.h"
#include "ops/layer_norm/wide-inl.h"
#include "ops/layer_norm/write_and_find-inl.h"

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

// The same through a stage, row by row, a tile of columns at a time.
constexpr int64_t kTile = 1024;
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

// Rows from `row` on, as many as a group and `end` allow.
template <class T>
HWY_INLINE void locate(const Job& job, int64_t row, int64_t end, int64_t group, Rows<T>& to) {
  to.count = static_cast<size_t>(std::min(group, end - row));
  to.x[0] = first_of<T>(job, row);
  to.y[0] = first_of_y(job, row);
  const auto count = static_cast<int64_t>(to.count);
  to.columns_stride = columns_stride<T>(job, row, to.count);
  to.room = false;
  to.open = prefers_whole<T>() && job.x_rows.uniform() && job.x_rows.stride() == job.problem.cols &&
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
      const int64_t behind = end - row - static_cast<int64_t>(rows.count);
      if (staged ? enter_stage(job, rows, stage) : fit_in_place<T>(job, behind)) {
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

template <class T>
void run(const Job& whole) {
#if ACLGRAD_HAS_HALVES
  if (suits_avx2<T>(whole)) return N_AVX2::run<T>(whole);
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
    if (go_apart<T>(job)) return short_slab<T>(job, index);
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

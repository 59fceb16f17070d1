// SPDX-License-Identifier: Apache-2.0
// Where rows lie and what is known of them; their first visit.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_FIRST_VISIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_FIRST_VISIT_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_FIRST_VISIT_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_FIRST_VISIT_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/rows.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/exact-inl.h"
#include "ops/layer_norm_backward/gather-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/ordinary-inl.h"
#include "ops/layer_norm_backward/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

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

// Where `count` rows from row `row` on begin. At equal distances those behind them, which nobody
// reads, get numbers too, so that the loop's length is known. It counts up: of a product g++ makes
// vectors, which AVX2 cannot multiply in 64 bits (72 cycles of a row block instead of 30).
template <class Pointer>
HWY_INLINE void find_rows(const void* base, const RowOffsets& rows, size_t element, int64_t row,
                          size_t count, Pointer (&out)[kRows]) {
  const auto begin = reinterpret_cast<uintptr_t>(base);
  if (rows.uniform()) {
    const uintptr_t step = static_cast<uintptr_t>(rows.stride()) * element;
    uintptr_t at = begin + static_cast<uintptr_t>(row) * step;
    for (size_t r = 0; r < kRows; ++r, at += step) out[r] = reinterpret_cast<Pointer>(at);
  } else {
    for (size_t r = 0; r < count; ++r) {
      const auto at = static_cast<uintptr_t>(rows(row + static_cast<int64_t>(r)));
      out[r] = reinterpret_cast<Pointer>(begin + at * element);
    }
  }
}

// Rows [row, row + count) of the problem.
template <class T>
void locate(const Job& job, int64_t row, size_t count, Rows<T>& rows) {
  const Problem& problem = job.problem;
  rows.count = count;
  rows.ordinary = false;
  rows.padding = rows.exact = 0;
  find_rows(job.at.dy, job.places.dy, sizeof(T), row, count, rows.dy);
  find_rows(job.at.x, job.places.x, sizeof(T), row, count, rows.x);
  find_rows(job.at.dx, job.places.dx, dtype_size(problem.dx.dtype), row, count, rows.dx);
  read_numbers(problem.mean, job.at.mean, job.places.mean, row, count, rows.mean);
  read_numbers(problem.rstd, job.at.rstd, job.places.rstd, row, count, rows.rstd);
}

// Behind the first visit: which rows need a closer look, and that.
template <class T>
HWY_INLINE void classify(const Job& job, Rows<T>& rows) {
  const uint32_t unusual = unusual_rows(rows);
  rows.ordinary = unusual == 0;
  if (HWY_LIKELY(rows.ordinary)) return;
  look_closer(job, rows, unusual);
}

// First visit of a group of rows.
template <class T>
HWY_INLINE void find_means(const Job& job, Rows<T>& rows) {
  const auto cols = static_cast<size_t>(job.problem.cols);
  if (job.gathered) {
    sum_gathered_rows(rows, job.forms, job.gamma, cols, job.reciprocal_cols);
  } else {
    sum_dense_rows(rows, job.gamma, cols, job.reciprocal_cols);
  }
  classify(job, rows);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

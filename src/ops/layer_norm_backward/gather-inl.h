// SPDX-License-Identifier: Apache-2.0
// The two visits of rows that are not one run in memory (row_forms.h): what those of row_sums-inl.h
// and columns-inl.h need at a time is gathered in buffers on the stack, dx is scattered from one.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_GATHER_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_GATHER_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_GATHER_INL_H_
#endif

#include <algorithm>

#include "base/dtype.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/columns-inl.h"
#include "ops/layer_norm_backward/row_forms.h"
#include "ops/layer_norm_backward/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

// Columns [at, at + count) of a row: where they lie, or their copy in `buffer`.
template <class T>
const T* gather_columns(const Segments& form, const T* row, size_t at, size_t count, T* buffer) {
  if (form.dense()) return row + at;
  form.copy_in(row, static_cast<int64_t>(at), static_cast<int64_t>(count), buffer);
  return buffer;
}

// Source of the first visit: the chunk of the row that was asked for last.
template <class T>
class Gathered {
 public:
  Gathered(const Rows<T>& rows, const RowForms& forms) : rows_(rows), forms_(forms) {}

  const T* dy(size_t r, size_t at, size_t count) {
    return gather_columns(forms_.dy, rows_.dy[r], at, count, dy_);
  }
  const T* x(size_t r, size_t at, size_t count) {
    return gather_columns(forms_.x, rows_.x[r], at, count, x_);
  }

 private:
  const Rows<T>& rows_;
  const RowForms& forms_;
  alignas(64) T dy_[kChainColumns];
  alignas(64) T x_[kChainColumns];
};

// sum_rows() for whom there is nothing to do between the rows: its many forms are compiled once.
template <class T>
HWY_NOINLINE void sum_dense_rows(Rows<T>& rows, const float* gamma, size_t cols,
                                 double reciprocal_cols) {
  sum_rows(rows, gamma, cols, reciprocal_cols, [](size_t) {});
}

// The same of gathered rows, of which short ones are gathered together. A function of its own keeps
// the buffers out of its caller's frame.
template <class T>
HWY_NOINLINE void sum_gathered_rows(Rows<T>& rows, const RowForms& forms, const float* gamma,
                                    size_t cols, double reciprocal_cols) {
  if (cols > kShortColumns<T>) {
    Gathered<T> source(rows, forms);
    return sum_long_rows(rows, source, gamma, cols, reciprocal_cols, [](size_t) {});
  }
  alignas(64) T dy[kRows][kShortColumns<T>];
  alignas(64) T x[kRows][kShortColumns<T>];
  Rows<T> dense = rows;
  for (size_t r = 0; r < rows.count; ++r) {
    dense.dy[r] = gather_columns(forms.dy, rows.dy[r], 0, cols, dy[r]);
    dense.x[r] = gather_columns(forms.x, rows.x[r], 0, cols, x[r]);
  }
  sum_dense_rows(dense, gamma, cols, reciprocal_cols);
  std::copy_n(dense.mean_g, rows.count, rows.mean_g);
  std::copy_n(dense.mean_gx, rows.count, rows.mean_gx);
}

// sum_row() of columns [begin, begin + count) of row 0, gathered.
template <class T>
HWY_NOINLINE void sum_gathered_row(const Rows<T>& rows, const RowForms& forms, const float* gamma,
                                   size_t begin, size_t count, double (&sums)[2]) {
  Gathered<T> source(rows, forms);
  sum_row<T>(source, 0, gamma, begin, count, rows.mean[0], Ahead(), sums);
}

// Rows gathered together in the second visit: write_columns() takes four at a time, and their tiles
// of dy, x and dx are 24 KiB in FP32, most of L1.
inline constexpr size_t kGatherRows = 4;

// The buffers of the second visit, kTile columns of each row.
template <class T>
struct Tiles {
  alignas(64) T dy[kGatherRows][kTile];
  alignas(64) T x[kGatherRows][kTile];
  alignas(64) float dx[kGatherRows][kTile];  // of any dtype, none is larger
};

// `part` becomes rows [first, first + part.count) of `rows`, its pointers those of column `begin`.
template <class T>
void gather_tile(const Rows<T>& rows, size_t first, const RowForms& forms, aclDataType dx_dtype,
                 int64_t begin, int64_t count, Tiles<T>& tiles, Rows<T>& part) {
  const auto dx_size = static_cast<int64_t>(dtype_size(dx_dtype));
  const auto at = static_cast<size_t>(begin);
  const auto columns = static_cast<size_t>(count);
  for (size_t r = 0; r < part.count; ++r) {
    const size_t from = first + r;
    part.dy[r] = gather_columns(forms.dy, rows.dy[from], at, columns, tiles.dy[r]);
    part.x[r] = gather_columns(forms.x, rows.x[from], at, columns, tiles.x[r]);
    part.dx[r] = tiles.dx[r];
    if (forms.dx.dense()) part.dx[r] = static_cast<char*>(rows.dx[from]) + begin * dx_size;
    part.mean[r] = rows.mean[from];
    part.rstd[r] = rows.rstd[from];
    part.mean_g[r] = rows.mean_g[from];
    part.mean_gx[r] = rows.mean_gx[from];
  }
}

// write_columns() of gathered rows [first, last), columns [begin, end), at most kTile of them. Row
// follows row in every chain, however many are gathered together, so the bits are those of dense
// rows.
template <class T, bool kPlain>
HWY_NOINLINE void write_gathered_columns(const Rows<T>& rows, size_t first, size_t last,
                                         const RowForms& forms, const float* gamma,
                                         const Store& store, int64_t begin, int64_t end,
                                         float* chain) {
  const int64_t count = end - begin;
  Tiles<T> tiles;
  Rows<T> part;
  for (; first < last; first += kGatherRows) {
    part.count = std::min(kGatherRows, last - first);
    gather_tile(rows, first, forms, store.dtype, begin, count, tiles, part);
    write_columns<T, kPlain>(part, 0, part.count, gamma + begin, store, 0,
                             static_cast<size_t>(count), chain);
    if (store.dtype == ACL_DT_UNDEFINED || forms.dx.dense()) continue;
    visit_float(store.dtype, [&](auto type) {
      using Out = decltype(type);
      for (size_t r = 0; r < part.count; ++r) {
        forms.dx.copy_out(static_cast<const Out*>(part.dx[r]), begin, count,
                          static_cast<Out*>(rows.dx[first + r]));
      }
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

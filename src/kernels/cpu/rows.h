// SPDX-License-Identifier: Apache-2.0
// Where the rows of a strided view lie: a row is the run of its last dimensions, and rows are
// numbered in order over the dimensions before.
#ifndef ACLGRAD_KERNELS_CPU_ROWS_H_
#define ACLGRAD_KERNELS_CPU_ROWS_H_

#include <cstdint>

#include "base/view.h"

namespace aclgrad {

class RowOffsets {
 public:
  RowOffsets() {}  // said with braces, nothing is zeroed; to be assigned before it is asked
  // Rows span the dimensions from `row_dim` on; `row_dim` itself may be view.rank (single
  // elements).
  RowOffsets(const View& view, int row_dim) : outer_(collapsed(view, 0, row_dim)) {
    if (outer_.rank == 0) outer_.strides[0] = 0;
  }

  // Offset in elements of row `row`. Contiguous and padded rows collapse to one dimension and cost
  // a multiplication; every further dimension costs a division.
  int64_t operator()(int64_t row) const {
    return uniform() ? row * stride() : offset_over_dims(row);
  }

  // True when row r lies at r * stride(): callers may then step instead of asking.
  bool uniform() const { return outer_.rank <= 1; }
  int64_t stride() const { return outer_.strides[0]; }

 private:
  // Called, because in place g++ unrolls its loop seven times, at every place.
  [[gnu::noinline]] int64_t offset_over_dims(int64_t row) const {
    int64_t offset = 0;
    for (int i = outer_.rank - 1; i > 0; --i) {
      const auto index = static_cast<size_t>(i);
      offset += row % outer_.dims[index] * outer_.strides[index];
      row /= outer_.dims[index];
    }
    return offset + row * outer_.strides[0];
  }

  View outer_;
};

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_ROWS_H_

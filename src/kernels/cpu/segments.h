// SPDX-License-Identifier: Apache-2.0
// Rows of several dimensions that need not be one run in memory: those of a view that is padded,
// permuted or repeated inside a row. Where its rows begin is what RowOffsets (rows.h) knows.
#ifndef ACLGRAD_KERNELS_CPU_SEGMENTS_H_
#define ACLGRAD_KERNELS_CPU_SEGMENTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/view.h"

namespace aclgrad {

// Where the columns of a row lie, seen from its first one.
class Segments {
 public:
  Segments() {}  // said with braces, nothing is zeroed
  Segments(const View& view, int row_dim) : inner_(collapsed(view, row_dim, view.rank)) {}

  // Column c lies c elements behind the first one. The copies below are for other rows.
  bool dense() const { return inner_.rank == 0 || (inner_.rank == 1 && inner_.strides[0] == 1); }

  // Columns [begin, begin + count) of the row at `row` to `out`.
  template <class T>
  void copy_in(const T* row, int64_t begin, int64_t count, T* out) const {
    each_segment(begin, count, [&](int64_t offset, int64_t length, int64_t stride) {
      const T* from = row + offset;
      if (stride == 1) {
        std::memcpy(static_cast<void*>(out), from, static_cast<size_t>(length) * sizeof(T));
      } else {
        for (int64_t i = 0; i < length; ++i) out[i] = from[i * stride];
      }
      out += length;
    });
  }

  // The same from `in` to the row.
  template <class T>
  void copy_out(const T* in, int64_t begin, int64_t count, T* row) const {
    each_segment(begin, count, [&](int64_t offset, int64_t length, int64_t stride) {
      T* to = row + offset;
      if (stride == 1) {
        std::memcpy(static_cast<void*>(to), in, static_cast<size_t>(length) * sizeof(T));
      } else {
        for (int64_t i = 0; i < length; ++i) to[i * stride] = in[i];
      }
      in += length;
    });
  }

 private:
  // Calls fn(offset of the first, count, stride) for the runs of equally spaced columns that make
  // up [begin, begin + count), in order.
  template <class Fn>
  void each_segment(int64_t begin, int64_t count, Fn&& fn) const {
    const auto last = static_cast<size_t>(inner_.rank - 1);
    std::array<int64_t, kMaxRank> index{};
    int64_t offset = 0;
    for (size_t i = last + 1; begin > 0 && i-- > 0;) {  // most rows are entered at column 0
      index[i] = begin % inner_.dims[i];
      begin /= inner_.dims[i];
      offset += index[i] * inner_.strides[i];
    }
    while (true) {
      const int64_t length = std::min(inner_.dims[last] - index[last], count);
      fn(offset, length, inner_.strides[last]);
      count -= length;
      if (count == 0) return;
      size_t i = last;
      do {  // the next index of the dimensions before; there is one while columns are left
        offset -= index[i] * inner_.strides[i];
        index[i] = 0;
        --i;
      } while (index[i] + 1 == inner_.dims[i]);
      ++index[i];
      offset += inner_.strides[i];
    }
  }

  View inner_;
};

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_SEGMENTS_H_

// SPDX-License-Identifier: Apache-2.0
// A row of x as its visits read it. Both kinds give the same columns in the same pieces to whoever
// sums in order, so the bits do not depend on the kind.
#ifndef ACLGRAD_OPS_LAYER_NORM_ROW_H_
#define ACLGRAD_OPS_LAYER_NORM_ROW_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/segments.h"
#include "ops/layer_norm/tree.h"

namespace aclgrad::layer_norm {

// One run in memory.
template <class T>
struct DenseRow {
  using Argument = DenseRow;  // of functions that are not inline: in registers

  const T* first;
  int64_t cols;

  const T* piece(int64_t begin, int64_t) const { return first + begin; }
  // Calls fn(columns, how many) for pieces that make up the row, in order.
  template <class Fn>
  void each_piece(Fn&& fn) const {
    fn(first, cols);
  }
};

// A row of any form, of which at most a panel is gathered in a buffer, and stays there until
// another piece or row is asked for: short rows are gathered once for all their visits.
template <class T>
class GatheredRow {
 public:
  using Argument = const GatheredRow&;

  GatheredRow(const Segments& form, int64_t cols) : form_(form), cols_(cols) {}
  GatheredRow(const GatheredRow&) = delete;
  GatheredRow& operator=(const GatheredRow&) = delete;

  // The row that begins at `first`.
  void enter(const T* first) {
    first_ = first;
    held_ = -1;
  }
  // Columns [begin, begin + count); `count` follows from `begin` in all calls for a row.
  const T* piece(int64_t begin, int64_t count) const {
    if (form_.dense()) return first_ + begin;
    if (held_ != begin) form_.copy_in(first_, begin, count, buffer_);
    held_ = begin;
    return buffer_;
  }
  template <class Fn>
  void each_piece(Fn&& fn) const {
    for (int64_t begin = 0; begin < cols_; begin += kPanel) {
      const int64_t count = std::min(kPanel, cols_ - begin);
      fn(piece(begin, count), count);
    }
  }

 private:
  const Segments form_;
  const int64_t cols_;
  const T* first_ = nullptr;
  mutable int64_t held_ = -1;  // where the piece in the buffer begins
  alignas(64) mutable T buffer_[kPanel];
};

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_ROW_H_

// SPDX-License-Identifier: Apache-2.0
// Prefetching of rows for kernels that read them in another order, column by column.
#ifndef ACLGRAD_KERNELS_CPU_ROWS_AHEAD_H_
#define ACLGRAD_KERNELS_CPU_ROWS_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/prefetch.h"

namespace aclgrad {

// Rows of which a kernel takes a line each, then the next line of each: the hardware's own
// prefetching does not follow that. The rows that come after them are prefetched meanwhile, line
// after line as they lie in memory: that it does follow. Into L2 where they lie far apart: a line
// is used once, a load from L2 costs nothing beside that many, and what comes to L1 early is thrown
// out again where rows lie a power of two apart (Zen 4, NsaCompress bf16 65536x4x128 on one core,
// 32 tokens every 16: 3.2 ms with lines that go to L1, 2.6 so, 6.7 without). Few rows are over
// before L2 has answered, and find room in L1 (262144x2x64, 64 tokens every 32: 3.4 ms with lines
// that go to L1, 5.0 with L2).
inline constexpr int64_t kMostIntoL1 = 8192;  // bytes from the first row to the last

template <class T>
struct RowsAhead {
  // As many rows as a kernel takes together. Those that follow each other are one run: a line may
  // belong to two of them, or more (NsaCompress f16 1041667x1x16, Emerald Rapids: 2.8 -> 2.6 ms).
  RowsAhead(const T* first, int64_t row_stride, int64_t rows, size_t row_columns)
      : row(first),
        stride(row_stride),
        columns(row_columns),
        into_l1(rows * std::abs(row_stride) * static_cast<int64_t>(sizeof(T)) <= kMostIntoL1) {
    if (row_stride != static_cast<int64_t>(row_columns)) return;
    stride *= rows;
    columns *= static_cast<size_t>(rows);
  }

  const T* row;
  int64_t stride;
  size_t columns;
  size_t column = 0;
  bool into_l1;

  // Always inlined: kernels of every instruction set use it.
  [[gnu::always_inline]] inline void next_line() {
    if (into_l1) {
      prefetch_to_l1(row + column);
    } else {
      prefetch_to_l2(row + column);
    }
    column += kLineBytes / sizeof(T);
    if (column >= columns) {
      column = 0;
      row += stride;
    }
  }
};

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_ROWS_AHEAD_H_

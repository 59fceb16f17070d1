// SPDX-License-Identifier: Apache-2.0
// Narrow tables: their gradient rows as numbers, the sums of table rows in the order of
// tree.h, and what becomes of these in dw.

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "base/half.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding_dense_backward/narrow.h"
#include "ops/embedding_dense_backward/table_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// What a run of so many rows leaves in dw, before it is rounded to its dtype.
HWY_INLINE float value_of_chain(float sum, int64_t count, bool by_frequency) {
  return by_frequency && count > 1 ? sum / static_cast<float>(count) : sum;
}
HWY_INLINE float value_of_total(double total, int64_t count, bool by_frequency) {
  return static_cast<float>(by_frequency ? total / static_cast<double>(count) : total);
}

// The sums of table rows, whose gradient rows come in any order of the table.
template <size_t kCols>
class RowSums {
 public:
  using Sum = RowSum<kCols>;

  // `rows`: room for so many sums; `spare`: for kCols LongSums for each segment of all gradient
  // rows.
  RowSums(Sum* rows, int64_t count, LongSum* spare) : rows_(rows), long_sums_(spare) {
    std::fill_n(rows, count, Sum{});
  }

  HWY_INLINE void add(int64_t index, const float* dy) {
    Sum& row = rows_[index];
    for (size_t c = 0; c < kCols; ++c) row.chain[c] += dy[c];
    if (++row.count % uint32_t{kChain} == 0) end_chain(row);
  }

  // The next `count` gradient rows of one table row: four chains at once where they are whole.
  void add_run(int64_t index, const float* dy, size_t count) {
    Sum& row = rows_[index];
    const auto add_to_chain = [&](size_t most) HWY_ATTR {
      const size_t now = std::min(most, count);
      Chain chain;
      std::copy_n(row.chain, kCols, chain);
      for (size_t r = 0; r < now; ++r, dy += kCols) {
        for (size_t c = 0; c < kCols; ++c) chain[c] += dy[c];
      }
      std::copy_n(chain, kCols, row.chain);
      row.count += static_cast<uint32_t>(now);
      count -= now;
      if (row.count % uint32_t{kChain} == 0) end_chain(row);
    };
    if (const size_t open = row.count % kChain; open != 0 && count != 0) {
      add_to_chain(kChain - open);
    }
    constexpr size_t kAtOnce = 4;
    for (; count >= kAtOnce * kChain; count -= kAtOnce * kChain, dy += kAtOnce * kChain * kCols) {
      Chain chains[kAtOnce] = {};
      for (size_t r = 0; r < kChain; ++r) {
        for (size_t i = 0; i < kAtOnce; ++i) {
          const float* const from = dy + (i * kChain + r) * kCols;
          for (size_t c = 0; c < kCols; ++c) chains[i][c] += from[c];
        }
      }
      for (const Chain& chain : chains) {
        std::copy_n(chain, kCols, row.chain);
        row.count += uint32_t{kChain};
        end_chain(row);
      }
    }
    while (count != 0) add_to_chain(kChain);
  }

  float value(int64_t index, size_t column, bool by_frequency) const {
    const Sum& row = rows_[index];
    const float chain = row.chain[column];
    const auto count = int64_t{row.count};
    if (count < int64_t{kChain}) return value_of_chain(chain, count, by_frequency);
    double total = row.total[column];
    if (count >= kNarrowSegment) {
      total = long_sums_of(row)[column].total(chain, count);
    } else if (count % int64_t{kChain} != 0) {
      total += static_cast<double>(chain);
    }
    return value_of_total(total, count, by_frequency);
  }

 private:
  using Chain = float[kCols];

  LongSum* long_sums_of(const Sum& row) const {
    return long_sums_ + std::bit_cast<uint64_t>(row.total[0]) * kCols;
  }

  HWY_INLINE void end_chain(Sum& row) {
    constexpr uint32_t kSegment{kNarrowSegment};
    double chain[kCols];
    for (size_t c = 0; c < kCols; ++c) {
      chain[c] = static_cast<double>(row.chain[c]);
      row.chain[c] = 0.0f;
    }
    if (row.count > kSegment) {
      LongSum* const sums = long_sums_of(row);
      for (size_t c = 0; c < kCols; ++c) sums[c].add(chain[c], row.count);
      return;
    }
    const bool first = row.count == uint32_t{kChain};
    for (size_t c = 0; c < kCols; ++c) row.total[c] = first ? chain[c] : row.total[c] + chain[c];
    if (row.count != kSegment) return;
    for (size_t c = 0; c < kCols; ++c) {
      new (long_sums_ + used_ * kCols + c) LongSum{0.0, row.total[c], 0.0, row.total[c]};
    }
    row.total[0] = std::bit_cast<double>(used_++);
  }

  Sum* const rows_;
  LongSum* const long_sums_;
  uint64_t used_ = 0;
};

// Of any alignment.
template <class T>
HWY_INLINE float float_at(const T* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return to_float(value);
}

// Rows [row, row + count) of dw; behind the last of `values` there are sixteen more.
template <class TOut, size_t kCols>
HWY_INLINE void write_values(const NarrowTable& table, int64_t row, int64_t count,
                             const float* values) {
  TOut* const dw = static_cast<TOut*>(table.at.dw);
  const RowOffsets& rows = table.plan.dw_rows;
  constexpr auto kStride = static_cast<int64_t>(kCols);
  if (rows.stride() == kStride) {
    TOut* const out = dw + row * kStride;
    const Columns whole{0, static_cast<size_t>(count) * kCols};
    const Columns streamed = streamed_columns(table.stream, out, whole);
    for (size_t at = 0; at < whole.last; at += kLanes) {
      put(load16(values + at), out, at, std::min(whole.last - at, kLanes), streamed);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    store_first(load16(values + i * kStride), dw + rows(row + i), kCols);
  }
}

// Rows [first, first + count) of dw from their sums.
template <class TOut, size_t kCols>
HWY_INLINE void write_sums(const NarrowTable& table, int64_t first, int64_t count,
                           const RowSums<kCols>& sums) {
  constexpr int64_t kRows = 64;
  alignas(64) float values[kRows * kCols + kLanes] = {};
  for (int64_t at = 0; at < count; at += kRows) {
    const int64_t now = std::min(kRows, count - at);
    float* value = values;
    for (int64_t i = 0; i < now; ++i) {
      for (size_t c = 0; c < kCols; ++c) {
        *value++ = sums.value(at + i, c, table.problem.scale_by_frequency);
      }
    }
    write_values<TOut, kCols>(table, first + at, now, values);
  }
  if (table.stream) hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

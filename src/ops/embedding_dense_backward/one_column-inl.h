// SPDX-License-Identifier: Apache-2.0
// Tables of one column: their gradient rows as numbers, the sums of table rows in the order of
// tree.h, and what becomes of these in dw.

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ONE_COLUMN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ONE_COLUMN_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ONE_COLUMN_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ONE_COLUMN_INL_H_
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
#include "ops/embedding_dense_backward/one_column.h"
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
class RowSums {
 public:
  // `rows`: room for so many sums; `spare`: for a LongSum for each segment of all gradient rows.
  RowSums(RowSum* rows, int64_t count, LongSum* spare) : rows_(rows), long_sums_(spare) {
    std::fill_n(rows, count, RowSum{0.0f, 0, 0.0});
  }

  HWY_INLINE void add(int64_t index, float dy) {
    RowSum& row = rows_[index];
    row.chain += dy;
    if (++row.count % uint32_t{kChain} == 0) end_chain(row);
  }

  // The next `count` gradient rows of one table row: four chains at once where they are whole.
  void add_run(int64_t index, const float* dy, size_t count) {
    RowSum& row = rows_[index];
    const float* const end = dy + count;
    const auto add_to_chain = [&](size_t most) HWY_ATTR {
      const float* const last = dy + std::min(most, static_cast<size_t>(end - dy));
      row.count += static_cast<uint32_t>(last - dy);
      float chain = row.chain;
      while (dy != last) chain += *dy++;
      row.chain = chain;
      if (row.count % uint32_t{kChain} == 0) end_chain(row);
    };
    if (const size_t open = row.count % kChain; open != 0 && dy != end) add_to_chain(kChain - open);
    constexpr size_t kAtOnce = 4;
    for (; static_cast<size_t>(end - dy) >= kAtOnce * kChain; dy += kAtOnce * kChain) {
      float chains[kAtOnce] = {};
      for (size_t r = 0; r < kChain; ++r) {
        for (size_t c = 0; c < kAtOnce; ++c) chains[c] += dy[c * kChain + r];
      }
      for (const float chain : chains) {
        row.chain = chain;
        row.count += uint32_t{kChain};
        end_chain(row);
      }
    }
    while (dy != end) add_to_chain(kChain);
  }

  float value(int64_t index, bool by_frequency) const {
    const RowSum& row = rows_[index];
    const auto count = int64_t{row.count};
    if (count < int64_t{kChain}) return value_of_chain(row.chain, count, by_frequency);
    double total = row.total;
    if (count >= kColumnSegment) {
      total = long_sums_[std::bit_cast<uint64_t>(total)].total(row.chain, count);
    } else if (count % int64_t{kChain} != 0) {
      total += static_cast<double>(row.chain);
    }
    return value_of_total(total, count, by_frequency);
  }

 private:
  HWY_INLINE void end_chain(RowSum& row) {
    constexpr uint32_t kSegment{kColumnSegment};
    const auto chain = static_cast<double>(row.chain);
    row.chain = 0.0f;
    if (row.count > kSegment) {
      return long_sums_[std::bit_cast<uint64_t>(row.total)].add(chain, row.count);
    }
    row.total = row.count == uint32_t{kChain} ? chain : row.total + chain;
    if (row.count == kSegment) {
      new (long_sums_ + used_) LongSum{0.0, row.total, 0.0, row.total};
      row.total = std::bit_cast<double>(used_++);
    }
  }

  RowSum* const rows_;
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

// Rows [row, row + count) of dw; `values` has whole vectors.
template <class TOut>
HWY_INLINE void write_values(const OneColumn& column, int64_t row, int64_t count,
                             const float* values) {
  TOut* const dw = static_cast<TOut*>(column.at.dw);
  const RowOffsets& rows = column.plan.dw_rows;
  if (rows.stride() == 1) {
    TOut* const out = dw + row;
    const Columns whole{0, static_cast<size_t>(count)};
    const Columns streamed = streamed_columns(column.stream, out, whole);
    for (size_t at = 0; at < whole.last; at += kLanes) {
      put(load16(values + at), out, at, std::min(whole.last - at, kLanes), streamed);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) store_first(set16(values[i]), dw + rows(row + i), 1);
}

// Rows [first, first + count) of dw from their sums.
template <class TOut>
HWY_INLINE void write_sums(const OneColumn& column, int64_t first, int64_t count,
                           const RowSums& sums) {
  constexpr int64_t kValues = 256;
  alignas(64) float values[kValues];
  for (int64_t at = 0; at < count; at += kValues) {
    const int64_t now = std::min(kValues, count - at);
    for (int64_t i = 0; i < now; ++i) {
      values[i] = sums.value(at + i, column.problem.scale_by_frequency);
    }
    write_values<TOut>(column, first + at, now, values);
  }
  if (column.stream) hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

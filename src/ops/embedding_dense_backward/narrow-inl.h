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

// The elements of a row.
template <size_t kWidth>
struct RowVectors {
  using Tag = hn::CappedTag<float, kWidth>;
  static constexpr size_t kPart = hn::MaxLanes(Tag());
  static constexpr size_t kCount = kWidth / kPart;

  HWY_INLINE RowVectors() {}
  HWY_INLINE void load(const float* row) {
    for (size_t i = 0; i < kCount; ++i) part[i] = hn::LoadU(Tag(), row + i * kPart);
  }
  HWY_INLINE void add(const float* row) {
    for (size_t i = 0; i < kCount; ++i) {
      part[i] = hn::Add(part[i], hn::LoadU(Tag(), row + i * kPart));
    }
  }
  HWY_INLINE void store(float* row) const {
    for (size_t i = 0; i < kCount; ++i) hn::StoreU(part[i], Tag(), row + i * kPart);
  }

  hn::Vec<Tag> part[kCount];
};

// The sums of table rows, whose gradient rows come in any order of the table.
template <size_t kWidth>
class RowSums {
 public:
  using Sum = RowSum<kWidth>;

  // Of `count` rows from the room's `first` one on; `spare`: kWidth LongSums for each segment of
  // all gradient rows.
  RowSums(const SumRoom<kWidth>& room, int64_t first, int64_t count, LongSum* spare)
      : rows_(room.sums + first), totals_(room.totals + first), long_sums_(spare) {
    std::fill_n(rows_, count, Sum{});
  }

  HWY_INLINE void add(int64_t index, const float* dy) {
    Sum& row = rows_[index];
    RowVectors<kWidth> chain;
    chain.load(row.chain);
    chain.add(dy);
    chain.store(row.chain);
    if (++row.count % uint32_t{kChain} == 0) end_chain(index);
  }

  // The next `count` gradient rows of one table row, row_at(0), row_at(1), ...: four chains at once
  // where they are whole.
  template <class RowAt>
  HWY_INLINE void add_run(int64_t index, size_t count, const RowAt& row_at) {
    Sum& row = rows_[index];
    size_t next = 0;
    const auto add_to_chain = [&](size_t most) HWY_ATTR {
      const size_t end = std::min(next + most, count);
      row.count += static_cast<uint32_t>(end - next);
      RowVectors<kWidth> chain;
      chain.load(row.chain);
      for (; next < end; ++next) chain.add(row_at(next));
      chain.store(row.chain);
      if (row.count % uint32_t{kChain} == 0) end_chain(index);
    };
    if (const size_t open = row.count % kChain; open != 0 && count != 0) {
      add_to_chain(kChain - open);
    }
    constexpr size_t kAtOnce = 4;
    for (; count - next >= kAtOnce * kChain; next += kAtOnce * kChain) {
      constexpr float kZeros[kWidth] = {};
      RowVectors<kWidth> chains[kAtOnce];
      for (auto& chain : chains) chain.load(kZeros);
      for (size_t r = 0; r < kChain; ++r) {
        for (size_t i = 0; i < kAtOnce; ++i) chains[i].add(row_at(next + i * kChain + r));
      }
      for (const auto& chain : chains) {
        chain.store(row.chain);
        row.count += uint32_t{kChain};
        end_chain(index);
      }
    }
    while (next < count) add_to_chain(kChain);
  }

  float value(int64_t index, size_t column, bool by_frequency) const {
    const Sum& row = rows_[index];
    const float chain = row.chain[column];
    const auto count = int64_t{row.count};
    if (count < int64_t{kChain}) return value_of_chain(chain, count, by_frequency);
    double total = totals_[index].column[column];
    if (count >= kNarrowSegment) {
      total = long_sums_of(index)[column].total(chain, count);
    } else if (count % int64_t{kChain} != 0) {
      total += static_cast<double>(chain);
    }
    return value_of_total(total, count, by_frequency);
  }

 private:
  LongSum* long_sums_of(int64_t index) const {
    return long_sums_ + std::bit_cast<uint64_t>(totals_[index].column[0]) * kWidth;
  }

  HWY_INLINE void end_chain(int64_t index) {
    constexpr uint32_t kSegment{kNarrowSegment};
    Sum& row = rows_[index];
    double(&total)[kWidth] = totals_[index].column;
    double chain[kWidth];
    for (size_t c = 0; c < kWidth; ++c) {
      chain[c] = static_cast<double>(row.chain[c]);
      row.chain[c] = 0.0f;
    }
    if (row.count > kSegment) {
      LongSum* const sums = long_sums_of(index);
      for (size_t c = 0; c < kWidth; ++c) sums[c].add(chain[c], row.count);
      return;
    }
    const bool first = row.count == uint32_t{kChain};
    for (size_t c = 0; c < kWidth; ++c) total[c] = first ? chain[c] : total[c] + chain[c];
    if (row.count != kSegment) return;
    for (size_t c = 0; c < kWidth; ++c) {
      new (long_sums_ + used_ * kWidth + c) LongSum{0.0, total[c], 0.0, total[c]};
    }
    total[0] = std::bit_cast<double>(used_++);
  }

  Sum* const rows_;
  RowTotal<kWidth>* const totals_;
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
template <class TOut>
HWY_INLINE void write_values(const NarrowTable& table, int64_t row, int64_t count,
                             const float* values) {
  TOut* const dw = static_cast<TOut*>(table.at.dw);
  const RowOffsets& rows = table.plan.dw_rows;
  const int64_t cols = table.problem.cols;
  if (rows.stride() == cols) {
    TOut* const out = dw + row * cols;
    const Columns whole{0, static_cast<size_t>(count * cols)};
    const Columns streamed = streamed_columns(table.stream, out, whole);
    for (size_t at = 0; at < whole.last; at += kLanes) {
      put(load16(values + at), out, at, std::min(whole.last - at, kLanes), streamed);
    }
    return;
  }
  const auto width = static_cast<size_t>(cols);
  for (int64_t i = 0; i < count; ++i, values += cols) {
    TOut* const out = dw + rows(row + i);
    for (size_t at = 0; at < width; at += kLanes) {
      store_first(load16(values + at), out + at, std::min(width - at, kLanes));
    }
  }
}

// Rows [first, first + count) of dw from their sums.
template <class TOut, size_t kWidth>
HWY_INLINE void write_sums(const NarrowTable& table, int64_t first, int64_t count,
                           const RowSums<kWidth>& sums) {
  constexpr int64_t kRows = 64;
  const auto cols = static_cast<size_t>(table.problem.cols);
  alignas(64) float values[kRows * kWidth + kLanes] = {};
  for (int64_t at = 0; at < count; at += kRows) {
    const int64_t now = std::min(kRows, count - at);
    float* value = values;
    for (int64_t i = 0; i < now; ++i) {
      for (size_t c = 0; c < cols; ++c) {
        *value++ = sums.value(at + i, c, table.problem.scale_by_frequency);
      }
    }
    write_values<TOut>(table, first + at, now, values);
  }
  if (table.stream) hwy::FlushStream();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

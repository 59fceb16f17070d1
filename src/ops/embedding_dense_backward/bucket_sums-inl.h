// SPDX-License-Identifier: Apache-2.0
// Sums of records, in the order of tree.h: of a bucket with one table row, and of one with several.

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKET_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKET_SUMS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKET_SUMS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKET_SUMS_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "ops/embedding_dense_backward/buckets.h"
#include "ops/embedding_dense_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kSegment = segment_rows(1);
constexpr auto kChainRows = static_cast<int64_t>(kChain);

// What a run of so many rows leaves in dw, before it is rounded to its dtype.
HWY_INLINE float value_of_chain(float sum, int64_t count, bool by_frequency) {
  return by_frequency && count > 1 ? sum / static_cast<float>(count) : sum;
}
HWY_INLINE float value_of_total(double total, int64_t count, bool by_frequency) {
  return static_cast<float>(by_frequency ? total / static_cast<double>(count) : total);
}

HWY_INLINE float sum_chain_of(const Record* records, int64_t count) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += records[i].dy;
  return sum;
}
HWY_INLINE double sum_segment_of(const Record* records, int64_t count) {
  double total = 0.0;
  for (; count >= kChainRows; records += kChainRows, count -= kChainRows) {
    total += static_cast<double>(sum_chain_of(records, kChainRows));
  }
  return count == 0 ? total : total + static_cast<double>(sum_chain_of(records, count));
}
// A run whose records follow each other.
HWY_INLINE float sum_run_of(const Record* records, int64_t count, bool by_frequency) {
  if (count <= kChainRows) {
    return value_of_chain(sum_chain_of(records, count), count, by_frequency);
  }
  const int64_t segments = segments_of(count, 1);
  double total = 0.0;
  int64_t begin = 0;
  for (int64_t segment = 1; segment < segments; ++segment, begin += kSegment) {
    total += sum_segment_of(records + begin, kSegment);
  }
  total += sum_segment_of(records + begin, count - begin);
  return value_of_total(total, count, by_frequency);
}

// A run of a segment's rows and more, while it grows. Whether the rows since the last multiple of
// kSegment are a segment by themselves is known when as many have come; else they belong to the one
// before.
struct LongSum {
  double joined;  // segments that are over, all but `closed`
  double closed;  // the one before the last multiple
  double fresh;   // rows since then
  double open;    // both

  // The chain that ends with row `count`.
  void add(double chain, uint32_t count) {
    const uint32_t within = count % uint32_t{kSegment};
    open += chain;
    fresh = within == uint32_t{kChain} ? chain : fresh + chain;
    if (within != 0) return;
    joined = count == 2 * uint32_t{kSegment} ? closed : joined + closed;
    closed = open = fresh;
  }
  double total(float rest, int64_t count) const {
    const double last = count % kChainRows == 0 ? open : open + static_cast<double>(rest);
    return count < 2 * kSegment ? last : joined + last;
  }
};

// The sums of a bucket of several table rows, whose records come in any order of these.
class BucketSums {
 public:
  // `base`: the first table row. `rows`: room for their sums, `spare`: for a LongSum for each
  // kSegment of the records.
  BucketSums(const Record* records, int64_t count, int32_t base, int64_t table_rows, RowSum* rows,
             LongSum* spare)
      : rows_(rows), long_sums_(spare) {
    std::fill_n(rows, table_rows, RowSum{0.0f, 0, 0.0});
    for (int64_t i = 0; i < count; ++i) {
      RowSum& row = rows[records[i].key - base];
      row.chain += records[i].dy;
      if (++row.count % uint32_t{kChain} == 0) end_chain(row);
    }
  }

  float value(int64_t index, bool by_frequency) const {
    const RowSum& row = rows_[index];
    const auto count = int64_t{row.count};
    if (count < kChainRows) return value_of_chain(row.chain, count, by_frequency);
    double total = row.total;
    if (count >= kSegment) {
      total = long_sums_[std::bit_cast<uint64_t>(total)].total(row.chain, count);
    } else if (count % kChainRows != 0) {
      total += static_cast<double>(row.chain);
    }
    return value_of_total(total, count, by_frequency);
  }

 private:
  HWY_INLINE void end_chain(RowSum& row) {
    const auto chain = static_cast<double>(row.chain);
    row.chain = 0.0f;
    if (row.count > uint32_t{kSegment}) {
      return long_sums_[std::bit_cast<uint64_t>(row.total)].add(chain, row.count);
    }
    row.total = row.count == uint32_t{kChain} ? chain : row.total + chain;
    if (row.count == uint32_t{kSegment}) {
      new (long_sums_ + used_) LongSum{0.0, row.total, 0.0, row.total};
      row.total = std::bit_cast<double>(used_++);
    }
  }

  const RowSum* const rows_;
  LongSum* const long_sums_;
  uint64_t used_ = 0;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

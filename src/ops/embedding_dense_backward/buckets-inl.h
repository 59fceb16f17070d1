// SPDX-License-Identifier: Apache-2.0
// A table of one column: its gradient rows go to buckets of table rows (buckets.h), and each bucket
// is added up.

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "base/half.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding_dense_backward/buckets.h"
#include "ops/embedding_dense_backward/narrow-inl.h"
#include "ops/embedding_dense_backward/sweep.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

static_assert(kLineRecords * sizeof(Record) == kLineBytes);
static_assert(kLanes * sizeof(float) == kLineBytes);

HWY_INLINE void stream_line(const Record* from, Record* to) {
  const TagU32 d;
  for (size_t i = 0; i < kParts; ++i) {
    const auto part = hn::Load(d, reinterpret_cast<const uint32_t*>(from) + i * kPartLanes);
    hn::Stream(part, d, reinterpret_cast<uint32_t*>(to) + i * kPartLanes);
  }
}

inline void count_block(const Buckets& table, int64_t block) {
  // Here first: the counters of blocks share lines.
  uint32_t counts[size_t{1} << kMostDigitBits];
  const size_t buckets = size_t{1} << table.plan.digit_bits;
  std::fill_n(counts, buckets, 0u);
  const int32_t* const keys = table.keys();
  const int shift = table.plan.bucket_bits;
  const int64_t end = table.block_begin(block + 1);
  for (int64_t i = table.block_begin(block); i < end; ++i) ++counts[keys[i] >> shift];
  std::copy_n(counts, buckets, table.places(block));
}

// Counts become the place of a block's first record in each bucket.
inline void place_blocks(const Buckets& table) {
  const size_t buckets = size_t{1} << table.plan.digit_bits;
  uint32_t next[size_t{1} << kMostDigitBits] = {};
  for (int64_t block = 0; block < table.plan.sort_blocks; ++block) {
    for (size_t b = 0; b < buckets; ++b) next[b] += table.places(block)[b];
  }
  uint32_t place = 0;
  for (size_t b = 0; b < buckets; ++b) place += std::exchange(next[b], place);
  for (int64_t block = 0; block < table.plan.sort_blocks; ++block) {
    uint32_t* const places = table.places(block);
    for (size_t b = 0; b < buckets; ++b) next[b] += std::exchange(places[b], next[b]);
  }
}

// Records wait until they fill a line, which then goes past the caches: stored one by one, each
// would fetch its line first, and from 1000 buckets on most of them from behind L1 (one core of
// Granite Rapids, a loop of 4 million records: 4.3 to 5.4 ns each, so 2.6; here 6.9 and 4.4).
template <class RowOf>
HWY_NOINLINE void move_block(const Buckets& table, int64_t block, const RowOf& row_of) {
  constexpr auto kLine = static_cast<uint32_t>(kLineRecords);
  auto* const waiting = static_cast<Record*>(table.scratch(block));
  uint32_t places[size_t{1} << kMostDigitBits];
  const size_t buckets = size_t{1} << table.plan.digit_bits;
  uint32_t* const firsts = table.places(block);
  std::copy_n(firsts, buckets, places);
  Record* const records = table.records();
  const int32_t* const keys = table.keys();
  const int shift = table.plan.bucket_bits;
  // What waits up to place `end`; other blocks have what lies before the first one.
  const auto copy_waiting = [&](size_t bucket, uint32_t end) {
    const Record* line = waiting + bucket * kLine;
    for (uint32_t i = std::max(firsts[bucket], (end - 1) / kLine * kLine); i < end; ++i) {
      records[i] = line[i % kLine];
    }
  };
  const int64_t end = table.block_begin(block + 1);
  for (int64_t i = table.block_begin(block); i < end; ++i) {
    const int32_t key = keys[i];
    const auto bucket = static_cast<size_t>(key >> shift);
    const uint32_t place = places[bucket]++;
    Record* const line = waiting + bucket * kLine;
    line[place % kLine] = {key, row_of(i)};
    if ((place + 1) % kLine != 0) continue;
    if (place + 1 - firsts[bucket] >= kLine) {
      stream_line(line, records + (place + 1 - kLine));
    } else {
      copy_waiting(bucket, place + 1);
    }
  }
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    if (places[bucket] % kLine != 0) copy_waiting(bucket, places[bucket]);
  }
  std::copy_n(places, buckets, firsts);
  hwy::FlushStream();
}

template <class T>
void fill_buckets(const Buckets& table) {
  const int64_t blocks = table.plan.sort_blocks;
  parallel_blocks(blocks, [&](int64_t block) { count_block(table, block); });
  place_blocks(table);
  const auto* const dy = static_cast<const T*>(table.at.dy);
  const RowOffsets& rows = table.plan.dy_rows;
  const auto move = [&](const auto& row_of) {
    parallel_blocks(blocks, [&](int64_t block) { move_block(table, block, row_of); });
  };
  if (rows.uniform()) {
    move([dy, stride = rows.stride()](int64_t i) { return float_at(dy + i * stride); });
  } else {
    move([dy, &rows](int64_t i) { return float_at(dy + rows(i)); });
  }
}

HWY_INLINE float sum_chain_of(const Record* records, int64_t count) {
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) sum += records[i].dy;
  return sum;
}
HWY_INLINE double sum_segment_of(const Record* records, int64_t count) {
  double total = 0.0;
  for (; count >= int64_t{kChain}; records += int64_t{kChain}, count -= int64_t{kChain}) {
    total += static_cast<double>(sum_chain_of(records, int64_t{kChain}));
  }
  return count == 0 ? total : total + static_cast<double>(sum_chain_of(records, count));
}
// A run whose records follow each other.
HWY_INLINE float sum_run_of(const Record* records, int64_t count, bool by_frequency) {
  if (count <= int64_t{kChain}) {
    return value_of_chain(sum_chain_of(records, count), count, by_frequency);
  }
  const int64_t segments = segments_of(count, 1);
  double total = 0.0;
  int64_t begin = 0;
  for (int64_t segment = 1; segment < segments; ++segment, begin += kNarrowSegment) {
    total += sum_segment_of(records + begin, kNarrowSegment);
  }
  total += sum_segment_of(records + begin, count - begin);
  return value_of_total(total, count, by_frequency);
}

template <class TOut>
HWY_NOINLINE void sum_bucket(const Buckets& table, int64_t bucket, RowSum<1>* scratch) {
  const int64_t begin = bucket == 0 ? 0 : table.bucket_end(bucket - 1);
  const int64_t end = table.bucket_end(bucket);
  const Record* const records = table.records() + begin;
  const int64_t row = bucket << table.plan.bucket_bits;
  if (table.plan.bucket_bits == 0) {
    alignas(64) float values[1 + kLanes] = {};
    values[0] = sum_run_of(records, end - begin, table.problem.scale_by_frequency);
    return write_values<TOut>(table, row, 1, values);
  }
  // Keys are no longer needed: this part of them has room for the sums of the longest runs.
  auto* const spare = static_cast<LongSum*>(table.spare(begin, alignof(LongSum)));
  const int64_t rows = int64_t{1} << table.plan.bucket_bits;
  RowSums<1> sums(scratch, rows, spare);
  for (int64_t i = 0; i < end - begin; ++i) sums.add(records[i].key - row, &records[i].dy);
  write_sums<TOut>(table, row, std::min(rows, table.problem.table_rows - row), sums);
}

// The bucket with which a task begins: tasks have as many records and table rows together, but
// for a bucket that has more, which is not cut (with Zipf's indices the first one has up to half of
// all records, which two threads do not feel).
inline int64_t first_bucket(const Buckets& table, int64_t task, int64_t tasks) {
  const auto before = [&](int64_t bucket) {
    const int64_t records = bucket == 0 ? 0 : table.bucket_end(bucket - 1);
    return records + (bucket << table.plan.bucket_bits);
  };
  const int64_t buckets = table.buckets();
  return first_behind(before(buckets) * task / tasks, 0, buckets, before);
}

template <class TOut>
void sum_buckets(const Buckets& table) {
  const int64_t tasks = std::min(table.buckets(), table.plan.sort_blocks);  // have scratch
  parallel_blocks(tasks, [&](int64_t task) {
    auto* const scratch = static_cast<RowSum<1>*>(table.scratch(task));
    const int64_t end = first_bucket(table, task + 1, tasks);
    for (int64_t bucket = first_bucket(table, task, tasks); bucket < end; ++bucket) {
      sum_bucket<TOut>(table, bucket, scratch);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

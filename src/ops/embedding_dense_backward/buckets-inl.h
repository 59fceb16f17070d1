// SPDX-License-Identifier: Apache-2.0
// A table of few columns: its gradient rows go to buckets of table rows (buckets.h), and each
// bucket is added up.

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_INL_H_
#endif

#include <algorithm>
#include <array>
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
#include "ops/embedding_dense_backward/keys-inl.h"
#include "ops/embedding_dense_backward/narrow-inl.h"
#include "ops/embedding_dense_backward/sweep.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

static_assert(kLanes * sizeof(float) == kLineBytes);

// Positions whose keys are made at once.
inline constexpr int64_t kKeysAtOnce = 512;

// use(position, key) for those of a block of the sort.
template <class Use>
HWY_INLINE void for_keys(const NarrowTable& table, int64_t begin, int64_t end, BadIndex* bad,
                         const Use& use) {
  int32_t made[kKeysAtOnce];
  for (; begin < end; begin += kKeysAtOnce) {
    const int64_t count = std::min(kKeysAtOnce, end - begin);
    const int32_t* const keys = keys_of(table, begin, static_cast<size_t>(count), made, bad);
    for (int64_t i = 0; i < count; ++i) use(begin + i, keys[i]);
  }
}

template <size_t kWidth>
HWY_INLINE void stream_group(const Record<kWidth>* from, Record<kWidth>* to) {
  const TagU32 d;
  constexpr size_t kNumbers = kGroup<kWidth> * sizeof(Record<kWidth>) / sizeof(uint32_t);
  for (size_t i = 0; i < kNumbers; i += kPartLanes) {
    const auto part = hn::Load(d, reinterpret_cast<const uint32_t*>(from) + i);
    hn::Stream(part, d, reinterpret_cast<uint32_t*>(to) + i);
  }
}

template <size_t kWidth>
void count_block(const Buckets<kWidth>& table, int64_t block, BadIndex* bad) {
  // Here first: the counters of blocks share lines.
  uint32_t counts[size_t{1} << most_digit_bits(kWidth)];
  const size_t buckets = size_t{1} << table.plan.digit_bits;
  std::fill_n(counts, buckets, 0u);
  for_keys(table, table.block_begin(block), table.block_begin(block + 1), bad,
           [&counts, shift = table.plan.bucket_bits](int64_t, int32_t key)
               HWY_ATTR { ++counts[key >> shift]; });
  std::copy_n(counts, buckets, table.places(block));
}

// Counts become the place of a block's first record in each bucket.
template <size_t kWidth>
void place_blocks(const Buckets<kWidth>& table) {
  const size_t buckets = size_t{1} << table.plan.digit_bits;
  uint32_t next[size_t{1} << most_digit_bits(kWidth)] = {};
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

// Records wait until they fill a group of lines, which then goes past the caches: stored one by
// one, each would fetch its line first, and from 1000 buckets on most of them from behind L1 (one
// core of Granite Rapids, a loop of 4 million records of one column: 4.3 to 5.4 ns each, so 2.6;
// here 6.9 and 4.4).
template <size_t kWidth, class ReadRow>
HWY_NOINLINE void move_block(const Buckets<kWidth>& table, int64_t block, const ReadRow& read_row) {
  using Record = Record<kWidth>;
  constexpr auto kGroup = static_cast<uint32_t>(embedding_dense_backward::kGroup<kWidth>);
  Record* const waiting = table.groups(block);
  uint32_t places[size_t{1} << most_digit_bits(kWidth)];
  const size_t buckets = size_t{1} << table.plan.digit_bits;
  uint32_t* const firsts = table.places(block);
  std::copy_n(firsts, buckets, places);
  Record* const records = table.records();
  // What waits up to place `end`; other blocks have what lies before the first one.
  const auto copy_waiting = [&](size_t bucket, uint32_t end) {
    const Record* group = waiting + bucket * kGroup;
    for (uint32_t i = std::max(firsts[bucket], (end - 1) / kGroup * kGroup); i < end; ++i) {
      records[i] = group[i % kGroup];
    }
  };
  for_keys(table, table.block_begin(block), table.block_begin(block + 1), nullptr,
           [&, shift = table.plan.bucket_bits](int64_t i, int32_t key) HWY_ATTR {
             const auto bucket = static_cast<size_t>(key >> shift);
             const uint32_t place = places[bucket]++;
             Record* const group = waiting + bucket * kGroup;
             Record& record = group[place % kGroup];
             record.key = key;
             read_row(i, record.dy);
             if ((place + 1) % kGroup != 0) return;
             if (place + 1 - firsts[bucket] >= kGroup) {
               stream_group(group, records + (place + 1 - kGroup));
             } else {
               copy_waiting(bucket, place + 1);
             }
           });
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    if (places[bucket] % kGroup != 0) copy_waiting(bucket, places[bucket]);
  }
  std::copy_n(places, buckets, firsts);
  hwy::FlushStream();
}

template <class T, size_t kWidth>
void move_blocks(const Buckets<kWidth>& table) {
  const auto* const dy = static_cast<const T*>(table.at.dy);
  const RowOffsets& rows = table.plan.dy_rows;
  const auto cols = static_cast<size_t>(table.problem.cols);
  const auto move = [&](const auto& row_of) {
    const auto read_row = [&](int64_t i, float* out) HWY_ATTR {
      const T* const row = row_of(i);
      for (size_t c = 0; c < kWidth; ++c)
        out[c] = kWidth < 3 || c < cols ? float_at(row + c) : 0.0f;
    };
    parallel_blocks(table.plan.sort_blocks,
                    [&](int64_t block) { move_block(table, block, read_row); });
  };
  if (rows.uniform()) {
    move([dy, stride = rows.stride()](int64_t i) { return dy + i * stride; });
  } else {
    move([dy, &rows](int64_t i) { return dy + rows(i); });
  }
}

template <size_t kWidth>
void fill_buckets(const Buckets<kWidth>& table, BadIndex& bad) {
  const int64_t blocks = table.plan.sort_blocks;
  std::array<BadIndex, kMostBucketBlocks> bad_of;
  bad_of.fill({-1, 0, 0.0});
  parallel_blocks(blocks, [&](int64_t block) {
    count_block(table, block, &bad_of[static_cast<size_t>(block)]);
  });
  for (int64_t block = 0; block < blocks && bad.position < 0; ++block) {
    bad = bad_of[static_cast<size_t>(block)];
  }
  place_blocks(table);
  visit_float(table.problem.dy.dtype,
              [&](auto type) { move_blocks<decltype(type), kWidth>(table); });
}

template <class TOut, size_t kWidth>
HWY_NOINLINE void sum_bucket(const Buckets<kWidth>& table, int64_t bucket,
                             const SumRoom<kWidth>& room) {
  const int64_t begin = bucket == 0 ? 0 : table.bucket_end(bucket - 1);
  const auto count = static_cast<size_t>(table.bucket_end(bucket) - begin);
  const Record<kWidth>* const records = table.records() + begin;
  const int64_t row = bucket << table.plan.bucket_bits;
  const int64_t rows = int64_t{1} << table.plan.bucket_bits;
  RowSums<kWidth> sums(room, 0, rows, table.long_sums(begin));
  if (rows == 1) {
    sums.add_run(0, count, [records](size_t i) { return records[i].dy; });
  } else {
    for (size_t i = 0; i < count; ++i) sums.add(records[i].key - row, records[i].dy);
  }
  write_sums<TOut>(table, row, std::min(rows, table.problem.table_rows - row), sums);
}

// The bucket with which a task begins: tasks have as many records and table rows together, but
// for a bucket that has more, which is not cut (with Zipf's indices the first one has up to half of
// all records, which two threads do not feel).
template <size_t kWidth>
int64_t first_bucket(const Buckets<kWidth>& table, int64_t task, int64_t tasks) {
  const auto before = [&](int64_t bucket) {
    const int64_t records = bucket == 0 ? 0 : table.bucket_end(bucket - 1);
    return records + (bucket << table.plan.bucket_bits);
  };
  const int64_t buckets = table.buckets();
  return first_behind(before(buckets) * task / tasks, 0, buckets, before);
}

template <class TOut, size_t kWidth>
void sum_filled(const Buckets<kWidth>& table) {
  const int64_t tasks = std::min(table.buckets(), bucket_tasks(table.plan));
  parallel_blocks(tasks, [&](int64_t task) {
    const SumRoom<kWidth> room = table.sums(task);
    const int64_t end = first_bucket(table, task + 1, tasks);
    for (int64_t bucket = first_bucket(table, task, tasks); bucket < end; ++bucket) {
      sum_bucket<TOut>(table, bucket, room);
    }
  });
}

void sum_buckets(const NarrowTable& table, BadIndex& bad) {
  visit_width<kMostBucketColumns>(table.problem.cols, [&](auto width) {
    const Buckets<width()> buckets{table};
    fill_buckets(buckets, bad);
    visit_float(table.problem.dw.dtype, [&](auto type) { sum_filled<decltype(type)>(buckets); });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Tables of one column. To fetch a gradient row of theirs by its position costs a line of memory,
// and to sort the position as much as to sort the row itself: so the rows go with their keys, in
// one pass, to buckets of table rows that the caches hold, and are added up there
// (buckets-inl.h). Does not influence the bits.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "ops/embedding_dense_backward/narrow.h"
#include "ops/embedding_dense_backward/problem.h"

namespace aclgrad::embedding_dense_backward {

// Of 2048 buckets the next lines of eight records each, 128 KiB, wait in L2 while they are filled;
// of 8192 table rows of one the sums, 128 KiB, too.
inline constexpr int kMostDigitBits = 11;
inline constexpr int kMostBucketBits = 13;

// A block of the sort: at least so many indices for each bucket, eight lines of records, of which
// the first and the last are shared with other blocks (two cores of Granite Rapids, 12500000 rows:
// 32 indices 66 to 69 ms, 64 61, 128 62 to 65), and so many in all, 20 us of one core.
inline constexpr int64_t kBucketShare = 64;
inline constexpr int64_t kLeastBucketBlock = 4096;
inline constexpr int64_t kLeastBucketBlocks = 16;
inline constexpr int64_t kMostBucketBlocks = 256;
inline constexpr int64_t kLeastBucketed = kLeastBucketBlock * kLeastBucketBlocks;  // indices

// Of so many indices: as many buckets as leave that share to as many blocks.
constexpr int most_digit_bits(int64_t rows) {
  const auto buckets = static_cast<uint64_t>(rows / (kBucketShare * kLeastBucketBlocks));
  return std::min(static_cast<int>(std::bit_width(buckets)) - 1, kMostDigitBits);
}
// `bits`: those of the largest key, table_rows.
constexpr bool takes_buckets(const Problem& problem, int bits) {
  return problem.cols == 1 && problem.rows >= kLeastBucketed && problem.rows <= INT32_MAX &&
         bits - most_digit_bits(problem.rows) <= kMostBucketBits;
}
inline void cut_buckets(int64_t rows, int bits, Plan& plan) {
  plan.has_buckets = true;
  plan.passes = 1;
  plan.digit_bits = std::min(bits, most_digit_bits(rows));
  plan.bucket_bits = bits - plan.digit_bits;
  const int64_t most = std::min(rows / kLeastBucketBlock, kMostBucketBlocks);
  const int64_t blocks =
      std::clamp(rows / kBucketShare >> plan.digit_bits, kLeastBucketBlocks, most);
  plan.sort_block = ceil_div(rows, blocks);
}

struct Record {
  int32_t key;
  float dy;
};
inline constexpr int64_t kLineRecords = 8;  // of 64 bytes

// Bytes of scratch of a block of the sort, first for lines that are filled, later for sums: at most
// 1 for each index and, where one has buckets of several rows, 8 for each table row.
constexpr int64_t bucket_scratch(const Plan& plan) {
  const int64_t lines = kLineRecords * static_cast<int64_t>(sizeof(Record)) << plan.digit_bits;
  const int64_t sums = static_cast<int64_t>(sizeof(RowSum<1>)) << plan.bucket_bits;
  return std::max(lines, sums);
}

// `at.buffers`: of keys, and of records.
struct Buckets : NarrowTable {
  // Where as many keys were as records lie before `begin`.
  void* spare(int64_t begin, size_t alignment) const {
    const auto address = reinterpret_cast<uintptr_t>(static_cast<int32_t*>(at.buffers[0]) + begin);
    return reinterpret_cast<void*>((address + alignment - 1) / alignment * alignment);
  }
  void* scratch(int64_t block) const {
    return static_cast<std::byte*>(at.bucket_scratch) + block * bucket_scratch(plan);
  }
  Record* records() const { return static_cast<Record*>(at.buffers[1]); }
  // Of a block of the sort: how many records each bucket gets from it, then where they go.
  uint32_t* places(int64_t block) const {
    return static_cast<uint32_t*>(at.histograms) + (block << plan.digit_bits);
  }
  int64_t block_begin(int64_t block) const {
    return std::min(block * plan.sort_block, problem.rows);
  }
  // Buckets of table rows; keys of none lie behind those.
  int64_t buckets() const { return ((problem.table_rows - 1) >> plan.bucket_bits) + 1; }
  // The last block of the sort has left off there.
  int64_t bucket_end(int64_t bucket) const { return places(plan.sort_blocks - 1)[bucket]; }
};

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_H_

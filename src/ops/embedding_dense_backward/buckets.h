// SPDX-License-Identifier: Apache-2.0
// Tables of a few columns whose sums the caches do not hold. To fetch a gradient row of theirs by
// its position costs a line of memory, and to sort the position about as much as to sort the row
// itself: so the rows go with their keys, in one pass, to buckets of table rows that the caches
// hold, and are added up there (buckets-inl.h). Does not influence the bits.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_BUCKETS_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "base/checked.h"
#include "ops/embedding_dense_backward/narrow.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/problem.h"

namespace aclgrad::embedding_dense_backward {

// More columns would need more workspace than a sort, 16 bytes an index, by far.
inline constexpr int64_t kMostBucketColumns = 4;

template <size_t kWidth>
struct Record {
  int32_t key;
  float dy[kWidth];
};
// So many are whole lines.
template <size_t kWidth>
inline constexpr int64_t kGroup = 64 / std::gcd(64, static_cast<int64_t>(sizeof(Record<kWidth>)));

// Of the buckets the next groups of records, 128 to 192 KiB, wait in L2 while they are filled (two
// cores of Zen 3, twice as many buckets and half as many of 2 columns take 1.03 to 1.1 times as
// long, twice as many of 4 columns 1.06 to 1.16).
constexpr int most_digit_bits(int64_t cols) { return cols == 1 ? 11 : cols == 2 ? 10 : 9; }
// The sums of 32768 table rows of one bucket, 256 KiB of one column, are in L2 or L3 (two cores of
// Zen 3, time beside a sort with buckets of 8192 at most: f32 1000000x8000000x2-uniform 0.58,
// 2000000x20000000x1-uniform 0.52, 1000000x5000000x4-uniform 0.75).
inline constexpr int kMostBucketBits = 15;

// Blocks of the sort have so many indices for each bucket at least; where there are enough, eight
// groups of records, of which the first and the last are shared with other blocks (two cores of
// Granite Rapids, 12500000 rows of one column: 4 groups 66 to 69 ms, 8 61, 16 62 to 65), and so
// many indices in all, 20 us of one core.
inline constexpr int64_t kLeastBucketShare = 64;
constexpr int64_t bucket_share(int64_t cols) {
  return 8 * visit_width<kMostBucketColumns>(cols, [](auto width) { return kGroup<width()>; });
}
inline constexpr int64_t kLeastBucketBlock = 4096;
inline constexpr int64_t kLeastBucketBlocks = 16;
inline constexpr int64_t kMostBucketBlocks = 256;
// Table rows of an index: all of them have their sums set to 0 and read, many of them for nothing.
inline constexpr int64_t kMostBucketedRows = 16;

// `bits`: those of the largest key, table_rows. As many buckets as leave that share to as many
// blocks.
inline void cut_buckets(const Problem& problem, int bits, Plan& plan) {
  const int64_t most = std::clamp(problem.rows / kLeastBucketBlock, int64_t{1}, kMostBucketBlocks);
  const int64_t least = std::min(most, kLeastBucketBlocks);
  const auto buckets = static_cast<uint64_t>(problem.rows / (kLeastBucketShare * least));
  const int most_bits = static_cast<int>(std::bit_width(buckets)) - 1;
  plan.has_buckets = true;
  plan.passes = 1;
  plan.digit_bits = std::min({bits, most_bits, most_digit_bits(problem.cols)});
  plan.bucket_bits = bits - plan.digit_bits;
  const int64_t blocks =
      std::clamp(problem.rows / bucket_share(problem.cols) >> plan.digit_bits, least, most);
  plan.sort_block = ceil_div(problem.rows, blocks);
  plan.sort_blocks = ceil_div(problem.rows, plan.sort_block);
}

// Bytes of the buffers: of keys, none where these are made at once; of records, where else the sort
// has what it needs of indices that rise.
inline std::array<int64_t, 2> bucket_buffers(const Problem& problem) {
  const int64_t key_bytes = problem.rows * static_cast<int64_t>(sizeof(int32_t));
  const bool at_once = make_keys_at_once(problem.indices);
  const int64_t sort_bytes = (at_once ? round_up(key_bytes, 64) : 0) + 2 * key_bytes;
  return visit_width<kMostBucketColumns>(problem.cols, [&](auto width) {
    const int64_t records = problem.rows * int64_t{sizeof(Record<width()>)};
    const int64_t long_sums = problem.rows / kNarrowSegment * int64_t{width() * sizeof(LongSum)};
    return std::array{at_once ? 0 : key_bytes,
                      std::max(sort_bytes, round_up(records, 64) + long_sums)};
  });
}
// The sort's two buffers in that of the records, where keys are made at once.
inline std::array<void*, 2> room_of_records(const Problem& problem, const Addresses& at) {
  const int64_t key_bytes = problem.rows * static_cast<int64_t>(sizeof(int32_t));
  return {at.buffers[1], static_cast<std::byte*>(at.buffers[1]) + round_up(key_bytes, 64)};
}
// Tasks that add up buckets: fewer than blocks of the sort, as each has room for a bucket's sums.
constexpr int64_t bucket_tasks(const Plan& plan) {
  return std::min(plan.sort_blocks, std::max(int64_t{8}, plan.sort_blocks / 4));
}
// Bytes of the groups of a block of the sort, which are filled, and of a task's sums; of all, in
// the same place.
inline int64_t group_bytes(const Problem& problem, const Plan& plan) {
  return visit_width<kMostBucketColumns>(problem.cols, [&](auto width) {
    return kGroup<width()> * int64_t{sizeof(Record<width()>)} << plan.digit_bits;
  });
}
inline int64_t bucket_sum_bytes(const Problem& problem, const Plan& plan) {
  return visit_width<kMostBucketColumns>(problem.cols, [&](auto width) {
    return round_up(SumRoom<width()>::bytes(int64_t{1} << plan.bucket_bits), 64);
  });
}
inline int64_t bucket_scratch(const Problem& problem, const Plan& plan) {
  return std::max(plan.sort_blocks * group_bytes(problem, plan),
                  bucket_tasks(plan) * bucket_sum_bytes(problem, plan));
}

// Bytes of workspace of an index, beside 8 of a table row: as many as a sort has, of three and four
// columns more, unless the operands are large.
inline int64_t most_bytes_an_index(const Problem& problem) {
  constexpr int64_t kLarge = 64'000'000;
  const auto size = [](const View& view) { return static_cast<int64_t>(dtype_size(view.dtype)); };
  const int64_t operands =
      problem.rows * (problem.cols * size(problem.dy) + size(problem.indices)) +
      problem.table_rows * problem.cols * size(problem.dw);
  const bool few = problem.rows < 1'000'000;
  return problem.cols > 2 && !(few && operands >= kLarge) ? 26 : 16;
}
inline bool takes_buckets(const Problem& problem, int bits) {
  const bool some = problem.cols > 0 && problem.cols <= kMostBucketColumns &&
                    problem.rows > kStackIndices && problem.rows <= INT32_MAX &&
                    problem.table_rows / kMostBucketedRows <= problem.rows &&
                    (problem.cols == 1 || make_keys_at_once(problem.indices));
  if (!some) return false;
  Plan plan;
  cut_buckets(problem, bits, plan);
  if (plan.bucket_bits > kMostBucketBits) return false;
  const auto [keys, records] = bucket_buffers(problem);
  const int64_t counts = plan.sort_blocks * int64_t{sizeof(uint32_t)} << plan.digit_bits;
  const int64_t bytes = keys + records + counts + bucket_scratch(problem, plan);
  const int64_t most = most_bytes_an_index(problem) * problem.rows + 8 * problem.table_rows;
  return bytes <= most;
}

// `at.buffers`: of keys, and of records.
template <size_t kWidth>
struct Buckets : NarrowTable {
  Record<kWidth>* groups(int64_t block) const {
    auto* const first = static_cast<std::byte*>(at.bucket_scratch);
    return reinterpret_cast<Record<kWidth>*>(first + block * group_bytes(problem, plan));
  }
  SumRoom<kWidth> sums(int64_t task) const {
    auto* const first = static_cast<std::byte*>(at.bucket_scratch);
    return {first + task * bucket_sum_bytes(problem, plan), int64_t{1} << plan.bucket_bits};
  }
  Record<kWidth>* records() const { return static_cast<Record<kWidth>*>(at.buffers[1]); }
  // Room for those of the records from `begin` on.
  LongSum* long_sums(int64_t begin) const {
    const int64_t bytes = problem.rows * int64_t{sizeof(Record<kWidth>)};
    auto* const first = static_cast<std::byte*>(at.buffers[1]) + round_up(bytes, 64);
    return reinterpret_cast<LongSum*>(first) + begin / kNarrowSegment * int64_t{kWidth};
  }
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

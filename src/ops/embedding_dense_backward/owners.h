// SPDX-License-Identifier: Apache-2.0
// A narrow table whose sums the caches hold: each of a few tasks owns a part of the table,
// goes over all keys in their order and adds up the gradient rows of its own (owners-inl.h).
// Nothing is moved, so that this takes a third to a half of the time of a sort, but every owner
// looks at every key. Does not influence the bits.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding_dense_backward/buckets.h"
#include "ops/embedding_dense_backward/narrow.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/problem.h"

namespace aclgrad::embedding_dense_backward {

// More owners would look at more keys than they add up gradient rows: with more threads many
// indices go to buckets or are sorted.
inline constexpr int64_t kMostOwners = 8;
// Bytes of a row, of all owners: each of them reads all rows (two cores of Zen 4, time beside the
// sort: f32 16 columns 0.7 to 1.0, 24 0.9 to 1.7, 32 1.0 to 1.4; one core 0.35, 0.4, 0.4 to 0.9; of
// Zen 3 17 columns 0.40, 32 0.54).
inline int64_t most_owned_bytes() { return has_small_l2() ? 256 : 128; }
// From here on more threads than owners fill buckets or sort.
inline constexpr int64_t kManyIndices = 65536;
// Indices that are worth an owner, 10 to 20 us of one core.
inline constexpr int64_t kOwnerShare = 8192;
// Bytes of the sums of all table rows, of one column, of up to four, which else go to buckets, and
// of more, which are sorted. Both machines have 32 MiB of L3; time beside what else is done, two
// cores and one: of one column, Zen 4, sums of 3 MiB 0.72 and 0.61, 8 0.81 and 0.89, 16 1.6; of
// four, Zen 3, 25 MiB 0.97 and 1.24; of eight 15 MiB 0.36 and 0.28, 29 0.59 and 0.64.
constexpr int64_t most_sum_bytes(int64_t cols) {
  return int64_t{cols == 1 ? 4 : cols <= kMostBucketColumns ? 8 : 32} << 20;
}

// Gradient rows with gaps between them cost a line of memory each, which several owners would all
// fetch (two cores of Zen 4, 2000000x1000x1 with a stride of 16, two owners and buckets: 10 and
// 8 ms).
inline bool rows_follow(const Problem& problem) {
  const RowOffsets rows(problem.dy, problem.dy.rank - 1);
  return rows.uniform() && rows.stride() == problem.cols;
}

// LongSums of an owner.
constexpr int64_t long_sums_of_owner(const Problem& problem) {
  return problem.rows / kNarrowSegment *
         visit_width(problem.cols, [](auto width) { return int64_t{width()}; });
}
// Bytes of the sums of so many table rows.
constexpr int64_t sum_bytes(int64_t table_rows, int64_t cols) {
  return visit_width(cols, [&](auto width) { return SumRoom<width()>::bytes(table_rows); });
}
// Bytes of the second buffer: the sums of the table's rows and of one for all that does not count,
// then the LongSums of each owner.
constexpr int64_t owners_bytes(const Problem& problem, int64_t owners) {
  return sum_bytes(problem.table_rows + 1, problem.cols) +
         owners * long_sums_of_owner(problem) * static_cast<int64_t>(sizeof(LongSum));
}

// How many owners share the table; 0: it goes another way.
inline int64_t owners_of(const Problem& problem, int64_t threads) {
  if (problem.cols == 0 || problem.cols > kMostNarrowColumns) return 0;
  // The sort's workspace is 16 bytes an index, 4 of which are keys here, and 8 a table row.
  const bool takes = problem.rows > kStackIndices && problem.rows <= INT32_MAX &&
                     problem.table_rows <= kMostBucketedRows * problem.rows &&
                     sum_bytes(problem.table_rows, problem.cols) <= most_sum_bytes(problem.cols) &&
                     (threads <= kMostOwners || problem.rows < kManyIndices);
  if (!takes) return 0;
  const int64_t most = std::min({threads, kMostOwners, problem.table_rows});
  const int64_t owners = std::clamp(problem.rows / kOwnerShare, int64_t{1}, most);
  const int64_t row_bytes = problem.cols * static_cast<int64_t>(dtype_size(problem.dy.dtype));
  const bool fits = owners_bytes(problem, owners) <= 12 * problem.rows + 8 * problem.table_rows &&
                    owners * row_bytes <= most_owned_bytes();
  return fits && (owners == 1 || rows_follow(problem)) ? owners : 0;
}

struct OwnedTable : NarrowTable {
  int32_t key(int64_t position) const {
    if (has_keys) return keys()[position];
    int32_t key = 0;
    BadIndex bad{-1, 0, 0.0};
    visit_integers(problem, at.indices, [&](const auto* indices) {
      read_run(problem, indices + position, 1, position, 1, &key, bad);
    });
    return key;
  }
  template <size_t kWidth>
  SumRoom<kWidth> sums() const {
    return {at.buffers[1], problem.table_rows + 1};
  }
  template <size_t kWidth>
  LongSum* long_sums(int64_t owner) const {
    auto* const first = reinterpret_cast<LongSum*>(sums<kWidth>().totals + problem.table_rows + 1);
    return first + owner * long_sums_of_owner(problem);
  }
};

// The first table row of each owner, and the end. Owners have as many gradient rows and table rows
// together, but for a table row that has more; how many gradient rows those before a table row have
// is told from a sample.
using OwnedRows = std::array<int64_t, kMostOwners + 1>;
inline OwnedRows share_table(const OwnedTable& table) {
  OwnedRows first;
  first.fill(table.problem.table_rows);
  first[0] = 0;
  if (table.plan.owners == 1) return first;
  constexpr int64_t kLeastSample = 64, kMostSample = 1024, kSampled = 512;
  const int64_t rows = table.problem.rows;
  const int64_t table_rows = table.problem.table_rows;
  const int64_t owners = table.plan.owners;
  std::array<int32_t, kMostSample> sample;
  const int64_t count = std::clamp(rows / kSampled, kLeastSample, kMostSample);
  for (int64_t i = 0; i < count; ++i) {
    sample[static_cast<size_t>(i)] = table.key(rows * i / count);
  }
  const auto end = sample.begin() + count;
  std::sort(sample.begin(), end);
  const auto before = [&](int64_t row) {
    const auto less = std::lower_bound(sample.begin(), end, row) - sample.begin();
    return less * rows / count + row;
  };
  for (int64_t owner = 1; owner < owners; ++owner) {
    const int64_t target = before(table_rows) * owner / owners;
    first[static_cast<size_t>(owner)] =
        first_behind(target, first[static_cast<size_t>(owner - 1)], table_rows, before);
  }
  return first;
}

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_H_

// SPDX-License-Identifier: Apache-2.0
// Narrow tables, of up to 32 columns, as their kernels see them. To sort the position of a gradient
// row of theirs and to fetch the row from there, mostly a line of memory or two, costs more than to
// add it up. So nothing is sorted where the sums of all table rows fit the caches: threads own
// parts of the table (owners.h). With one column the position is as long as the row: elsewhere such
// rows go to buckets (buckets.h), and only those of more columns are sorted. Does not influence the
// bits.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ops/embedding_dense_backward/problem.h"
#include "ops/embedding_dense_backward/tree.h"

namespace aclgrad::embedding_dense_backward {

inline constexpr int64_t kMostNarrowColumns = 32;
inline constexpr int64_t kNarrowSegment = segment_rows(1);
static_assert(segment_rows(kMostNarrowColumns) == kNarrowSegment);

// Columns of a sum: those of the table, or more, of which the last ones are not used.
template <size_t kWidth>
using Width = std::integral_constant<size_t, kWidth>;
// Calls use(Width).
template <class Use>
constexpr auto visit_width(int64_t cols, Use&& use) {
  if (cols <= 1) return use(Width<1>());
  if (cols == 2) return use(Width<2>());
  if (cols <= 4) return use(Width<4>());
  if (cols <= 8) return use(Width<8>());
  return cols <= 16 ? use(Width<16>()) : use(Width<32>());
}

// What is known of a table row while gradient rows are added to it. Wide ones are whole lines.
template <size_t kWidth>
struct alignas(kWidth < 8 ? 8 : 64) RowSum {
  float chain[kWidth];  // that is not over
  uint32_t count;
  double total[kWidth];  // of chains that are over; of a segment and more: which LongSums it has
};

// A column of a run of a segment's rows and more, while it grows. Whether the rows since the last
// multiple of a segment are one by themselves is known when as many have come; else they belong to
// the one before.
struct LongSum {
  double joined;  // segments that are over, all but `closed`
  double closed;  // the one before the last multiple
  double fresh;   // rows since then
  double open;    // both

  // The chain that ends with row `count`.
  void add(double chain, uint32_t count) {
    constexpr uint32_t kSegment{kNarrowSegment};
    const uint32_t within = count % kSegment;
    open += chain;
    fresh = within == uint32_t{kChain} ? chain : fresh + chain;
    if (within != 0) return;
    joined = count == 2 * kSegment ? closed : joined + closed;
    closed = open = fresh;
  }
  // `rest`: the chain that is not over.
  double total(float rest, int64_t count) const {
    const bool whole = count % int64_t{kChain} == 0;
    const double last = whole ? open : open + static_cast<double>(rest);
    return count < 2 * kNarrowSegment ? last : joined + last;
  }
};

// The first of [low, high) before which there is at least `target`; high where there is less.
template <class Before>
int64_t first_behind(int64_t target, int64_t low, int64_t high, Before&& before) {
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (before(middle) < target) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// One call.
struct NarrowTable {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  bool stream;  // dw does not fit the cache

  const int32_t* keys() const { return static_cast<const int32_t*>(at.buffers[0]); }
};

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_H_

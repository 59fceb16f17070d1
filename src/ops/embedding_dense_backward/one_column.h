// SPDX-License-Identifier: Apache-2.0
// Tables of one column, as their kernels see them. To fetch a gradient row of theirs by its
// position costs a line of memory, and to sort the position as much as to sort the row itself. So
// nothing is sorted: where the sums of all table rows fit the caches, threads own parts of the
// table (owners.h); elsewhere the rows go to buckets (buckets.h). Does not influence the bits.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ONE_COLUMN_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ONE_COLUMN_H_

#include <cstdint>

#include "ops/embedding_dense_backward/problem.h"
#include "ops/embedding_dense_backward/tree.h"

namespace aclgrad::embedding_dense_backward {

inline constexpr int64_t kColumnSegment = segment_rows(1);

// What is known of a table row while gradient rows are added to it.
struct RowSum {
  float chain;  // that is not over
  uint32_t count;
  double total;  // of chains that are over; of a segment and more: which LongSum it has
};

// A run of a segment's rows and more, while it grows. Whether the rows since the last multiple of
// a segment are one by themselves is known when as many have come; else they belong to the one
// before.
struct LongSum {
  double joined;  // segments that are over, all but `closed`
  double closed;  // the one before the last multiple
  double fresh;   // rows since then
  double open;    // both

  // The chain that ends with row `count`.
  void add(double chain, uint32_t count) {
    constexpr uint32_t kSegment{kColumnSegment};
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
    return count < 2 * kColumnSegment ? last : joined + last;
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
struct OneColumn {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  bool stream;  // dw does not fit the cache

  const int32_t* keys() const { return static_cast<const int32_t*>(at.buffers[0]); }
};

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ONE_COLUMN_H_

// SPDX-License-Identifier: Apache-2.0
// Narrow tables, of up to 32 columns, as their kernels see them. To sort the position of a gradient
// row of theirs and to fetch the row from there, mostly a line of memory or two, costs more than to
// add it up. So nothing is sorted where the sums of all table rows fit the caches: threads own
// parts of the table (owners.h). Elsewhere rows of up to four columns, about as short as their
// positions, go to buckets (buckets.h), and only those of more columns are sorted. Does not
// influence the bits.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/checked.h"
#include "ops/embedding_dense_backward/problem.h"
#include "ops/embedding_dense_backward/tree.h"

namespace aclgrad::embedding_dense_backward {

inline constexpr int64_t kMostNarrowColumns = 32;
inline constexpr int64_t kNarrowSegment = segment_rows(1);
static_assert(segment_rows(kMostNarrowColumns) == kNarrowSegment);

// Columns of a sum: those of the table, or more, of which the last ones are not used.
template <size_t kWidth>
using Width = std::integral_constant<size_t, kWidth>;
// Calls use(Width) for up to kMost columns.
template <int64_t kMost = kMostNarrowColumns, class Use>
constexpr auto visit_width(int64_t cols, Use&& use) {
  if (cols <= 1) return use(Width<1>());
  if (cols == 2) return use(Width<2>());
  if constexpr (kMost > 4) {
    if (cols > 16) return use(Width<32>());
    if (cols > 8) return use(Width<16>());
    if (cols > 4) return use(Width<8>());
  }
  return use(Width<4>());
}

// What is known of a table row while gradient rows are added to it. Wide ones are whole lines.
template <size_t kWidth>
struct alignas(kWidth < 8 ? 4 : 64) RowSum {
  float chain[kWidth];  // that is not over
  uint32_t count;
};
// Of chains that are over; of a segment and more: which LongSums it has. Apart, as most rows of
// long tables never have one.
template <size_t kWidth>
struct RowTotal {
  double column[kWidth];
};

// Room for the sums of consecutive table rows.
template <size_t kWidth>
struct SumRoom {
  static constexpr int64_t bytes(int64_t rows) {
    return totals_at(rows) + rows * int64_t{sizeof(RowTotal<kWidth>)};
  }
  SumRoom(void* at, int64_t rows)
      : sums(static_cast<RowSum<kWidth>*>(at)),
        totals(reinterpret_cast<RowTotal<kWidth>*>(static_cast<std::byte*>(at) + totals_at(rows))) {
  }

  RowSum<kWidth>* sums;
  RowTotal<kWidth>* totals;

 private:
  static constexpr int64_t totals_at(int64_t rows) {
    return round_up(rows * int64_t{sizeof(RowSum<kWidth>)}, 64);
  }
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

// Indices whose keys are made where they are needed: integers that follow each other.
inline bool make_keys_at_once(const View& indices) {
  return (indices.dtype == ACL_INT64 || indices.dtype == ACL_INT32) && indices.rank == 1 &&
         indices.strides[0] == 1;
}
template <class Use>
void visit_integers(const Problem& problem, const void* indices, Use&& use) {
  if (problem.indices.dtype == ACL_INT64) {
    use(static_cast<const int64_t*>(indices));
  } else {
    use(static_cast<const int32_t*>(indices));
  }
}

// Whether the first indices rise; all of them may then.
inline bool begin_by_rising(const Problem& problem, const void* indices) {
  constexpr int64_t kFirst = 4096;
  const int64_t count = std::min(problem.rows, kFirst);
  bool rise = true;
  visit_integers(problem, indices, [&]<class T>(const T* first) {
    const auto at = [first](int64_t i) {
      T index;
      std::memcpy(&index, first + i, sizeof(T));  // any alignment
      return index;
    };
    for (int64_t i = 1; i < count && rise; ++i) rise = at(i - 1) <= at(i);
  });
  return rise;
}

// One call.
struct NarrowTable {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  bool stream;    // dw does not fit the cache
  bool has_keys;  // in the first buffer; else the indices make_keys_at_once()

  const int32_t* keys() const { return static_cast<const int32_t*>(at.buffers[0]); }
};

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_NARROW_H_

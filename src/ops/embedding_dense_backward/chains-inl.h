// SPDX-License-Identifier: Apache-2.0
// Gradient rows added one after the other, sixteen to a chain, while the rows to come are on their
// way from memory.

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_CHAINS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_CHAINS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_CHAINS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_CHAINS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/down_rows-inl.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/embedding_dense_backward/sweep.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Vectors of a strip. Sums of long runs slow down by 20 % with eight (Zen 4, AVX-512): sixteen rows
// then come from memory in pieces too long for the miss buffers. Columns do not mix, so the bits do
// not depend on it.
inline constexpr size_t kStrip = 2;

// Up to sixteen gradient rows that are added one after the other, and the rows whose elements are
// brought into the cache meanwhile.
template <class T>
struct Chain {
  const T* rows[kChain];
  const T* ahead[kChain];
  size_t count;
};

// Entries [begin, begin + count) of the order; rows ahead come from before entry `end`.
template <class T>
HWY_INLINE void locate(const Sweep& sweep, int64_t begin, int64_t count, int64_t end,
                       Chain<T>& chain) {
  const T* dy = static_cast<const T*>(sweep.dy);
  const int64_t distance = std::max(sweep.ahead, count);
  chain.count = static_cast<size_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t ahead = std::min(begin + distance + i, end - 1);
    const auto slot = static_cast<size_t>(i);
    chain.rows[slot] = dy + sweep.dy_rows(sweep.order.positions[begin + i]);
    chain.ahead[slot] = dy + sweep.dy_rows(sweep.order.positions[ahead]);
  }
}

// Which lines a chain asks for while it is summed.
enum class Ask : uint8_t {
  kNextRows,   // the same columns of the rows ahead, to L2
  kWithinRows  // columns kAskedBytes further on, to L1; at a row's end the first ones of the row
               // ahead
};
inline constexpr size_t kAskedBytes = 512;

// Where the lines begin that are asked for at column `at`.
template <class T>
struct Asked {
  const T* const* rows;
  size_t column;
};
template <Ask kAsk, class T>
HWY_INLINE Asked<T> asked_at(const Chain<T>& chain, Columns columns, size_t at) {
  if constexpr (kAsk == Ask::kWithinRows) {
    const size_t column = at + kAskedBytes / sizeof(T);
    if (column < columns.last) return {chain.rows, column};
    return {chain.ahead, column - columns.count()};
  }
  return {chain.ahead, at};
}
template <Ask kAsk>
HWY_INLINE void ask_for(const void* line) {
  if constexpr (kAsk == Ask::kWithinRows) {
    prefetch_to_l1(line);
  } else {
    // Into L1 they would take the same miss buffers as the loads of the rows that are being
    // added, and sums of long runs fall to half of their speed (AMD Zen 4).
    prefetch_to_l2(line);
  }
}

// A row that is not whole lines may end a line behind the one in which its last columns were asked
// for: the more of them, the more often (two cores of Zen 3, f32 833333x833333x15 36 -> 27 ms,
// 403226x403226x31 20 -> 17.6; 33 columns 0.94 times as fast where it is asked for one).
template <class T>
HWY_INLINE void ask_for_end(const T* row, size_t end) {
  constexpr size_t kLine = kLineBytes / sizeof(T);
  if (end % kLine > kLine / 4) ask_for<Ask::kNextRows>(row + end - 1);
}

// Where prefetches wait or are taken, runs of more than a chain of 16-bit rows ask within the rows,
// if their tile is longer than what is asked ahead (two cores of Emerald Rapids, run by run bf16
// 65536x2x768 4.41 -> 4.27 ms, f16 65536x50304x768-freq 6.69 -> 6.21; 256 to 768 bytes are alike;
// one index and FP32 level).
template <class T>
bool asks_within_rows(Columns columns) {
  return sizeof(T) == 2 && !kDropsPrefetches && columns.count() * sizeof(T) > kAskedBytes;
}

// Calls use(column, lanes, sum) for the sums over the chain, sixteen columns by sixteen; in the
// last ones only the first `lanes` columns are there, the others are +0.
template <Ask kAsk, class T, class Use>
HWY_INLINE void sum_chain(const Chain<T>& chain, Columns columns, Use&& use) {
  constexpr size_t kLine = 64 / sizeof(T);
  const size_t end = columns.last;
  size_t at = columns.first;
  for (; at + kStrip * kLanes <= end; at += kStrip * kLanes) {
    F32x16 sums[kStrip];
    for (size_t v = 0; v < kStrip; ++v) sums[v] = zero16();
    const Asked<T> asked = asked_at<kAsk>(chain, columns, at);
    const auto add_row = [&](size_t r) ACLGRAD_INLINED {
      const T* from = chain.rows[r] + at;
      const T* ahead = asked.rows[r] + asked.column;
      for (size_t v = 0; v < kStrip; ++v) sums[v] = add(sums[v], load16(from + v * kLanes));
      for (size_t line = 0; line < kStrip * kLanes; line += kLine) ask_for<kAsk>(ahead + line);
    };
    // A complete chain without a loop, so that a core sees further while it waits for memory (two
    // threads and one of Zen 4, FP32 65536x2x768 1.24 and 1.22 times as fast, 200000x50x256 1.16
    // and 1.11, 65536x50304x768-freq 1.04 and 1.06; BF16 1.0 to 1.1).
    if (chain.count == kChain) {
      for_constants<kChain>([&](auto r) ACLGRAD_INLINED { add_row(r); });
    } else {
      for (size_t r = 0; r < chain.count; ++r) add_row(r);
    }
    for (size_t v = 0; v < kStrip; ++v) use(at + v * kLanes, kLanes, sums[v]);
  }
  for (; at < end; at += kLanes) {
    const size_t lanes = std::min(end - at, kLanes);
    F32x16 sum = zero16();
    const Asked<T> asked = asked_at<kAsk>(chain, columns, at);
    for (size_t r = 0; r < chain.count; ++r) {
      const T* from = chain.rows[r] + at;
      sum = add(sum, lanes == kLanes ? load16(from) : load_alone(from, lanes));
      ask_for<kAsk>(asked.rows[r] + asked.column);
      if constexpr (kAsk == Ask::kNextRows) {
        if (at + lanes == end) ask_for_end(chain.ahead[r], end);
      }
    }
    use(at, lanes, sum);
  }
}

// Where L2 is small and prefetches are dropped, long FP32 rows of long runs are read from end to
// end, eight at once, without asking: the hardware finds these streams by itself, and what is
// asked for drives out what was (two cores of Zen 3, ms, 65536x2x768 8.0 -> 7.1,
// 65536x1000x768-equal 7.3 -> 6.2; but BF16 4.1 -> 4.8, and 500000x1500x16 4.1 -> 6.0).
template <class T>
bool reads_eight_rows(Columns tile) {
  constexpr size_t kLeastColumns = 512;
  return sizeof(T) == sizeof(float) && kDropsPrefetches && has_small_l2() &&
         tile.count() >= kLeastColumns;
}

// Whether the gradient rows of entries [begin, end), of a vector at least, lie one behind the
// other, as those of indices that rise do.
inline bool are_one_stream(const Sweep& sweep, int64_t begin, int64_t end, Columns tile) {
  const auto cols = static_cast<int64_t>(tile.count());
  const Numbers& positions = sweep.order.positions;
  return cols >= kVector && cols == sweep.problem->cols && sweep.dy_rows.uniform() &&
         sweep.dy_rows.stride() == cols && positions[end - 1] - positions[begin] == end - 1 - begin;
}

// Then rows of less than 2 KiB are read from end to end, one or two at a time (where cores take
// prefetches, all: are_stream()); what longer ones ask for is one stream, too (Zen 4, one index for
// all, times as fast, two threads and one: FP32 of 64 columns 1.46 and 1.36, 128 1.65 and 1.81,
// 768 1.2 to 1.4; from end to end instead of column by column 257 columns 1.14 and 1.55, 384 1.24
// and 2.28, 500 1.15 and 1.36, 640 1.02; BF16 level).
template <class T>
bool reads_one_by_one(Columns tile) {
  constexpr size_t kLongBytes = 2048;
  return tile.count() * sizeof(T) < kLongBytes && are_short<T>(static_cast<int64_t>(tile.count()));
}

// FP64 totals over entries [begin, end). sum_one(chain, use) adds a chain, use(place, sum) those of
// sixteen columns.
template <class T, class Sum>
HWY_INLINE void sum_tile_with(const Sweep& sweep, int64_t begin, int64_t end, double* totals,
                              Sum&& sum_one) {
  Chain<T> chain;
  for (int64_t at = begin; at < end; at += static_cast<int64_t>(kChain)) {
    locate(sweep, at, std::min(end - at, static_cast<int64_t>(kChain)), end, chain);
    sum_one(chain, [&](int64_t place, const F32x16& sum) HWY_ATTR {
      if (at == begin) {
        set_to(totals + place, sum);
      } else {
        add_to(totals + place, sum);
      }
    });
  }
}
template <class T, Ask kAsk>
void sum_tile(const Sweep& sweep, int64_t begin, int64_t end, Columns tile, double* totals) {
  sum_tile_with<T>(sweep, begin, end, totals, [&](const Chain<T>& chain, auto&& use) HWY_ATTR {
    sum_chain<kAsk>(chain, tile, [&](size_t column, size_t, const F32x16& sum) HWY_ATTR {
      use(static_cast<int64_t>(column - tile.first), sum);
    });
  });
}
template <class T, size_t kRows, Fetch kFetch>
void sum_tile_by_rows(const Sweep& sweep, int64_t begin, int64_t end, Columns tile,
                      double* totals) {
  alignas(64) float kept[kTile];
  const auto cols = static_cast<int64_t>(tile.count());
  sum_tile_with<T>(sweep, begin, end, totals, [&](const Chain<T>& chain, auto&& use) HWY_ATTR {
    const auto row = [&](int64_t i) { return chain.rows[i] + tile.first; };
    const auto put = [&](int64_t place, int64_t, const F32x16& sum) HWY_ATTR { use(place, sum); };
    const Ahead ahead =
        kFetch == Fetch::kStream ? kAheadOfStream<T> : ahead_of_short<T>(true, cols);
    sum_by_rows<kRows, kFetch, T>(static_cast<int64_t>(chain.count), cols, ahead, kept, row, put);
  });
  align_totals(totals, cols);
}

// The same where they are_one_stream(); the rows of the next chain are asked for.
template <class T>
void sum_stream(const Sweep& sweep, int64_t begin, int64_t end, Columns tile, double* totals) {
  constexpr auto kRows = static_cast<int64_t>(kChain);
  const auto cols = static_cast<int64_t>(tile.count());
  const T* row = static_cast<const T*>(sweep.dy) + sweep.dy_rows(sweep.order.positions[begin]);
  std::fill_n(totals, round_up(cols, kVector), 0.0);
  int64_t at = begin;
  for (; at + kRows <= end; at += kRows, row += kRows * cols) {
    sum_down<kChain>(row, cols, kRows * cols, cols, adding_to(totals));
  }
  align_totals(totals, cols);
  if (at == end) return;
  Chain<T> chain;
  locate(sweep, at, end - at, end, chain);
  sum_chain<Ask::kNextRows>(chain, tile, [&](size_t column, size_t, const F32x16& sum) HWY_ATTR {
    add_to(totals + column, sum);
  });
}

template <class T>
HWY_INLINE void sum_tile(const Sweep& sweep, int64_t begin, int64_t end, Columns tile,
                         double* totals) {
  if (reads_eight_rows<T>(tile)) {
    return sum_tile_by_rows<T, 8, Fetch::kNothing>(sweep, begin, end, tile, totals);
  }
  if (are_one_stream(sweep, begin, end, tile)) {
    const auto cols = static_cast<int64_t>(tile.count());
    if (are_stream<T>(cols, cols)) {
      return sum_tile_by_rows<T, 1, Fetch::kStream>(sweep, begin, end, tile, totals);
    }
    if (reads_one_by_one<T>(tile)) {
      return sum_tile_by_rows<T, kRowsAtOnce<T>, Fetch::kEveryVector>(sweep, begin, end, tile,
                                                                      totals);
    }
    if (!kPrefetchesWait && !has_small_l2()) {
      return sum_stream<T>(sweep, begin, end, tile, totals);
    }
  }
  if (asks_within_rows<T>(tile)) {
    sum_tile<T, Ask::kWithinRows>(sweep, begin, end, tile, totals);
  } else {
    sum_tile<T, Ask::kNextRows>(sweep, begin, end, tile, totals);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

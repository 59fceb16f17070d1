// SPDX-License-Identifier: Apache-2.0
// Sums down the columns of rows in memory: chains of sixteen rows in FP32, joined in FP64 totals.

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CHAINS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CHAINS_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CHAINS_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CHAINS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/down_rows-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

constexpr auto kChainRows = static_cast<int64_t>(kChain);

// Columns whose sums or FP64 totals are held at a time: the latter fill a small L1, and rows have
// long enough stretches. Where the hardware follows rows by itself it runs on behind a stretch: up
// to so many columns stay whole.
constexpr int64_t kPanel = 4096;
inline int64_t panel_columns() { return kTakesPrefetches ? kMostStreamColumns : kPanel; }
// Room for the last of a row, which has a vector at least, and so up to fifteen columns more.
constexpr int64_t kMostPanel = kMostStreamColumns + kVector;

// Where prefetches wait, each of several rows is fetched so far ahead, and with its end the row
// that comes after them. Two cores of Emerald Rapids, which read one row after the other at 27 to
// 31 GB/s whatever is fetched, then read 32 to 33, with four, eight or sixteen rows of 2 to 28 KB,
// 0.5 to 2 KiB ahead, into L1 or L2; 4 KiB or a whole chain into L1: 30 to 31.
template <class T>
constexpr int64_t kNear = 1024 / static_cast<int64_t>(sizeof(T));

// `step`: from a row to the one that is added after all of its fellows.
template <class T>
Ahead ahead_of(int64_t cols, int64_t step) {
  if (!kPrefetchesWait || cols <= kNear<T>) return {0, step};
  return {kNear<T>, step + kNear<T> - cols};
}

// Longer rows of a group of one chain are taken four at a time, but where L2 is small and eight at
// a time leave none over (two cores of Zen 3, FP32: 16 and 8 rows 0.95 to 1.0 times what four take,
// 12 rows 1.1, 3 rows 1.07; BF16 1.03 to 1.2).
constexpr size_t kLongRowsAtOnce = 4;

// Longer rows of other groups eight at a time where L2 is too small for chains to be fetched into
// it: the hardware finds eight streams by itself (FP32 [32, 1024, 2880] on two Zen 3 cores, one,
// two, four, eight, sixteen rows: 0.85, 0.85, 0.72, 0.73, 0.83 times what columns take; BF16
// [24000, 4000] four 1.02, eight 0.83, sixteen 0.83). Where they end it does not know what comes:
// the beginnings of the next eight rows are fetched (none, 256, 512, 1024, 2048 bytes, ms:
// FP32 11.4, 11.3, 11.1, 11.4, 11.6, [13000, 7168] 12.1, 11.8, 11.6, 11.7, 12.0, BF16 [32, 1024,
// 2880] 6.3, 6.1, 6.1, 6.1, 6.5).
constexpr size_t kRowsOfSmallL2 = 8;
template <class T>
constexpr int64_t kRowBeginning = 512 / static_cast<int64_t>(sizeof(T));
template <class T>
Ahead ahead_of_small_l2(int64_t cols, int64_t stride) {
  const int64_t step = static_cast<int64_t>(kRowsOfSmallL2) * stride;
  if (cols <= kRowBeginning<T>) return {0, step};
  return {kRowBeginning<T>, step + kRowBeginning<T> - cols};
}

// As many of longer rows in FP32 where prefetches wait, each fetching ahead of itself (two cores of
// Granite Rapids, two, four, eight rows beside sixteen by columns, time: [32, 1024, 2880]
// 0.97, 1.07, 0.97, 13000x7168-g32 1.08, 1.12, 0.99, 32768x2880-g2048-giant -, -, 0.98; 300 to 1500
// columns level, BF16 1.10, 1.05, 1.04 and 1.14, 1.05, 1.0).
constexpr size_t kRowsOfWaiting = 8;
constexpr int64_t kLeastColsOfWaiting = 2048;

// Vectors taken together down the rows of a chain: with two, a row's part is whole cache lines, and
// two chains hide the latency of the addition. Four read no faster (Zen 4).
constexpr size_t kVectorsDown = 2;

// The rows of one chain, and where those of the next one lie.
template <class T>
struct Chain {
  const T* row[kChain];
  int64_t stride;  // from one to the next
  size_t count;
  size_t next_count;  // rows of the next one, each `next_step` elements behind its fellow here
  int64_t next_step;
  bool down;  // line by line (down_rows-inl.h)
};

// Whether rows are read line by line down a chain (down_rows-inl.h): where the next chain's rows
// can be fetched into L2. Two cores of Zen 4, one thread and two at the faster pace of their
// memory, FP32 [2048, 16, 2880] 1.12 to 1.24 and 1.16 times as fast as four rows from end to end,
// [2000, 12, 2880] 1.19 and 1.13; [1, 32768, 2880] 1.1 to 1.2 and 1.11 times as fast as two lines
// of a row at a time. Zen 3 was not measured.
inline bool reads_down() { return !kPrefetchesWait && !has_small_l2(); }

// Whether the full chains of a block of `rows` rows, several chains, are read so: not in 16 bits
// (0.94 to 1.0), nor shorter rows than so many columns, and up to 4 KB only where there are several
// chains (FP32 of 384 to 1000 columns 1.05 to 1.2 times as fast as row by row, 80 to 320 columns
// level, [2000, 20, 600] 0.75 to 0.9).
template <class T>
bool goes_down(int64_t rows, int64_t cols) {
  constexpr int64_t kLeastCols = 384;
  constexpr int64_t kLeastShortRows = 3 * kChainRows;
  return sizeof(T) == sizeof(float) && cols >= kLeastCols &&
         (rows >= kLeastShortRows || !are_short<T>(cols)) && reads_down();
}

// Calls put(place, column, sum) with the sums of columns [col, col + 16 N) of a chain, from place
// `place` on. What lies `next` elements further on in the first `fetched` rows is fetched.
template <size_t N, class T, class Put>
HWY_INLINE void sum_strip(const Chain<T>& chain, int64_t place, int64_t col, size_t fetched,
                          int64_t next, Put&& put) {
  F32x16 sum[N];
  for (size_t k = 0; k < N; ++k) sum[k] = load16(chain.row[0] + col + k * kLanes);
  if (fetched > 0) fetch<N>(chain.row[0] + col + next);
  for (size_t r = 1; r < chain.count; ++r) {
    const T* from = chain.row[r] + col;
    if (r < fetched) fetch<N>(from + next);
    for (size_t k = 0; k < N; ++k) sum[k] = add(sum[k], load16(from + k * kLanes));
  }
  for (size_t k = 0; k < N; ++k) {
    const auto at = static_cast<int64_t>(k * kLanes);
    put(place + at, col + at, sum[k]);
  }
}

// Calls put(place, column, sum), vector by vector, with the sums of columns [begin, end), a vector
// at least, of a chain; places begin at 0 and are multiples of sixteen. A last vector that would
// reach over `end` starts earlier instead: its sums are those of columns [end - 16, end).
//
// Where prefetches do not wait the next chain's rows, about 256 KiB at most, are fetched into L2
// while this one is added (where they wait, see ahead_of()): FP32 at 1024 and 2880 columns 25 and
// 23 GB/s of one core with, 22 and 20 without; BF16 21 and 26 against 15 and 22 (Zen 4, 4 KB
// pages). Where L2 has less than 1 MiB, they drive out those fetched before, and rows are read from
// end to end instead: on two Zen 3 cores with 512 KiB, by turns, ms, FP32 [32, 1024, 2880] 20 by
// columns, 14 so; [13000, 7168] 21 and 14; [4000000, 24] 15 and 12; BF16 [13000, 7168] 10.3
// and 7.9, [32, 1024, 2880] level.
template <class T, class Put>
HWY_INLINE void sum_chain(const Chain<T>& chain, int64_t begin, int64_t end, Put&& put) {
  constexpr int64_t kStrip = static_cast<int64_t>(kVectorsDown) * kVector;
  const int64_t cols = end - begin;
  const auto count = static_cast<int64_t>(chain.count);
  const auto row = [&](int64_t i) { return chain.row[i] + begin; };
  const auto put_after = [&](int64_t place, int64_t col, const F32x16& sum)
                             HWY_ATTR { put(place, begin + col, sum); };
  if (are_stream<T>(cols, chain.stride)) {
    alignas(64) float kept[kMostPanel];
    return sum_by_rows<1, Fetch::kStream, T>(count, cols, kAheadOfStream<T>, kept, row, put_after);
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    if (chain.down && chain.count == kChain) {
      // Where no whole chain follows, the lines that are there already are asked for.
      const int64_t next = chain.next_count < kChain ? 0 : chain.next_step;
      return sum_down<kChain>(row(0), chain.stride, next, cols, put_after);
    }
  }
  if (are_short<T>(cols) || has_small_l2()) {
    alignas(64) float kept[kMostPanel];
    if (are_short<T>(cols)) {
      const Ahead ahead = ahead_of_short<T>(chain.stride == cols, chain.stride);
      return sum_by_rows<kRowsAtOnce<T>, Fetch::kEveryVector, T>(count, cols, ahead, kept, row,
                                                                 put_after);
    }
    const Ahead ahead = ahead_of_small_l2<T>(cols, chain.stride);
    return sum_by_rows<kRowsOfSmallL2, Fetch::kRowEnds, T>(count, cols, ahead, kept, row,
                                                           put_after);
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    if (kPrefetchesWait && cols >= kLeastColsOfWaiting) {
      alignas(64) float kept[kMostPanel];
      const Ahead near = ahead_of<T>(cols, static_cast<int64_t>(kRowsOfWaiting) * chain.stride);
      return sum_by_rows<kRowsOfWaiting, Fetch::kEveryVector, T>(count, cols, near, kept, row,
                                                                 put_after);
    }
  }
  const Ahead ahead = ahead_of<T>(cols, chain.next_step);
  int64_t col = begin;
  for (const int64_t turn = near_end(begin, end, ahead); col + kStrip <= turn; col += kStrip) {
    sum_strip<kVectorsDown>(chain, col - begin, col, chain.count, ahead.near, put);
  }
  const size_t next_count = chain.next_count;
  for (; col + kStrip <= end; col += kStrip) {
    sum_strip<kVectorsDown>(chain, col - begin, col, next_count, ahead.far, put);
  }
  for (; col < end; col += kVector) {
    const int64_t at = std::min(col, end - kVector);
    sum_strip<1>(chain, col - begin, at, next_count, ahead.far, put);
  }
}

// Says how many rows of the next chain to fetch: `left` rows follow this chain.
template <class T>
void look_ahead(Chain<T>& chain, int64_t left) {
  chain.next_count = static_cast<size_t>(std::clamp(left, int64_t{0}, kChainRows));
}

// Columns [begin, end) of `rows` rows, `stride` elements apart, chain after chain: make() puts the
// sums of the first one, which may be all, take() of the last one, keep() of those between; make()
// and keep() of one type are the same, and take(), too.
// `behind`: how many more rows follow in memory, of whatever group: [1000, 17, 2880] in FP32 took
// 1.1 times as long where the rows of the next one were not fetched.
template <class T, class Make, class Keep, class Take>
void sum_rows(const T* first, int64_t stride, int64_t rows, int64_t behind, int64_t begin,
              int64_t end, Make&& make, Keep&& keep, Take&& take) {
  Chain<T> chain;
  chain.stride = stride;
  chain.next_step = kChainRows * stride;
  chain.down = goes_down<T>(rows, end - begin);
  for (int64_t row = 0; row < rows; row += kChainRows) {
    const int64_t left = rows - row - kChainRows;
    chain.count = static_cast<size_t>(std::min(kChainRows, rows - row));
    for (size_t i = 0; i < chain.count; ++i) {
      chain.row[i] = first + (row + static_cast<int64_t>(i)) * stride;
    }
    look_ahead(chain, left + behind);
    if constexpr (!std::is_same_v<Make, Keep>) {
      if (row == 0) {
        sum_chain(chain, begin, end, make);
        continue;
      }
      if (left <= 0) {
        sum_chain(chain, begin, end, take);
        continue;
      }
    }
    sum_chain(chain, begin, end, keep);
  }
}

// Sixteen sums, or `lanes` of them, to where they belong. `streaming`: past the caches, where they
// may go so.
template <class T>
HWY_INLINE void put_sum(const F32x16& sum, T* out, size_t lanes, bool streaming) {
  if (lanes < kLanes) {
    store_first(sum, out, lanes);
  } else if (streaming && can_stream(out)) {
    stream16(sum, out);
  } else {
    store16(sum, out);
  }
}

// Copies `rows` short rows one after the other; elements up to `padded` become 0.
template <class T>
void gather(const T* from, int64_t stride, int64_t rows, int64_t cols, int64_t padded, T* to) {
  for (int64_t row = 0; row < rows; ++row) {
    const T* source = from + row * stride;
    T* target = to + row * cols;
    for (int64_t col = 0; col < cols; ++col) target[col] = source[col];
  }
  std::fill(to + rows * cols, to + padded, T{});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

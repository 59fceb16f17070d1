// SPDX-License-Identifier: Apache-2.0
// The FP32 sums of a chain's rows, which are read from end to end, one or a few at a time, while
// the sums wait in L1.

#if defined(ACLGRAD_KERNELS_CPU_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_ROW_SUMS_INL_H_
#undef ACLGRAD_KERNELS_CPU_ROW_SUMS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_ROW_SUMS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

constexpr auto kVector = static_cast<int64_t>(kLanes);

// Fetches the part of a later row that N vectors will need. Into L2 but where prefetches wait:
// fetching into L1 takes the same buffers as the loads (two thirds of the speed, Zen 4;
// but 1.02 to 1.1 times of it on Granite Rapids).
template <size_t N, class T>
HWY_INLINE void fetch(const T* from) {
  for (size_t at = 0; at < N * kLanes * sizeof(T); at += kLineBytes) {
    prefetch_once(reinterpret_cast<const char*>(from) + at);
  }
}

// What to fetch beside column `col` of rows that are added together: what lies `near` elements
// further on in the row, or, where the row ends before that, what lies `far` elements further on.
struct Ahead {
  int64_t near;  // 0: far in all of the row
  int64_t far;
};

// Where places that begin at `begin` no longer fetch what is near.
constexpr int64_t near_end(int64_t begin, int64_t end, Ahead ahead) {
  if (ahead.near == 0 || end - begin <= ahead.near) return begin;
  return end - ahead.near - (end - begin - ahead.near) % kVector;
}

// Rows of up to so many bytes are read from end to end, one at a time (two of 16 bits, which take
// as many instructions a line as memory has time for), their sums in L1: of columns down sixteen
// rows, a few lines of each, the hardware does not see that they follow each other. FP32 on two
// Zen 4 cores, ms: [16000, 16, 100] 5.6 by columns, 3.0 so; [6000, 16, 256] 3.9 and 2.9; with four
// rows at a time 4.2. Not FP32 where prefetches wait (Emerald Rapids: [2000, 40, 300] 3.3 by
// columns, 3.8 so; BF16 2.4 and 2.0).
template <class T>
bool are_short(int64_t cols) {
  constexpr int64_t kShortBytes = 4096;
  if (sizeof(T) == sizeof(float) && kPrefetchesWait) return false;
  return cols * static_cast<int64_t>(sizeof(T)) <= kShortBytes;
}
template <class T>
constexpr size_t kRowsAtOnce = sizeof(T) == sizeof(float) ? 1 : 2;

// How far ahead they are fetched. [30000, 6, 150] in FP32 takes 3.4 ms with 1 or 2 KiB, 4.2 with 4;
// [30000, 3, 500] in BF16 5.1 ms with 2 KiB, 3.2 with 8.
template <class T>
constexpr int64_t kAheadOfRows = (sizeof(T) == sizeof(float) ? 1536 : 8192) /
                                 static_cast<int64_t>(sizeof(T));

// In elements; `stride`: from one row to the next, where there are gaps.
template <class T>
constexpr Ahead ahead_of_short(bool dense, int64_t stride) {
  return {0, dense ? kAheadOfRows<T> : static_cast<int64_t>(kRowsAtOnce<T>) * stride};
}

// Rows of 16 bits, and short ones of FP32, that lie one behind the other, or with gaps of a few
// columns, are one stream that cores which take prefetches are asked for so far ahead, one row at a
// time (two cores of Zen 5 by the slower pace of their memory, time beside that of two lines down
// sixteen rows: bf16 32768x2880-g32 0.88, g2048 0.87, 13000x7168-g32 0.86, in halves of rows 1.05;
// by the faster one 1.02, 0.78, and in halves 1.2; FP32 beside 1536 bytes ahead, by the faster one:
// [25000, 16, 256] 0.75, [60000, 16, 100] 0.82).
constexpr int64_t kMostStreamColumns = 8192;
template <class T>
bool are_stream(int64_t cols, int64_t stride) {
  return kTakesPrefetches && (sizeof(T) == 2 || are_short<T>(cols)) && cols <= kMostStreamColumns &&
         stride >= cols && stride - cols <= cols / 8;
}
template <class T>
constexpr Ahead kAheadOfStream = {0, 6144 / static_cast<int64_t>(sizeof(T))};

// Where rows that are added fetch what is ahead.
enum class Fetch : uint8_t {
  kNothing,
  kRowEnds,
  kEveryVector,  // once for each line of 64 bytes was slower (BF16 by a tenth)
  kStream        // the same, into L1
};

// Calls put(place, column, sum) with what `sums` has already, if there are any, and the rows add up
// to, vector by vector: the last one of `cols` columns may begin within the one before it, its
// place is a multiple of sixteen all the same.
template <size_t kRows, Fetch kFetch, class T, class Put>
HWY_INLINE void add_rows_to(const float* sums, const T* const* rows, int64_t cols, Ahead ahead,
                            Put&& put) {
  const auto add_places = [&](auto fetches, int64_t begin, int64_t end,
                              int64_t next) ACLGRAD_INLINED {
    for (int64_t place = begin; place < end; place += kVector) {
      const int64_t col = std::min(place, cols - kVector);
      F32x16 sum = sums == nullptr ? zero16() : load16(sums + place);  // nothing but -0 becomes +0
      for_constants<kRows>([&](auto r) ACLGRAD_INLINED {
        sum = add(sum, load16(rows[r] + col));
        if constexpr (kFetch == Fetch::kEveryVector) {
          fetch<1>(rows[r] + col + next);
        } else if constexpr (kFetch == Fetch::kStream || fetches) {
          prefetch_to_l1(rows[r] + col + next);
        }
      });
      put(place, col, sum);
    }
  };
  const int64_t turn = near_end(0, cols, ahead);
  add_places(std::false_type(), 0, turn, ahead.near);
  add_places(std::bool_constant<kFetch == Fetch::kRowEnds>(), turn, cols, ahead.far);
}

// The sums of `cols` columns, a vector at least, of a chain of `count` rows, so many at once:
// row(i) is where row i begins. `kept`, aligned, has room for whole vectors of them.
template <size_t kRows, Fetch kFetch, class T, class Row, class Put>
HWY_INLINE void sum_by_rows(int64_t count, int64_t cols, Ahead ahead, float* kept, Row&& row,
                            Put&& put) {
  const float* before = nullptr;
  const T* rows[kRows];
  constexpr auto kStep = static_cast<int64_t>(kRows);
  const auto keep = [&](int64_t place, int64_t, const F32x16& sum)
                        HWY_ATTR { store_raw(sum, kept + place); };
  int64_t done = 0;
  for (; count - done > kStep; done += kStep) {
    for (size_t r = 0; r < kRows; ++r) rows[r] = row(done + static_cast<int64_t>(r));
    add_rows_to<kRows, kFetch>(before, rows, cols, ahead, keep);
    before = kept;
  }
  const auto left = static_cast<size_t>(count - done);
  for (size_t r = 0; r < left; ++r) rows[r] = row(done + static_cast<int64_t>(r));
  for_constants<kRows + 1>([&](auto last) HWY_ATTR {
    if (left == last) add_rows_to<last, kFetch>(before, rows, cols, ahead, put);
  });
}

// put() that adds sums to totals.
inline auto adding_to(double* totals) {
  return [totals](int64_t place, int64_t, const F32x16& sum)
             HWY_ATTR { add_to(totals + place, sum); };
}

// Puts the totals of a last vector, or of what else is so wide, that started earlier in place.
template <int64_t kWidth = kVector>
inline void align_totals(double* totals, int64_t count) {
  const int64_t rest = count % kWidth;
  if (rest == 0) return;
  double* last = totals + (count - rest);
  std::memmove(last, last + (kWidth - rest), static_cast<size_t>(rest) * sizeof(double));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

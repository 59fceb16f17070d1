// SPDX-License-Identifier: Apache-2.0
// The FP32 sums of a chain's rows: read from end to end, one or a few at a time, while the sums
// wait in L1, or strip by strip down all of them.

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

// Rows of 16 bits that lie one behind the other, or with gaps of a few columns, are one stream that
// cores which take prefetches are asked for so far ahead, one row at a time (two cores of Zen 5 by
// the slower pace of their memory, time beside that of two lines down sixteen rows: bf16
// 32768x2880-g32 0.88, g2048 0.87, 13000x7168-g32 0.86, in halves of rows 1.05; by the faster one
// 1.02, 0.78, and in halves 1.2).
constexpr int64_t kMostStreamColumns = 8192;
template <class T>
bool are_stream(int64_t cols, int64_t stride) {
  return sizeof(T) == 2 && kTakesPrefetches && cols <= kMostStreamColumns && stride >= cols &&
         stride - cols <= cols / 8;
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

// The sums of some vectors of columns down a chain of kRows rows, `stride` elements apart, where
// prefetches do not wait; what lies `next` elements further on is fetched into L2 (kAsk). The fewer
// instructions, the further a core sees while it waits for memory: there is no loop, and the
// address of one of eight rows is a sum of two registers.
template <size_t kRows, bool kAsk, class T, size_t kVectors>
HWY_INLINE void add_down(const T* first, int64_t stride, int64_t next, F32x16 (&sums)[kVectors]) {
  constexpr size_t kNear = 8;
  // Unsigned: of a single row `stride` may be anything.
  auto row = reinterpret_cast<uintptr_t>(first);
  uintptr_t ahead = row + static_cast<uintptr_t>(next) * sizeof(T);
  uintptr_t one = static_cast<uintptr_t>(stride) * sizeof(T);
  uintptr_t three = 3 * one, five = 5 * one, seven = 7 * one;
  // Else g++ keeps the addresses of all rows, in registers of vectors and on the stack.
  asm("" : "+r"(one), "+r"(three), "+r"(five), "+r"(seven));
  const uintptr_t steps[kNear] = {0, one, 2 * one, three, 4 * one, five, 2 * three, seven};
  for_constants<kRows>([&](auto r) ACLGRAD_INLINED {
    const uintptr_t step = steps[r % kNear];
    for_constants<kVectors>([&](auto v) ACLGRAD_INLINED {
      sums[v] = add(sums[v], load16(reinterpret_cast<const T*>(row + step) + v * kLanes));
    });
    if constexpr (kAsk) prefetch_to_l2(reinterpret_cast<const void*>(ahead + step));
    if constexpr ((r + 1) % kNear == 0 || r + 1 == kRows) {
      row += 8 * one;
      ahead += 8 * one;
      // Else loads of one row wait behind the prefetches of all others.
      asm volatile("" : "+r"(row), "+r"(ahead) : : "memory");
    }
  });
}

// Calls put(place, column, sum), as add_rows_to() does, with what such a chain adds up to, one line
// of its rows after the other: two lines of a row together are read at 0.85 of the pace (Zen 4, one
// thread and two).
template <size_t kRows, bool kAsk, class T, class Put>
HWY_INLINE void sum_down_with(const T* first, int64_t stride, int64_t next, int64_t cols,
                              Put&& put) {
  constexpr auto kStep = static_cast<int64_t>(kStrip<T>);
  const auto put_sums = [&](auto vectors, int64_t place, int64_t col) ACLGRAD_INLINED {
    F32x16 sums[vectors];
    for (F32x16& sum : sums) sum = zero16();  // nothing but -0 becomes +0
    add_down<kRows, kAsk>(first + col, stride, next, sums);
    for_constants<vectors>([&](auto v) ACLGRAD_INLINED {
      constexpr auto kAt = static_cast<int64_t>(v * kLanes);
      put(place + kAt, col + kAt, sums[v]);
    });
  };
  int64_t place = 0;
  for (; place + kStep <= cols; place += kStep) {
    put_sums(std::integral_constant<size_t, kStripVectors<T>>(), place, place);
  }
  for (; place < cols; place += kVector) {
    put_sums(std::integral_constant<size_t, 1>(), place, std::min(place, cols - kVector));
  }
}

// The same; nothing is asked for where cores follow the rows by themselves, unless much is computed
// between one chain and the next (`busy`): GroupedBiasAddGrad f32 400000x300-g2000, whose groups
// are a chain each and FP64 totals to fold, takes 1.14 times as long without (two cores of Zen 5).
template <size_t kRows, class T, class Put>
HWY_INLINE void sum_down(const T* first, int64_t stride, int64_t next, int64_t cols, bool busy,
                         Put&& put) {
  if (kTakesPrefetches && !busy) {
    return sum_down_with<kRows, false>(first, stride, next, cols, put);
  }
  sum_down_with<kRows, true>(first, stride, next, cols, put);
}

// put() that adds sums to totals.
inline auto adding_to(double* totals) {
  return [totals](int64_t place, int64_t, const F32x16& sum)
             HWY_ATTR { add_to(totals + place, sum); };
}

// Puts the totals of a last vector that started earlier in place.
inline void align_totals(double* totals, int64_t count) {
  const int64_t rest = count % kVector;
  if (rest == 0) return;
  double* last = totals + (count - rest);
  std::memmove(last, last + (kVector - rest), static_cast<size_t>(rest) * sizeof(double));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// The FP32 sums of a chain's rows, line by line down all of them.

#if defined(ACLGRAD_KERNELS_CPU_DOWN_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_DOWN_ROWS_INL_H_
#undef ACLGRAD_KERNELS_CPU_DOWN_ROWS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_DOWN_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// The sums of some vectors of columns down a chain of kRows rows, `stride` elements apart, where
// prefetches do not wait; what lies `next` elements further on is fetched into L2. The fewer
// instructions, the further a core sees while it waits for memory: there is no loop, and the
// address of one of eight rows is a sum of two registers.
template <size_t kRows, class T, size_t kVectors>
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
    prefetch_to_l2(reinterpret_cast<const void*>(ahead + step));
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
template <size_t kRows, class T, class Put>
HWY_INLINE void sum_down_asking(const T* first, int64_t stride, int64_t next, int64_t cols,
                                Put&& put) {
  constexpr auto kStep = static_cast<int64_t>(kStrip<T>);
  const auto put_sums = [&](auto vectors, int64_t place, int64_t col) ACLGRAD_INLINED {
    F32x16 sums[vectors];
    for (F32x16& sum : sums) sum = zero16();  // nothing but -0 becomes +0
    add_down<kRows>(first + col, stride, next, sums);
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

// The same where nothing is asked for. So many vectors follow each other in one turn of the loop,
// with a load instruction for each of their rows, and a vector's totals are added while the next
// one's rows are loaded: those instructions' strides, which the hardware follows, are that much
// longer. Two cores of Zen 5, FP32, time beside that of one vector a turn: nine shapes of 12 to
// 32768 rows of 2080 to 7168 columns 0.95 to 1.0, one thread 0.86 to 1.0; with AVX2 0.93 to 1.0;
// two vectors 1.02 and eight 1.01 of what four take; four of one row, then of the next 1.0 to 1.19.
constexpr size_t kVectorsInTurn = 4;
template <size_t kRows, class T, class Put>
HWY_INLINE void sum_down_unasked(const T* first, int64_t stride, int64_t cols, Put&& put) {
  const auto put_sums = [&](auto vectors, int64_t place, int64_t col) ACLGRAD_INLINED {
    for_constants<vectors>([&](auto v) ACLGRAD_INLINED {
      constexpr auto kAt = static_cast<int64_t>(v * kLanes);
      const T* row = first + col + kAt;
      F32x16 sum = zero16();  // nothing but -0 becomes +0
      for_constants<kRows>([&](auto r) ACLGRAD_INLINED {
        sum = add(sum, load16(row));
        if constexpr (r + 1 < kRows) row += stride;
      });
      put(place + kAt, col + kAt, sum);
    });
  };
  constexpr auto kStep = static_cast<int64_t>(kVectorsInTurn) * kVector;
  int64_t place = 0;
  for (; place + kStep <= cols; place += kStep) {
    put_sums(std::integral_constant<size_t, kVectorsInTurn>(), place, place);
  }
  for (; place < cols; place += kVector) {
    put_sums(std::integral_constant<size_t, 1>(), place, std::min(place, cols - kVector));
  }
}

// The sums of a chain by the way that suits the machine.
template <size_t kRows, class T, class Put>
HWY_INLINE void sum_down(const T* first, int64_t stride, int64_t next, int64_t cols, Put&& put) {
  if (kTakesPrefetches) return sum_down_unasked<kRows>(first, stride, cols, put);
  sum_down_asking<kRows>(first, stride, next, cols, put);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

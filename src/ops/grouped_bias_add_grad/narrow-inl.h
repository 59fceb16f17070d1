// SPDX-License-Identifier: Apache-2.0
// Sums of groups whose rows are narrow (tree.h): as many rows as fit stand side by side in a
// vector, and the vectors of a group are added as if it had a single row of sixteen columns.
// Sixteen groups are done together: what is left of each, one vector, is joined over all of them
// level by level, so that no group waits for its own stores.

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_NARROW_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <iterator>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_joins-inl.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Groups that are done together, and how many of them where they are tiny.
constexpr auto kTogether = static_cast<int64_t>(kLanes);
constexpr int64_t kTinyTogether = 8 * kTogether;

// What is fetched into L2 while a vector is added: in groups of several chains the loads of two
// loops take turns and the hardware does not see that they follow each other (FP32 on one
// Zen 4 core, [24285, 700, 1] 5.1 ms without, 2.4 with 1 KiB, 2.5 with 4 KiB and 3.2 with 8 KiB;
// fetching into L1 3.3).
constexpr int64_t kAheadBytes = 1024;

// And into L1 where cores take prefetches (two cores of Zen 5 by the faster pace of their memory,
// ms, 1 KiB to L2 and 2, 4, 8 and 12 to L1: f32 65536x512x1 2.29, 2.09, 1.91, 1.61, 1.50, bf16
// 1.09, 0.93, 0.86, 0.75, 0.72, f32 200000x64x2 2.06, 1.76, 1.50, 1.33, 1.26; by the slower one 4
// to 32 KiB level).
constexpr int64_t kFarAheadBytes = 8192;
inline int64_t ahead_of_vectors() { return kTakesPrefetches ? kFarAheadBytes : kAheadBytes; }

// The same while groups of few rows are added, which come to a vector or two (FP32 on two Zen 3
// cores, [1000000, 17, 1], ms, so many bytes ahead: 512 2.7, 1024 2.5, 1536 and 2048 2.4, 3072 2.7,
// without 2.8; BF16 1.74 to 1.79 whatever is fetched, 1.84 without).
constexpr int64_t kAheadOfFew = 1536;
inline int64_t ahead_of_few() { return kTakesPrefetches ? kFarAheadBytes : kAheadOfFew; }

// Whether the hardware finds streams sooner than prefetches tell it: FP32 where L2 is small and
// prefetches are dropped. Groups of many rows are read in two places by turns then, without
// fetching (narrow_blocks-inl.h), those of few rows as with_fetch_of_few() has it.
template <class T>
bool finds_streams() {
  return sizeof(T) == sizeof(float) && kDropsPrefetches && has_small_l2();
}

// `rows` rows, one chain at most, as vectors: complete ones, and elements of one more.
struct Vectors {
  Vectors(int64_t rows, int64_t cols)
      : step(narrow_fold(cols) * cols),
        complete(rows / narrow_fold(cols)),
        rest(static_cast<size_t>(rows % narrow_fold(cols) * cols)) {}
  int64_t step;  // elements from one to the next
  int64_t complete;
  size_t rest;
};

// How the rows of a group, or of a block of a group, are taken: made once for many.
struct NarrowRows {
  NarrowRows(int64_t row_count, int64_t col_count)
      : rows(row_count),
        cols(col_count),
        fold(narrow_fold(cols)),
        chain(fold * static_cast<int64_t>(kChain)),
        chains_before(std::max(rows - 1, int64_t{0}) / chain),
        full(chain, cols),
        last(rows - chains_before * chain, cols) {}
  int64_t rows, cols;
  int64_t fold;           // rows of a vector
  int64_t chain;          // rows of a chain
  int64_t chains_before;  // the last one
  Vectors full, last;
};

// Groups of such rows, which follow each other without gaps.
template <class T>
struct NarrowGroups {
  const T* from;
  int64_t pitch;  // from one group to the next
  int64_t count;
  bool open;  // sixteen elements behind the last one may be read
};

HWY_INLINE void ask_for_vector(const void* from, int64_t ahead) {
  if (kDropsPrefetches) {
    prefetch_to_l2(from, ahead);
  } else {
    prefetch_to_l1(from, ahead);
  }
}

// The sum of vectors. Lanes from `step` on hold anything. Where they are not `open`, no element is
// read that does not belong to them.
template <class T>
HWY_INLINE F32x16 sum_vectors(const T* from, const Vectors& vectors, bool open,
                              int64_t ahead = ahead_of_vectors()) {
  F32x16 sum = zero16();  // so that a sum of nothing but -0 is +0
  const T* const end = from + vectors.complete * vectors.step;
  if (open) {
    if constexpr (sizeof(T) == 2) {  // two vectors are a line at most
      const T* const even = end - vectors.complete % 2 * vectors.step;
      for (; from != even; from += 2 * vectors.step) {
        ask_for_vector(from, ahead);
        sum = add(sum, load16(from));
        sum = add(sum, load16(from + vectors.step));
      }
    }
    if constexpr (sizeof(T) == sizeof(float)) {
      // Loads in a row that asking does not come between: the core follows them better (two cores
      // of Zen 5, 65536x512x1 0.9 of the time).
      constexpr int64_t kInARow = 4;
      const int64_t in_rows = kTakesPrefetches ? vectors.complete / kInARow * kInARow : 0;
      for (const T* const stop = from + in_rows * vectors.step; from != stop;) {
        const T* at = from;
        for_constants<kInARow>([&](auto) ACLGRAD_INLINED {
          sum = add(sum, load16(at));
          at += vectors.step;
        });
        for_constants<kInARow>([&](auto) ACLGRAD_INLINED {
          prefetch_to_l1(from, ahead);
          from += vectors.step;
        });
      }
    }
    for (; from != end; from += vectors.step) {
      sum = add(sum, load16(from));
      ask_for_vector(from, ahead);
    }
    if (vectors.rest > 0) sum = add(sum, keep_first(load16(from), vectors.rest));
  } else {
    const auto step = static_cast<size_t>(vectors.step);
    for (; from != end; from += step) {
      sum = add(sum, step == kLanes ? load16(from) : load_first(from, step));
    }
    if (vectors.rest > 0) sum = add(sum, load_first(from, vectors.rest));
  }
  return sum;
}

// The last levels of sums whose vectors stand behind each other in `lanes`, from `half` rows to be
// added to as many others down to one.
HWY_INLINE void join_levels(float* lanes, const int64_t count, int64_t cols, int64_t half,
                            float* out) {
  for (; half > 1; half /= 2) {
    for (int64_t i = 0; i < count; ++i) {
      float* p = lanes + i * kTogether;
      store_raw(add(load16(p), load16(p + half * cols)), p);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const float* p = lanes + i * kTogether;
    store_raw(half == 1 ? add(load16(p), load16(p + cols)) : load16(p), out + i * cols);
  }
}

// The sum of one vector and the first `rest` elements of another one, `step` behind it.
template <class T>
HWY_INLINE F32x16 sum_vector_and_rest(const T* from, int64_t step, size_t rest) {
  return add(add(load16(from), zero16()), keep_first(load16(from + step), rest));
}

// Calls run(fetch): fetch(its elements) asks for what is ahead of a group that is a vector and
// `rest` elements of another one.
template <class T, class Run>
HWY_INLINE void with_fetch_of_few(size_t rest, Run&& run) {
  // Asked once, not for each group.
  if (finds_streams<T>()) {
    // Both lines of what is ahead of groups of little more than one, of larger ones none: with one
    // line for each group, where the hardware then finds no stream, a column of 17, 20, 25 and 30
    // rows takes 1.28, 1.2, 1.1 and 1.06 times as long as with both, and 1.1, 1.2, 1.3 and 1.37
    // times as long as with none (two cores of Zen 3).
    constexpr size_t kLittle = kLanes / 4;
    if (rest <= kLittle) {
      return run([](const T* at) ACLGRAD_INLINED {
        prefetch_to_l2(at, kAheadOfFew);
        prefetch_to_l2(at, kAheadOfFew + static_cast<int64_t>(kLineBytes));
      });
    }
    return run([](const T*) ACLGRAD_INLINED {});
  }
  if (kDropsPrefetches) {
    run([](const T* at) ACLGRAD_INLINED { prefetch_to_l2(at, kAheadOfFew); });
  } else {
    const int64_t ahead = ahead_of_few();
    run([=](const T* at) ACLGRAD_INLINED { prefetch_to_l1(at, ahead); });
  }
}

#if HWY_TARGET != HWY_SCALAR
// Sixteen groups of a single column, open ones, of a vector and `rest` elements of another one, of
// which kUsed registers have some: their sums do not pass through memory before their lanes are
// joined (FP32 from the caches, one Zen 4 core, [6000, 17, 1] 15.2 -> 10.8 us). For each of them
// fetch(its elements) is called.
template <size_t kUsed, class T, class Fetch>
HWY_INLINE void sum_short_columns_of(const NarrowGroups<T>& groups, size_t rest, Fetch&& fetch,
                                     float* out) {
  const T* from = groups.from;
  store_raw(lane_sums_of([&](size_t) ACLGRAD_INLINED {
              fetch(from);
              F32x16 sum = load16(from);
              const F32x16 more = keep_first(load16(from + kTogether), rest);
              for_constants<kUsed>([&](auto i) ACLGRAD_INLINED {
                sum.part[i] = hn::Add(sum.part[i], more.part[i]);
              });
              from += groups.pitch;
              asm("" : "+r"(from));  // else sixteen addresses are kept, in registers of vectors
              return sum;
            }),
            out);
}
template <class T>
void sum_short_columns(const NarrowGroups<T>& groups, size_t rest, float* out) {
  with_fetch_of_few<T>(rest, [&](auto&& fetch) ACLGRAD_INLINED {
    // A lane behind the rest has to be among those that are added to: 0 makes +0 of its -0, and
    // with it of the sum of nothing but -0. Of eight in the rest that is a lane of the other half.
    if (rest < kLanes / 2) return sum_short_columns_of<(kParts + 1) / 2>(groups, rest, fetch, out);
    sum_short_columns_of<kParts>(groups, rest, fetch, out);
  });
}
#endif

// At most sixteen groups of few rows: sums [count, cols] to out.
template <class T>
void sum_few_rows(const NarrowGroups<T>& groups, const NarrowRows& of_each, float* out) {
  alignas(64) float lanes[(kTogether + 1) * kTogether];
  // Copies, which stores of vectors cannot change.
  const T* const first = groups.from;
  const int64_t count = groups.count, pitch = groups.pitch;
  const int64_t rows = of_each.rows, cols = of_each.cols;
  const Vectors vectors = of_each.last;
#if HWY_TARGET != HWY_SCALAR
  if (cols == 1 && count == kTogether && groups.open && vectors.complete == 1 && vectors.rest > 0) {
    return sum_short_columns(groups, vectors.rest, out);
  }
#endif
  std::fill(lanes + count * kTogether, std::end(lanes), 0.0f);
  const auto fill = [&](auto&& sum) HWY_ATTR {
    const T* from = first;
    for (int64_t i = 0; i < count; ++i, from += pitch) store_raw(sum(from), lanes + i * kTogether);
  };
  const auto most = static_cast<uint64_t>(std::clamp(rows, int64_t{1}, of_each.fold));
  const int64_t half = static_cast<int64_t>(std::bit_ceil(most)) / 2;
  if (cols > 1 && half > 0 && rows <= of_each.fold && groups.open) {
    // One vector: its first level needs no store.
    const auto upper = static_cast<size_t>((rows - half) * cols);
    fill([&](const T* from) HWY_ATTR {
      const F32x16 sum = add(load16(from), keep_first(load16(from + half * cols), upper));
      return add(sum, zero16());
    });
    return join_levels(lanes, count, cols, half / 2, out);
  }
  if (!groups.open) {
    fill([=](const T* from) HWY_ATTR { return sum_vectors(from, vectors, false); });
  } else if (vectors.complete == 1 && vectors.rest > 0) {
    with_fetch_of_few<T>(vectors.rest, [&](auto&& fetch) ACLGRAD_INLINED {
      fill([=](const T* from) HWY_ATTR {
        fetch(from);
        return sum_vector_and_rest(from, vectors.step, vectors.rest);
      });
    });
  } else {
    fill([=](const T* from) HWY_ATTR { return sum_vectors(from, vectors, true, ahead_of_few()); });
  }
  if (cols > 1) return join_levels(lanes, count, cols, half, out);
  store_raw(lane_sums(lanes), out);
}

#if HWY_TARGET != HWY_SCALAR
// The sums of thirty-two numbers, two by two.
HWY_INLINE F32x16 pair_sums(const bfloat16_t* from) {
  const Pair numbers = load_pair(from);  // even and odd ones
  return add(numbers.first, numbers.second);
}
template <class T>
HWY_INLINE F32x16 pair_sums(const T* from) {
  const TagF32 d;
  const F32x16 numbers[2] = {load16(from), load16(from + kLanes)};
  return each_part([&](size_t i) HWY_ATTR {
    const size_t at = 2 * i;
    const VecF32 lower = numbers[at / kParts].part[at % kParts];
    const VecF32 upper = numbers[(at + 1) / kParts].part[(at + 1) % kParts];
    return hn::Add(hn::ConcatEven(d, upper, lower), hn::ConcatOdd(d, upper, lower));
  });
}
#endif

// Groups of a single column of two to sixteen rows, a multiple of sixteen groups and open: the same
// sums without a vector for each.
template <class T>
void sum_tiny_columns(const NarrowGroups<T>& groups, int64_t rows, float* out) {
#if HWY_TARGET != HWY_SCALAR
  if (rows == 2) {
    for (int64_t i = 0; i < groups.count; i += kTogether) {
      store_raw(add(pair_sums(groups.from + 2 * i), zero16()), out + i);  // -0 becomes +0
    }
    return;
  }
#endif
  alignas(64) float converted[(kTinyTogether + 1) * kTogether];
  const float* from = converted;
  if constexpr (std::is_same_v<T, float>) {
    from = groups.from;
  } else {
    for (int64_t at = 0; at < groups.count * rows; at += kTogether) {
      store_raw(load16(groups.from + at), converted + at);
    }
    store_raw(zero16(), converted + groups.count * rows);
  }
  const auto lanes = static_cast<size_t>(rows);
  join_columns(from, {lanes, 0, lanes}, static_cast<size_t>(groups.count / kTogether), out, Sum());
  for (int64_t i = 0; i < groups.count; i += kTogether) {
    store_raw(add(load16(out + i), zero16()), out + i);  // -0 becomes +0
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

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

#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/prefetch.h"
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

// Where prefetches wait, runs of more than a chain of 16-bit rows ask within the rows, if their
// tile is longer than what is asked ahead (two cores of Emerald Rapids, bf16 65536x2x768 4.41
// -> 4.27 ms, f16 65536x50304x768-freq 6.69 -> 6.21; 256 to 768 bytes are alike; one index and FP32
// level).
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
    for (size_t r = 0; r < chain.count; ++r) {
      const T* from = chain.rows[r] + at;
      const T* ahead = asked.rows[r] + asked.column;
      for (size_t v = 0; v < kStrip; ++v) sums[v] = add(sums[v], load16(from + v * kLanes));
      for (size_t line = 0; line < kStrip * kLanes; line += kLine) ask_for<kAsk>(ahead + line);
    }
    for (size_t v = 0; v < kStrip; ++v) use(at + v * kLanes, kLanes, sums[v]);
  }
  for (; at < end; at += kLanes) {
    const size_t lanes = std::min(end - at, kLanes);
    F32x16 sum = zero16();
    const Asked<T> asked = asked_at<kAsk>(chain, columns, at);
    for (size_t r = 0; r < chain.count; ++r) {
      const T* from = chain.rows[r] + at;
      sum = add(sum, lanes == kLanes ? load16(from) : load_first(from, lanes));
      ask_for<kAsk>(asked.rows[r] + asked.column);
    }
    use(at, lanes, sum);
  }
}

// FP64 totals of a tile over entries [begin, end).
template <class T, Ask kAsk>
void sum_tile(const Sweep& sweep, int64_t begin, int64_t end, Columns tile, double* totals) {
  Chain<T> chain;
  for (int64_t at = begin; at < end; at += static_cast<int64_t>(kChain)) {
    locate(sweep, at, std::min(end - at, static_cast<int64_t>(kChain)), end, chain);
    sum_chain<kAsk>(chain, tile, [&](size_t column, size_t, const F32x16& sum) HWY_ATTR {
      if (at == begin) {
        set_to(totals + (column - tile.first), sum);
      } else {
        add_to(totals + (column - tile.first), sum);
      }
    });
  }
}

template <class T>
HWY_INLINE void sum_tile(const Sweep& sweep, int64_t begin, int64_t end, Columns tile,
                         double* totals) {
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

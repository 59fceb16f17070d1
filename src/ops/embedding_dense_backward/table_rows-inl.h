// SPDX-License-Identifier: Apache-2.0
// Rows of the table as they are written: from one gradient row, from one chain, from FP64 totals,
// and those without any, which are zeros.

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TABLE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TABLE_ROWS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TABLE_ROWS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_TABLE_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "ops/embedding_dense_backward/chains-inl.h"
#include "ops/embedding_dense_backward/sweep.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Which of some columns go past the caches: those whose lines hold nothing else. Half a line of 16
// bits, whose other half is a row of zeros, may be stored in another way, and a line that is
// written in both ways goes to memory twice (two cores of Granite Rapids, BF16, as many indices as
// table rows, 16 columns 52 -> 26 ms, 48 columns 19 -> 11, 208 columns 6.1 -> 4.7).
template <class TOut>
HWY_INLINE Columns streamed_columns(bool stream, const TOut* out, Columns columns) {
  constexpr size_t kLine = kLineBytes / sizeof(TOut);
  if (!stream || !can_stream(out + columns.first)) return {0, 0};
  const size_t past_line =
      reinterpret_cast<uintptr_t>(out + columns.first) % kLineBytes / sizeof(TOut);
  const size_t first = columns.first + (past_line == 0 ? 0 : kLine - past_line);
  if (first >= columns.last) return {0, 0};
  return {first, columns.last - (columns.last - first) % kLine};
}

template <class TOut>
HWY_INLINE void put(const F32x16& v, TOut* out, size_t at, size_t lanes, Columns streamed) {
  if (at >= streamed.first && at < streamed.last) {
    stream16(v, out + at);
  } else if (lanes < kLanes) {
    store_first(v, out + at, lanes);
  } else {
    store16(v, out + at);
  }
}

HWY_INLINE F32x16 divide(const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Div(a.part[i], b.part[i]); });
}

// Columns of a run of one row, which is its own sum: without the table of rows of a chain a small
// call takes 6434 instructions instead of 6938. What a next run needs is asked for.
template <class T, class TOut>
void write_single(const Sweep& sweep, int64_t entry, int64_t end, Columns columns, TOut* out,
                  bool stream) {
  const T* dy = static_cast<const T*>(sweep.dy);
  const Numbers& positions = sweep.order.positions;
  const T* from = dy + sweep.dy_rows(positions[entry]);
  const T* ahead = dy + sweep.dy_rows(positions[std::min(entry + sweep.ahead, end - 1)]);
  const Columns streamed = streamed_columns(stream, out, columns);
  for (size_t at = columns.first; at < columns.last; at += kLanes) {
    const size_t lanes = std::min(columns.last - at, kLanes);
    if (at % (kLineBytes / sizeof(T)) == 0) ask_for<Ask::kNextRows>(ahead + at);  // once a line
    const F32x16 row = lanes == kLanes ? load16(from + at) : load_alone(from + at, lanes);
    put(add(row, zero16()), out, at, lanes, streamed);  // -0 becomes +0
  }
  ask_for_end(ahead, columns.last);
}

// Columns of a run of at most sixteen rows: one FP32 chain. Its quotient in FP32 is what FP64 would
// give rounded to FP32.
template <class T, class TOut>
void write_short_run(const Sweep& sweep, int64_t begin, int64_t count, int64_t end, Columns columns,
                     TOut* out, bool stream) {
  Chain<T> chain;
  locate(sweep, begin, count, end, chain);
  const Columns streamed = streamed_columns(stream, out, columns);
  if (sweep.problem->scale_by_frequency && count > 1) {
    const F32x16 divisor = set16(static_cast<float>(count));
    sum_chain<Ask::kNextRows>(chain, columns,
                              [&](size_t at, size_t lanes, const F32x16& sum) HWY_ATTR {
                                put(divide(sum, divisor), out, at, lanes, streamed);
                              });
  } else {
    sum_chain<Ask::kNextRows>(chain, columns,
                              [&](size_t at, size_t lanes, const F32x16& sum)
                                  HWY_ATTR { put(sum, out, at, lanes, streamed); });
  }
}

// A tile of a table row from the totals of its run of `count` rows.
template <class TOut>
void write_tile(const Sweep& sweep, const double* totals, int64_t count, Columns tile, TOut* out,
                bool stream) {
  const Columns streamed = streamed_columns(stream, out, tile);
  const double divisor = sweep.problem->scale_by_frequency ? static_cast<double>(count) : 1.0;
  for (size_t at = tile.first; at < tile.last; at += kLanes) {
    const size_t lanes = std::min(tile.last - at, kLanes);
    alignas(64) float sums[kLanes] = {};
    for (size_t i = 0; i < lanes; ++i) {
      sums[i] = static_cast<float>(totals[at - tile.first + i] / divisor);
    }
    put(load16(sums), out, at, lanes, streamed);
  }
}

// Bytes of zeros, any alignment.
void write_zeros(uint8_t* to, size_t bytes, bool stream) {
  if (!stream || bytes < 256) {
    std::memset(to, 0, bytes);
    return;
  }
  const size_t head = (0 - reinterpret_cast<uintptr_t>(to)) % 64;
  std::memset(to, 0, head);
  size_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    for (size_t i = 0; i < kParts; ++i) {
      hn::Stream(hn::Zero(TagF32()), TagF32(), reinterpret_cast<float*>(to + at) + i * kPartLanes);
    }
  }
  std::memset(to + at, 0, bytes - at);
}

// Columns of the table rows [begin, end), which no gradient row adds to.
template <class TOut>
void write_zero_rows(const Sweep& sweep, int64_t begin, int64_t end, Columns columns) {
  TOut* out = static_cast<TOut*>(sweep.dw) + columns.first;
  const size_t bytes = columns.count() * sizeof(TOut);
  const auto put_zeros = [&](int64_t row, size_t rows) {
    write_zeros(reinterpret_cast<uint8_t*>(out + sweep.dw_rows(row)), rows * bytes, sweep.stream);
  };
  const auto width = static_cast<int64_t>(columns.count());
  if (sweep.dw_rows.uniform() && sweep.dw_rows.stride() == width) {
    put_zeros(begin, static_cast<size_t>(end - begin));
  } else {
    for (int64_t row = begin; row < end; ++row) put_zeros(row, 1);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

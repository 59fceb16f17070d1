// SPDX-License-Identifier: Apache-2.0
// FP32 rows of y that follow each other and are not whole lines, written past the caches: vectors
// of y are taken where its lines begin, not its rows, so that only the lines that two rows share
// pass a buffer. (A stage for all of y costs as much again as writing it: 24462x511 on one core of
// Zen 4 took twice the time of 24414x512.)

#if defined(ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_JOINED_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/layer_norm/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// The line that the next row will complete.
class SharedLine {
 public:
  // Columns before the first one that begins a line of y.
  static size_t head_of(const float* y) {
    return (0 - reinterpret_cast<uintptr_t>(y) / sizeof(float)) % kLanes;
  }
  // The first `count` elements of a row, of which v holds sixteen.
  HWY_INLINE void complete(const Strip<float>& v, float* y, size_t count) {
    if (count == 0) return;
    if (begin_ == nullptr) {  // the first row
      store_clean_first(v, y, count);
      return;
    }
    store_raw(v.v[0], line_ + kLanes - count);
    store_clean_strip(load_strip(line_), begin_, true);
  }
  // The last `count` elements of a row, which begin a line.
  HWY_INLINE void begin(const Strip<float>& v, float* y, size_t count) {
    store_raw(v.v[0], line_);
    begin_ = y;
    filled_ = count;
  }
  // Writes what no row has completed.
  void flush() {
    if (begin_ != nullptr) std::memcpy(begin_, line_, filled_ * sizeof(float));
    begin_ = nullptr;
    filled_ = 0;
  }

 private:
  alignas(64) float line_[2 * kLanes];
  float* begin_ = nullptr;
  size_t filled_ = 0;
};

// Bytes by which the row to come is called from L2 to L1: a load that is part of two lines waits
// for each of them (24462x511 on one core: 5.9 ms without, 5.3 so).
inline constexpr intptr_t kNear = 2048;

HWY_INLINE void prefetch_near(const void* p, intptr_t ahead) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<intptr_t>(p) + ahead));
}

// Writes `n` columns, 32 or more, of a plain row; kSum: sums those of a row to come (put_sums()).
template <bool kSum>
HWY_INLINE void write_joined(const Passing<float>& row, const float* gamma, const float* beta,
                             size_t n, SharedLine& line, double* sums) {
  const auto y_of = [&](size_t at) HWY_ATTR {
    return normalised(load_strip(row.x + at), row.mean, row.rstd, load_numbers<float>(gamma + at),
                      load_numbers<float>(beta + at));
  };
  const auto stream = [&](size_t at)
                          HWY_ATTR { store_clean_strip<float>(y_of(at), row.y + at, true); };
  const size_t head = SharedLine::head_of(row.y);
  line.complete(y_of(0), row.y, head);
  WideSum sum;
  size_t at = head;
  for (; at + kTwo <= n; at += kTwo) {
    if constexpr (kSum) {
      row.ask_for_next(at - head);
      for (size_t i = 0; i < kTwo; i += kLanes) {
        prefetch_near(row.next + at - head + i, kNear);
      }
      sum.add(row.next + at - head);
    }
    stream(at);
    stream(at + kLanes);
  }
  if constexpr (kSum) {
    size_t next = at - head;
    for (; next + kTwo <= n; next += kTwo) sum.add(row.next + next);
    sum.add_last(row.next + next, n - next);
    sum.put(sums);
  }
  if (at + kLanes <= n) {
    stream(at);
    at += kLanes;
  }
  const size_t rest = n - at;
  line.begin(normalised(load_strip_first(row.x + at, rest), row.mean, row.rstd,
                        load_last_numbers<float>(gamma + at, rest),
                        load_last_numbers<float>(beta + at, rest)),
             row.y + at, rest);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// gamma and beta as the kernels read them: as FP32, strips of which may begin at any column.

#if defined(ACLGRAD_OPS_LAYER_NORM_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_WEIGHTS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_WEIGHTS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_WEIGHTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm/ahead.h"
#include "ops/layer_norm/job.h"
#include "ops/layer_norm/row.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

HWY_INLINE F32x16 load_up_to(const float* p, size_t count) {
  return count < kLanes ? load_first(p, count) : load16(p);
}

// FP32 numbers of columns. A strip of BF16 holds even and odd columns apart (pairs-inl.h), so its
// numbers are two runs: those of columns at an even distance from the first one, and the others.
template <class T>
class ColumnNumbers {
  static constexpr bool kApart = std::is_same_v<T, bfloat16_t>;

 public:
  // Those that begin at `first`, of `cols` columns; of BF16 weight_floats() of them (prepare()).
  HWY_INLINE ColumnNumbers(const float* first, int64_t cols)
      : first_(first), second_(first + round_up(cols, kWidestStrip) / 2) {}

  // The numbers of columns from `col` on.
  HWY_INLINE ColumnNumbers from(size_t col) const {
    if constexpr (!kApart) return ColumnNumbers(first_ + col, second_);
    if (col % 2 == 0) return ColumnNumbers(first_ + col / 2, second_ + col / 2);
    return ColumnNumbers(second_ + col / 2, first_ + col / 2 + 1);
  }
  // Of the strip of columns from `at` on, an even number.
  HWY_INLINE Strip<T> strip(size_t at) const {
    Strip<T> out;
    if constexpr (kApart) {
      out.v[0] = load16(first_ + at / 2);
      out.v[1] = load16(second_ + at / 2);
    } else {
      for (size_t i = 0; i < kStripVectors<T>; ++i) out.v[i] = load16(first_ + at + i * kLanes);
    }
    return out;
  }
  // The same of the last `count` columns. Behind BF16's there is room to read.
  HWY_INLINE Strip<T> last(size_t at, size_t count) const {
    if constexpr (kApart) {
      return strip(at);
    } else {
      Strip<T> out;
      out.v[0] = load_up_to(first_ + at, count);
      if constexpr (kStripVectors<T> == 2) {
        out.v[1] = count > kLanes ? load_up_to(first_ + at + kLanes, count - kLanes) : zero16();
      }
      return out;
    }
  }
  float operator[](size_t col) const { return *place(col); }
  const float* place(size_t col) const {
    if constexpr (!kApart) return first_ + col;
    return col % 2 == 0 ? first_ + col / 2 : second_ + col / 2;
  }

 private:
  HWY_INLINE ColumnNumbers(const float* first, const float* second)
      : first_(first), second_(second) {}

  const float *first_, *second_;
};

template <class T>
struct Weights {
  HWY_INLINE Weights from(size_t col) const { return {gamma.from(col), beta.from(col)}; }

  ColumnNumbers<T> gamma, beta;
};

// Brings gamma or beta of columns [begin, begin + cols), or `absent` where there is none, to `to`,
// which has room for weight_floats() of them. What no column has is 0.
template <class T>
HWY_NOINLINE ColumnNumbers<T> prepare(const View& view, const void* given_at, int64_t begin,
                                      int64_t cols, float absent, float* to) {
  const ColumnNumbers<T> out(to, cols);
  const auto place = [&](int64_t col) {
    return const_cast<float*>(out.place(static_cast<size_t>(col)));
  };
  const int64_t padded = round_up(cols, kWidestStrip);
  constexpr auto kVector = static_cast<int64_t>(kLanes);
  std::fill_n(to + padded / 2 - kVector, kVector, 0.0f);
  std::fill(to + padded - kWidestStrip, to + weight_floats(cols), 0.0f);
  if (!given(view)) {
    for (int64_t col = 0; col < cols; ++col) *place(col) = absent;
    return out;
  }
  visit_float(view.dtype, [&](auto type) HWY_ATTR {
    using From = decltype(type);
    GatheredRow<From> numbers(Segments(view, 0), begin + cols);
    numbers.enter(static_cast<const From*>(given_at));
    for (int64_t done = 0; done < cols; done += kPanel) {
      const int64_t columns = std::min(kPanel, cols - done);
      const From* piece = numbers.piece(begin + done, columns);
      int64_t at = 0;
      if constexpr (std::is_same_v<From, T>) {
        constexpr auto kStep = static_cast<int64_t>(kStrip<T>);
        constexpr int64_t kNext = std::is_same_v<T, bfloat16_t> ? 1 : kVector;
        for (; at + kStep <= columns; at += kStep) {
          prefetch_to_l2(piece + at, kAhead);
          const Strip<T> strip = load_strip(piece + at);
          for (size_t i = 0; i < kStripVectors<T>; ++i) {
            store_raw(strip.v[i], place(done + at + static_cast<int64_t>(i) * kNext));
          }
        }
      }
      for (; at < columns; ++at) *place(done + at) = to_float(piece[at]);
    }
  });
  return out;
}

// No element is so large that an ordinary row's y could be a NaN.
inline bool all_usual(const float* numbers, int64_t count) {
  const TagF32 d;
  const auto n = static_cast<size_t>(count);
  auto usual = hn::Eq(hn::Zero(d), hn::Zero(d));
  const auto look = [&](const F32x16& v) HWY_ATTR {
    for (size_t i = 0; i < kParts; ++i) {
      usual = hn::And(usual, hn::Le(hn::Abs(v.part[i]), hn::Set(d, kUsualWeight)));
    }
  };
  size_t at = 0;
  for (; at + kLanes <= n; at += kLanes) {
    prefetch_to_l2(numbers + at, kAhead);
    look(load16(numbers + at));
  }
  if (at < n) look(load_first(numbers + at, n - at));
  return hn::AllTrue(d, usual);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

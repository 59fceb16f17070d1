// SPDX-License-Identifier: Apache-2.0
// The visits that write up to sixteen rows, each of which is one run in memory, down the columns:
// write_rows().

#if defined(ACLGRAD_OPS_LAYER_NORM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BLOCK_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BLOCK_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "aclnn/acl_meta.h"
#include "kernels/cpu/prefetch.h"
#include "ops/layer_norm/block_moments-inl.h"
#include "ops/layer_norm/parts-inl.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows that are written together, so that gamma and beta are loaded once for them. Where a vector
// takes several registers there are none for more.
inline constexpr size_t kWriteRows = kParts == 1 ? 4 : 2;

#if HWY_TARGET == HWY_AVX2
// Sixteen rows in parts, plain ones.
template <class T>
HWY_NOINLINE void write_parts(const Rows<T>& rows, const Weights<T>& weights, size_t n,
                              bool streaming) {
  with_parts<T>(n, [&](const auto& parts) ACLGRAD_INLINED {
    parts.write(rows.x[0], rows.columns_stride, rows.mean, rows.rstd, weights, n, rows.y, streaming,
                rows.converted);
  });
}
#endif

// How y leaves the registers.
struct Store {
  aclDataType dtype;
  bool streaming;  // past the caches: every strip begins a line then

  // Any dtype, NaN made canonical. The dtype is decided per store: the branch always goes the same
  // way, and there is one instantiation instead of three.
  template <class T>
  HWY_INLINE void put(void* row, size_t at, size_t count, const Strip<T>& strip) const {
    if constexpr (!std::is_same_v<T, bfloat16_t>) {
      put_vectors<kStripVectors<T>>(row, at, count, strip.v);
    } else {
      alignas(64) float in_order[kStrip<T>];
      store_in_order<T>(strip, in_order);
      const F32x16 v[2] = {load16(in_order), load16(in_order + kLanes)};
      put_vectors<2>(row, at, count, v);
    }
  }

 private:
  template <size_t kVectors>
  HWY_INLINE void put_vectors(void* row, size_t at, size_t count,
                              const F32x16 (&v)[kVectors]) const {
    if (dtype == ACL_FLOAT) {
      write<kVectors>(static_cast<float*>(row) + at, count, v);
    } else if (dtype == ACL_FLOAT16) {
      write<kVectors>(static_cast<float16_t*>(row) + at, count, v);
    } else {
      write<kVectors>(static_cast<bfloat16_t*>(row) + at, count, v);
    }
  }
  template <size_t kVectors, class T>
  HWY_INLINE void write(T* to, size_t count, const F32x16 (&v)[kVectors]) const {
    for (size_t i = 0; i < kVectors && i * kLanes < count; ++i) {
      if (count - i * kLanes < kLanes) {
        store_first(v[i], to + i * kLanes, count - i * kLanes);
      } else if (streaming) {
        stream16(v[i], to + i * kLanes);
      } else {
        store16(v[i], to + i * kLanes);
      }
    }
  }
};

// V: vectors that count.
template <class T, size_t V = kStripVectors<T>>
HWY_INLINE Strip<T> normalised(const Strip<T>& x, const F32x16& mean, const F32x16& rstd,
                               const Strip<T>& gamma, const Strip<T>& beta) {
  Strip<T> y;
  y.v[kStripVectors<T> - 1] = zero16();
  for (size_t i = 0; i < V; ++i) {
    y.v[i] = fma(mul(sub(x.v[i], mean), rstd), gamma.v[i], beta.v[i]);
  }
  return y;
}

// The first `n` columns of R rows, from row `first` on, all of which point to the column of
// the first of `weights`. kPlain: y has the dtype of x and holds no NaN.
template <class T, size_t R, bool kPlain>
HWY_INLINE void write_together(const Rows<T>& rows, size_t first, Weights<T> weights, size_t n,
                               const Store& store) {
  // Copies, because the compiler must assume that a store changes what stands in `rows`.
  const T* x_row[R];
  void* y_row[R];
  F32x16 mean[R], rstd[R];
  for (size_t r = 0; r < R; ++r) {
    x_row[r] = rows.x[first + r];
    y_row[r] = rows.y[first + r];
    mean[r] = set16(rows.mean[first + r]);
    rstd[r] = set16(rows.rstd[first + r]);
  }
  const bool streaming = store.streaming;
  size_t at = 0;
  for (; at + kStrip<T> <= n; at += kStrip<T>) {
    const Strip<T> gamma = weights.gamma.strip(at);
    const Strip<T> beta = weights.beta.strip(at);
    for (size_t r = 0; r < R; ++r) {
      prefetch_to_l2(x_row[r] + at, kAhead);
      const Strip<T> y = normalised(load_strip(x_row[r] + at), mean[r], rstd[r], gamma, beta);
      if constexpr (kPlain) {
        store_clean_strip<T>(y, static_cast<T*>(y_row[r]) + at, streaming);
      } else {
        store.put<T>(y_row[r], at, kStrip<T>, y);
      }
    }
  }
  if (at == n) return;
  const Strip<T> gamma = weights.gamma.last(at, n - at);
  const Strip<T> beta = weights.beta.last(at, n - at);
  for (size_t r = 0; r < R; ++r) {
    const Strip<T> x = load_strip_first(x_row[r] + at, n - at);
    const Strip<T> y = normalised(x, mean[r], rstd[r], gamma, beta);
    if constexpr (kPlain) {
      store_clean_first<T>(y, static_cast<T*>(y_row[r]) + at, n - at);
    } else {
      store.put<T>(y_row[r], at, n - at, y);
    }
  }
}

// The same for all rows, of S strips, the last one of `last` columns in V vectors: gamma and beta
// stay in registers. kRoom: a whole strip may be stored where less is left.
template <class T, size_t S, size_t V, bool kRoom>
void write_short(const Rows<T>& rows, Weights<T> weights, size_t last, bool streaming) {
  Strip<T> gamma[S], beta[S];
  for (size_t s = 0; s < S; ++s) {
    const size_t at = s * kStrip<T>;
    const size_t columns = s + 1 < S ? kStrip<T> : last;
    gamma[s] = weights.gamma.last(at, columns);
    beta[s] = weights.beta.last(at, columns);
  }
  const bool part = last < kStrip<T>;
  for (size_t r = 0; r < rows.count; ++r) {
    const T* x = rows.x[r];
    T* y = static_cast<T*>(rows.y[r]);
    const F32x16 mean = set16(rows.mean[r]);
    const F32x16 rstd = set16(rows.rstd[r]);
    for (size_t s = 0; s < S; ++s) {
      const size_t at = s * kStrip<T>;
      prefetch_to_l2(x + at, kAhead);
      if (s + 1 < S || !part) {
        const Strip<T> out = normalised(load_strip(x + at), mean, rstd, gamma[s], beta[s]);
        store_clean_strip<T>(out, y + at, streaming);
      } else {
        const Strip<T> strip = load_strip_first(x + at, last);
        const Strip<T> out = normalised<T, V>(strip, mean, rstd, gamma[s], beta[s]);
        if constexpr (kRoom) {
          store_clean_strip<T>(out, y + at, false);
        } else {
          store_clean_first<T>(out, y + at, last);
        }
      }
    }
  }
}

// One row in FP64.
template <class T>
HWY_NOINLINE void write_exact(const ExactStatistics& values, const T* x, const Weights<T>& weights,
                              size_t n, aclDataType dtype, void* y) {
  for (size_t col = 0; col < n; ++col) {
    const float value = exact_y(values, to_float(x[col]), weights.gamma[col], weights.beta[col]);
    if (dtype == ACL_FLOAT) {
      static_cast<float*>(y)[col] = from_float<float>(value);
    } else if (dtype == ACL_FLOAT16) {
      static_cast<float16_t*>(y)[col] = from_float<float16_t>(value);
    } else {
      static_cast<bfloat16_t*>(y)[col] = from_float<bfloat16_t>(value);
    }
  }
}

// Rows that may be of any kind, one by one.
template <class T>
HWY_NOINLINE void write_any(const Rows<T>& rows, const Weights<T>& weights, size_t n,
                            const Store& store) {
  for (size_t r = 0; r < rows.count; ++r) {
    if (!rows.ordinary && rows.exact[r].needed) {
      write_exact(rows.exact[r], rows.x[r], weights, n, store.dtype, rows.y[r]);
    } else {
      write_together<T, 1, false>(rows, r, weights, n, store);
    }
  }
}

// `n` columns of all rows. `plain`: as kPlain; `room`: the rows follow each other in memory, and
// what is behind the last one may be overwritten.
template <class T>
HWY_INLINE void write_rows(const Rows<T>& rows, const Weights<T>& weights, size_t n,
                           const Store& store, bool plain, bool room) {
  if (HWY_UNLIKELY(!plain)) return write_any(rows, weights, n, store);
  const auto write = [&](auto strips) HWY_ATTR {
    constexpr size_t S = decltype(strips)::value;
    const size_t last = n - (S - 1) * kStrip<T>;
    with_vectors_of<T>(last, [&](auto vectors) HWY_ATTR {
      if (room) {
        write_short<T, S, vectors, true>(rows, weights, last, store.streaming);
      } else {
        write_short<T, S, vectors, false>(rows, weights, last, store.streaming);
      }
    });
  };
  if (n <= kStrip<T>) return write(std::integral_constant<size_t, 1>());
  if (n <= 2 * kStrip<T>) return write(std::integral_constant<size_t, 2>());
  if constexpr (kStripVectors<T> == 1) {
    if (n <= 3 * kStrip<T>) return write(std::integral_constant<size_t, 3>());
    if (n <= 4 * kStrip<T>) return write(std::integral_constant<size_t, 4>());
  }
  size_t r = 0;
  for (; r + kWriteRows <= rows.count; r += kWriteRows) {
    write_together<T, kWriteRows, true>(rows, r, weights, n, store);
  }
  for (; r < rows.count; ++r) write_together<T, 1, true>(rows, r, weights, n, store);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

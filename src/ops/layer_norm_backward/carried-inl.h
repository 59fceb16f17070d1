// SPDX-License-Identifier: Apache-2.0
// The second visit of short rows whose dx follow each other and are not whole lines: row by row,
// the chains of all columns in registers, dx written past the caches from registers too.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_CARRIED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_CARRIED_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_CARRIED_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_CARRIED_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "kernels/cpu/carry-inl.h"
#include "kernels/cpu/constants-inl.h"
#include "ops/layer_norm_backward/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Vectors of columns whose chains and gamma stay in registers: three registers each.
inline constexpr size_t kCarriedVectors = 4;

#if HWY_TARGET <= HWY_AVX3
template <class T>
using DxCarry = Carry<sizeof(T)>;

// write_columns() of rows of S strips, the last of which has `last` columns in V vectors.
template <class T, size_t S, size_t V, Fetch kFetch>
HWY_INLINE void carry_strips(const Rows<T>& rows, const float* gamma_row, size_t last, float* chain,
                             DxCarry<T>& carry) {
  constexpr size_t kVectors = kStripVectors<T>;
  constexpr size_t kAll = (S - 1) * kVectors + V;
  Strip<T> gamma[S];
  for_constants<S>([&](auto s)
                       ACLGRAD_INLINED { gamma[s] = load_numbers<T>(gamma_row + s * kStrip<T>); });
  F32x16 dgamma[kAll], dbeta[kAll];
  for_constants<kAll>([&](auto i) ACLGRAD_INLINED {
    dgamma[i] = load16(chain + 2 * i * kLanes);
    dbeta[i] = load16(chain + (2 * i + 1) * kLanes);
  });
  // Copies, because the compiler must assume that a store changes them.
  DxCarry<T> out = carry;
  const Ahead ahead = rows.ahead;
  const size_t count = rows.count;
  for (size_t r = 0; r < count; ++r) {
    const T* const dy_row = rows.dy[r];
    const T* const x_row = rows.x[r];
    const F32x16 mean = set16(rows.mean[r]), rstd = set16(rows.rstd[r]);
    const F32x16 mean_g = set16(rows.mean_g[r]), mean_gx = set16(rows.mean_gx[r]);
    for_constants<S>([&](auto s) ACLGRAD_INLINED {
      constexpr bool kWhole = s + 1 < S;
      const T* dy_at = dy_row + s * kStrip<T>;
      const T* x_at = x_row + s * kStrip<T>;
      second_prefetch<kFetch>(dy_at, x_at, ahead);
      const Strip<T> dy = kWhole ? load_strip(dy_at) : load_strip_first(dy_at, last);
      const Strip<T> x = kWhole ? load_strip(x_at) : load_strip_first(x_at, last);
      Strip<T> dx;
      dx.v[kVectors - 1] = zero16();
      for_constants<(kWhole ? kVectors : V)>([&](auto i) ACLGRAD_INLINED {
        const size_t c = s * kVectors + i;
        const F32x16 xhat = mul(sub(x.v[i], mean), rstd);
        dgamma[c] = fma(dy.v[i], xhat, dgamma[c]);
        dbeta[c] = add(dbeta[c], dy.v[i]);
        const F32x16 centred = fms(dy.v[i], gamma[s].v[i], mean_g);
        dx.v[i] = mul(fnma(xhat, mean_gx, centred), rstd);
      });
      if constexpr (kWhole) {
        out.push(packed_strip(dx));
      } else {
        out.push_first(packed_strip(dx), last);
      }
    });
  }
  carry = out;
  for_constants<kAll>([&](auto i) ACLGRAD_INLINED {
    store_raw(dgamma[i], chain + 2 * i * kLanes);
    store_raw(dbeta[i], chain + (2 * i + 1) * kLanes);
  });
}

// The same of any that carries_rows() allows.
template <class T>
HWY_NOINLINE void carry_columns(const Rows<T>& rows, const float* gamma, size_t cols, float* chain,
                                DxCarry<T>& carry) {
  const auto write = [&](auto strips) HWY_ATTR {
    constexpr size_t kStrips = decltype(strips)::value;
    const size_t last = cols - (kStrips - 1) * kStrip<T>;
    with_vectors_of<T>(last, [&](auto vectors) HWY_ATTR {
      if (rows.ahead.twice) {
        carry_strips<T, kStrips, vectors, Fetch::kTwice>(rows, gamma, last, chain, carry);
      } else {
        carry_strips<T, kStrips, vectors, Fetch::kOnce>(rows, gamma, last, chain, carry);
      }
    });
  };
  if (cols < kStrip<T>) return write(std::integral_constant<size_t, 1>());
  if (cols < 2 * kStrip<T>) return write(std::integral_constant<size_t, 2>());
  if constexpr (kStripVectors<T> == 1) {
    if (cols < 3 * kStrip<T>) return write(std::integral_constant<size_t, 3>());
    write(std::integral_constant<size_t, 4>());
  }
}
#else
template <class T>
struct DxCarry {  // wants registers that are lines
  void flush() {}
};
#endif

// Whether dx of rows that are not whole lines is written so.
template <class T>
constexpr bool carries_rows(size_t cols) {
  return HWY_TARGET <= HWY_AVX3 && cols < kCarriedVectors * kLanes;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

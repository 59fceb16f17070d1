// SPDX-License-Identifier: Apache-2.0
// The sums of rows of at most four vectors, in the tree of put_sums() and square_chains(). How many
// vectors there are of three or four is a constant of their squares, and their sums have no loop.

#if defined(ACLGRAD_OPS_LAYER_NORM_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_SHORT_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_SHORT_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_SHORT_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "ops/layer_norm/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// A whole row of at most kTwo columns; +0 behind it.
struct TwoVectors {
  HWY_INLINE TwoVectors() {}
  F32x16 v[2];
};
template <class T>
HWY_INLINE TwoVectors load_two_first(const T* x, size_t n) {
  TwoVectors out;
  if constexpr (kStripVectors<T> == 2) {
    const Strip<T> strip = load_strip_first(x, n);
    out.v[0] = strip.v[0];
    out.v[1] = strip.v[1];
  } else {
    out.v[0] = load_first(x, HWY_MIN(n, kLanes));
    out.v[1] = n > kLanes ? load_first(x + kLanes, n - kLanes) : zero16();
  }
  return out;
}
// As WideSum has it.
HWY_INLINE void put_sums(const TwoVectors& x, double* out) {
  Chain chain;
  each_wide(x.v[0], [&](size_t lane, VecF64 wide) HWY_ATTR { chain[lane / kWideLanes] = wide; });
  each_wide(x.v[1], [&](size_t lane, VecF64 wide) HWY_ATTR {
    chain[lane / kWideLanes] = hn::Add(chain[lane / kWideLanes], wide);
  });
  constexpr size_t kHalf = kWideParts / 2;
  for (size_t part = 0; part < kHalf; ++part) {
    hn::Store(hn::Add(chain[part], chain[part + kHalf]), TagF64(), out + part * kWideLanes);
  }
}
#if HWY_TARGET <= HWY_AVX3
// The same of more than a vector of FP32, promoted on the way from memory, without the half that
// has nothing (kUpper). Its +0 is still added: it decides the sign of a sum that is 0.
template <bool kUpper>
HWY_INLINE void put_sums_of_two(const float* x, size_t n, double* out) {
  const hn::Rebind<float, TagF64> narrow;
  const auto promote = [&](size_t at)
                           HWY_ATTR { return hn::PromoteTo(TagF64(), hn::LoadU(narrow, x + at)); };
  const auto promote_last = [&](size_t at) HWY_ATTR {
    return hn::PromoteTo(TagF64(), hn::MaskedLoad(hn::FirstN(narrow, n - at), narrow, x + at));
  };
  constexpr size_t kUpperAt = kLanes + kWideLanes;
  VecF64 lower = promote(0), upper = promote(kWideLanes);
  if constexpr (kUpper) {
    lower = hn::Add(lower, promote(kLanes));
    upper = hn::Add(upper, promote_last(kUpperAt));
  } else {
    lower = hn::Add(lower, promote_last(kLanes));
    upper = hn::Add(upper, hn::Zero(TagF64()));
  }
  hn::Store(hn::Add(lower, upper), TagF64(), out);
}
// put_sums() of at most kTwo numbers of sixteen bits.
template <class T>
HWY_INLINE void put_pair_sums(const T* x, size_t n, double* out) {
  const TagF64 d;
  const auto sum = [&](size_t at) HWY_ATTR {
    const NarrowPair pair = load_narrow_pair_first(x, at, n);
    // As in add_vector().
    return hn::MulAdd(hn::PromoteTo(d, pair.second), hn::Set(d, 1.0), hn::PromoteTo(d, pair.first));
  };
  hn::Store(hn::Add(sum(0), sum(kWideLanes)), d, out);
}
#endif
template <class T>
HWY_INLINE F32x16 squares_of_two(const TwoVectors& x, size_t n, float centre) {
  const F32x16 centre16 = set16(centre);
  const bool pairs = std::is_same_v<T, bfloat16_t>;
  const size_t first = pairs ? (n + 1) / 2 : HWY_MIN(n, kLanes);
  const F32x16 a = keep_first(sub(x.v[0], centre16), first);
  const F32x16 b = keep_first(sub(x.v[1], centre16), n - first);
  return fma(b, b, mul(a, a));
}

// Rows of more than kTwo and up to kFour columns: S strips, of which the last one has `last`
// columns in V vectors. (Two cores of Granite Rapids, ms: f32 300000x48 4.96 -> 4.01,
// 400000x33 5.40
// -> 3.95, bf16 300000x48 4.12 -> 3.90, f16 3.74 -> 3.5.)
inline constexpr size_t kFour = 2 * kTwo;
template <class T>
inline constexpr size_t kFourStrips = kFour / kStrip<T>;

// put_sums() without its loop.
template <class T>
HWY_INLINE void put_few_sums(const T* x, size_t n, double* out) {
  WideSum sum;
  sum.add(x);
  sum.add_last(x + kTwo, n - kTwo);
  sum.put(out);
}

template <class T, size_t S, size_t V>
HWY_INLINE F32x16 few_squares(const T* x, size_t last, float centre) {
  const F32x16 centre16 = set16(centre);
  F32x16 squares[kRowChains];
  const auto square = [&](const Strip<T>& apart, size_t s, size_t vectors) HWY_ATTR {
    for (size_t i = 0; i < vectors; ++i) {
      squares[s * kStripVectors<T> + i] = mul(apart.v[i], apart.v[i]);
    }
  };
  for (size_t s = 0; s < S; ++s) {
    const bool whole = s + 1 < S;
    const T* here = x + s * kStrip<T>;
    Strip<T> apart = whole ? load_strip(here) : load_strip_first(here, last);
    for (size_t i = 0; i < kStripVectors<T>; ++i) apart.v[i] = sub(apart.v[i], centre16);
    square(whole ? apart : keep_first_columns<T>(apart, last), s, whole ? kStripVectors<T> : V);
  }
  const F32x16 first = add(squares[0], squares[1]);
  constexpr size_t kVectors = (S - 1) * kStripVectors<T> + V;
  if constexpr (kVectors == kRowChains) return add(first, add(squares[2], squares[3]));
  return add(first, squares[2]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

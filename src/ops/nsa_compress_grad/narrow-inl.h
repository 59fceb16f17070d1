// SPDX-License-Identifier: Apache-2.0
// Heads of sixteen or thirty-two columns. Of such a head joining the lanes of each token's chain of
// dw takes more than the products in it. So x of the sixteen tokens is turned into columns, once
// for all windows: a window's chains are then products of columns with single elements of dy, and
// the sums of its sixteen tokens come out in the lanes of one vector. Turning takes vectors of one
// register (turned_rows-inl.h); where one is two, heads of sixteen columns, whose chains are one
// product a lane, leave them joined by halves already.

#if defined(ACLGRAD_OPS_NSA_COMPRESS_GRAD_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_NSA_COMPRESS_GRAD_NARROW_INL_H_
#undef ACLGRAD_OPS_NSA_COMPRESS_GRAD_NARROW_INL_H_
#else
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_NARROW_INL_H_
#endif

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/rows_ahead.h"
#include "kernels/cpu/turned_rows-inl.h"
#include "ops/nsa_compress_grad/tokens-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::nsa_compress_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// The widest head that is taken so: of 48 columns turning takes what joining would.
constexpr size_t kMostNarrow = kTurnsRows ? kPair : kLanes;

constexpr bool is_narrow(int64_t columns, int64_t windows) {
  return kParts <= 2 && columns <= static_cast<int64_t>(kMostNarrow) &&
         windows <= static_cast<int64_t>(kMostTogether);
}

// Heads that are visited together: their sums fill the scratch for chains, their rows of x half of
// a usual L1. Does not influence the bits.
constexpr int64_t narrow_heads(int64_t columns, int64_t windows) {
  return std::min(kTileChains * kGroup / windows, kCollectedColumns / columns);
}

// Heads of half a line each that are visited side by side, so that each token's line of dx can go
// past the caches as soon as it is there, and windows of which registers and the first level hold
// what that takes. Does not influence the bits.
constexpr size_t kPairedHeads = 2;
constexpr int64_t kMostPairedWindows = kTurnsRows ? 0 : 4;

#if HWY_TARGET <= HWY_AVX3
// V vectors of columns of sixteen tokens, which stand in the order of load16() or load_pair().
template <size_t V>
struct Columns {
  alignas(64) float x[V * kLanes * kTokens];  // [column][token]
};

template <size_t V>
HWY_INLINE void turn_tokens(const float16_t* x, int64_t token, Columns<V>& out) {
  const hn::Rebind<hwy::float16_t, HalfF32> half;
  for (size_t c = 0; c < V * kLanes; c += kEight) {
    turn_eight(
        [&](size_t u) ACLGRAD_INLINED {
          const float16_t* at = x + static_cast<int64_t>(u) * token + c;
          return hn::PromoteTo(HalfF32(),
                               hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(at)));
        },
        out.x + c * kTokens);
  }
}

// Columns 2 c and 2 c + 1 of a token are turned as one number.
template <size_t V>
HWY_INLINE void turn_tokens(const bfloat16_t* x, int64_t token, Columns<V>& out) {
  const TagF32 d;
  const TagU32 du;
  const hn::Repartition<uint16_t, HalfF32> d16;
  alignas(64) float both[V * kEight * kTokens];
  for (size_t c = 0; c < V * kEight; c += kEight) {
    turn_eight(
        [&](size_t u) ACLGRAD_INLINED {
          const bfloat16_t* at = x + static_cast<int64_t>(u) * token + 2 * c;
          return hn::BitCast(HalfF32(), hn::LoadU(d16, reinterpret_cast<const uint16_t*>(at)));
        },
        both + c * kTokens);
  }
  // The even columns of a pair are its first vector, the odd ones its second.
  constexpr size_t kStep = V == 1 ? 2 : 1;
  constexpr size_t kOdd = V == 1 ? 1 : kLanes;
  for_constants<V * kEight>([&](auto c) HWY_ATTR {
    const VecU32 bits = hn::BitCast(du, hn::Load(d, both + c * kTokens));
    float* even = out.x + c * kStep * kTokens;
    hn::Store(even_numbers(bits), d, even);
    hn::Store(odd_numbers(bits), d, even + kOdd * kTokens);
  });
}

// The sixteen tokens' sums of dw for one window, whose dy is [column].
template <size_t V>
HWY_INLINE F32x16 column_sums(const Columns<V>& columns, const float* dy) {
  F32x16 sum[kEight];
  const auto chain = [&](size_t lane) ACLGRAD_INLINED {
    F32x16 dw = mul(set16(dy[lane]), load16(columns.x + lane * kTokens));
    if constexpr (V == 2) {
      dw = fma(set16(dy[kLanes + lane]), load16(columns.x + (kLanes + lane) * kTokens), dw);
    }
    return dw;
  };
  for_constants<kEight>([&](auto i) HWY_ATTR { sum[i] = add(chain(i), chain(i + kEight)); });
  return joined_columns(sum);
}

// Both gradients of sixteen tokens in V vectors of columns; the sums of dw go to
// [heads][R][kTokens].
template <size_t R, size_t V, class T>
void visit_narrow(const Piece<T>& piece, float* sums, RowsAhead<T> ahead) {
  Columns<V> columns;
  alignas(64) float dy[R * V * kLanes];
  for (int64_t h = 0; h < piece.heads; ++h) {
    turn_tokens<V>(piece.x + h * piece.x_head, piece.x_token, columns);  // dx may be x
    F32x16 grads[R][V];
    for_constants<R>([&](auto a) HWY_ATTR {
      const T* from = piece.dy + h * piece.dy_head - static_cast<int64_t>(a) * piece.dy_window;
      if constexpr (V == 1) {
        grads[a][0] = load16(from);
      } else {
        const Pair pair = load_pair(from);
        grads[a][0] = pair.first;
        grads[a][1] = pair.second;
      }
      for_constants<V>([&](auto v) HWY_ATTR { store_raw(grads[a][v], dy + (a * V + v) * kLanes); });
    });
    const float* w = piece.w + h * piece.w_head;
    T* dx = piece.dx + h * piece.dx_head;
    for (size_t u = 0; u < kTokens; ++u, dx += piece.dx_token) {
      if (V == 2 || u % 2 == 0) ahead.next_line();
      F32x16 sum[V];
      for_constants<V>([&](auto v) HWY_ATTR { sum[v] = zero16(); });
      for_constants<R>([&](auto a) ACLGRAD_INLINED {
        const F32x16 weight = set16(w[static_cast<int64_t>(a) * piece.w_window + u]);
        for_constants<V>([&](auto v) HWY_ATTR { sum[v] = fma(weight, grads[a][v], sum[v]); });
      });
      if constexpr (V == 1) {
        piece.streaming ? stream16(sum[0], dx) : store16(sum[0], dx);
      } else {
        Pair pair;
        pair.first = sum[0];
        pair.second = sum[1];
        store_pair(pair, dx, piece.streaming);
      }
    }
    for (size_t a = 0; a < R; ++a, sums += kTokens) {
      store_raw(column_sums<V>(columns, dy + a * V * kLanes), sums);
    }
  }
}

template <size_t R = kMostTogether, class T>
void visit_narrow_of(int64_t windows, const Piece<T>& piece, float* sums,
                     const RowsAhead<T>& ahead) {
  if (windows == static_cast<int64_t>(R)) {
    if (piece.columns == kLanes) {
      visit_narrow<R, 1>(piece, sums, ahead);
    } else {
      visit_narrow<R, 2>(piece, sums, ahead);
    }
  } else if constexpr (R > 1) {
    visit_narrow_of<R - 1>(windows, piece, sums, ahead);
  }
}
#elif HWY_TARGET == HWY_AVX2
// As above, heads of sixteen columns, H of them side by side. The halves of a chain are added as
// lane_sums() does first.
template <size_t R, size_t H, class T>
void visit_narrow(const Piece<T>& piece, float* sums, RowsAhead<T> ahead) {
  constexpr size_t kTokensOfLine = kPairedHeads / H;
  const TagF32 d;
  alignas(64) float halves[H][R][kTokens * kPartLanes];
  // Copies, because the compiler must assume that a store to dx changes them.
  const int64_t w_window = piece.w_window, w_head = piece.w_head;
  const int64_t x_token = piece.x_token, x_head = piece.x_head;
  const int64_t dx_token = piece.dx_token, dx_head = piece.dx_head;
  const bool streaming = piece.streaming;
  for (int64_t h = 0; h < piece.heads; h += static_cast<int64_t>(H)) {
    F32x16 grads[H][R];
    for_constants<H>([&](auto i) HWY_ATTR {
      const T* from = piece.dy + (h + static_cast<int64_t>(i)) * piece.dy_head;
      for_constants<R>([&](auto a) HWY_ATTR {
        grads[i][a] = load16(from - static_cast<int64_t>(a) * piece.dy_window);
      });
    });
    const float* w = piece.w + h * w_head;
    const T* x = piece.x + h * x_head;
    T* dx = piece.dx + h * dx_head;
    for (size_t u = 0; u < kTokens; u += kTokensOfLine) {
      ahead.next_line();
      for_constants<kTokensOfLine>([&](auto t) ACLGRAD_INLINED {
        for_constants<H>([&](auto i) ACLGRAD_INLINED {
          const auto head = static_cast<int64_t>(i);
          const F32x16 value = load16(x + head * x_head);
          F32x16 sum = zero16();
          for_constants<R>([&](auto a) ACLGRAD_INLINED {
            const F32x16 weight = set16(w[head * w_head + static_cast<int64_t>(a) * w_window]);
            sum = fma(weight, grads[i][a], sum);
            const F32x16 dw = mul(grads[i][a], value);  // -0 becomes +0 in the totals
            hn::Store(hn::Add(dw.part[0], dw.part[1]), d, halves[i][a] + (u + t) * kPartLanes);
          });
          T* const to = dx + head * dx_head;
          streaming ? stream16(sum, to) : store16(sum, to);
        });
        ++w;
        x += x_token;
        dx += dx_token;
      });
    }
    for_constants<H * R>([&](auto chain) HWY_ATTR {
      const float* from = halves[chain / R][chain % R];
      for_constants<kParts>([&](auto part) HWY_ATTR {
        VecF32 v[kPartLanes];
        for_constants<kPartLanes>([&](auto k) HWY_ATTR {
          v[k] = hn::Load(d, from + (part * kPartLanes + k) * kPartLanes);
        });
        hn::StoreU(joined_lanes(v), d, sums + part * kPartLanes);
      });
      sums += kTokens;
    });
  }
}

template <size_t R = kMostTogether, class T>
void visit_narrow_of(int64_t windows, const Piece<T>& piece, float* sums,
                     const RowsAhead<T>& ahead) {
  if (windows == static_cast<int64_t>(R)) {
    if constexpr (static_cast<int64_t>(R) <= kMostPairedWindows) {
      if (piece.streaming && piece.heads % int64_t{kPairedHeads} == 0) {
        return visit_narrow<R, kPairedHeads>(piece, sums, ahead);
      }
    }
    visit_narrow<R, 1>(piece, sums, ahead);
  } else if constexpr (R > 1) {
    visit_narrow_of<R - 1>(windows, piece, sums, ahead);
  }
}
#else
template <class T>
void visit_narrow_of(int64_t, const Piece<T>&, float*, const RowsAhead<T>&) {}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::nsa_compress_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

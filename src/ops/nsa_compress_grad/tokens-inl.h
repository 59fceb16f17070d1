// SPDX-License-Identifier: Apache-2.0
// What is computed at the sixteen tokens of a group: the terms of dx from the windows that cover a
// token, and its terms of dw.

#if defined(ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_
#undef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_
#else
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/rows_ahead.h"
#include "ops/nsa_compress_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::nsa_compress_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Chains of dw (heads times windows) that a tile of heads has under way at each token: it decides
// how long the contiguous pieces of a row are and keeps a tile's scratch in L1. Does not influence
// the bits.
constexpr int64_t kTileChains = 16;

// Columns of a row of dx that are collected before they stream: sixteen tokens' take half of a
// usual L1. Does not influence the bits.
constexpr int64_t kCollectedColumns = 512;
// The same where all heads of a token are that many at most: a group's dx is one run of memory
// then, whose lines are whole but for two (two cores of Granite Rapids, f16 26709x13x48, windows of
// 48 tokens every 16: 3.6 -> 3.0 ms).
constexpr int64_t kMostCollectedColumns = 768;

constexpr size_t kWidest = static_cast<size_t>(kSegment);
constexpr size_t kTokens = static_cast<size_t>(kGroup);

// Windows of a token that are taken together, and pairs of columns that are then taken side by
// side: as many as find room in registers for their elements of dy. Four pairs of two windows find
// it too, but too many lines of dx are then under way at once: f16 65536x4x128, 32 tokens every 16,
// took 16 ms instead of 4.6 (one Zen 4 core). AVX2 has no room for eight windows of a pair, and
// takes them from the stack: still half of the time of four and four (two cores of Zen 3, 128
// tokens every 16, bf16 18.4 -> 9.6 ms, f16 17.7 -> 9.2). Does not influence the bits.
constexpr size_t kMostTogether = kParts <= 2 ? 8 : kParts == 16 ? 2 : 4;
template <size_t R>
inline constexpr size_t kPairsTogether = kParts == 1 && R <= 4 ? 2 : 1;

// What a block works with besides the tensors.
struct Scratch {
  alignas(64) float dy[kMostTogether * kSegment];           // of one head, when there are many
  alignas(64) float chains[kTileChains * kGroup * kLanes];  // [heads][windows][kGroup][lanes]
  alignas(64) float dx[kGroup * kSegment];       // chains of dx, when there are many windows
  alignas(64) double totals[kGroup * kSegment];  // and their totals
  alignas(64) uint16_t collected[kGroup * kMostCollectedColumns];  // dx on its way to memory
};

// A tile of heads and a segment of columns of a group.
template <class T>
struct Piece {
  const T* x;  // of the first token, head and column
  T* dx;
  int64_t x_token, x_head, dx_token, dx_head;  // strides
  const T* dy;  // of the first head and the first of the windows, each of which starts later
  int64_t dy_window, dy_head;
  int64_t heads;
  size_t columns;
  const float* w;  // of the first token and head and the first of the windows
  int64_t w_window, w_head;
  bool streaming;
  bool x_in_the_way;  // is_in_the_way(...)
};

// Whether tokens of x and of dx lie multiples of 4 KiB apart: all of x then have the same places in
// L1, and the low bits of their addresses may be those of dx before them, so that loads wait for
// stores. What a strip needs of x is copied first; half a pair of columns alone is not. Zen 3, two
// cores, windows of 32 tokens every 16, ms, FP16 8192x32x128 24 to 12, 8192x16x256 23 to 11, BF16
// 15 to 12 and 15 to 11, but 65536x4x128, 1 KiB apart, 6.9 to 7.7. Not measured elsewhere.
template <class T>
inline bool is_in_the_way(int64_t x_token, int64_t dx_token) {
  constexpr int64_t kPage = 4096 / static_cast<int64_t>(sizeof(T));
  return x_token != 0 && x_token % kPage == 0 && dx_token % kPage == 0;
}

// One head of a piece, from some column on.
template <class T>
struct Strip {
  const T* x;
  T* dx;
  const T* dy;
  const float* w;
  float* chains;
};

// Both gradients of sixteen tokens in V pairs of columns, and in half a pair behind them with
// `kHalf`, whose elements of dy stay in registers for all of the tokens. `kFirst`: the tokens'
// chains of dw begin here.
template <size_t R, size_t V, bool kHalf, bool kFirst, class T>
HWY_INLINE void visit_pairs(const Piece<T>& piece, const Strip<T>& strip, RowsAhead<T>& ahead) {
  constexpr size_t kColumns = V * kPair + (kHalf ? kLanes : 0);
  Pair grads[R][V];
  F32x16 half_grads[R];
  for_constants<R>([&](auto a) ACLGRAD_INLINED {
    const T* dy = strip.dy - static_cast<int64_t>(a) * piece.dy_window;
    for_constants<V>([&](auto v) ACLGRAD_INLINED { grads[a][v] = load_pair(dy + v * kPair); });
    if constexpr (kHalf) half_grads[a] = load16(dy + V * kPair);
  });
  const T* x = strip.x;
  int64_t x_token = piece.x_token;
  alignas(64) T copied[kTokens * kColumns];
  if (piece.x_in_the_way) {
    for (size_t u = 0; u < kTokens; ++u) {
      std::memcpy(static_cast<void*>(copied + u * kColumns), x + static_cast<int64_t>(u) * x_token,
                  kColumns * sizeof(T));
    }
    x = copied;
    x_token = static_cast<int64_t>(kColumns);
  }
  T* dx = strip.dx;
  // Copies, because the compiler must assume that a store to dx changes them.
  const int64_t w_window = piece.w_window, dx_token = piece.dx_token;
  const bool streaming = piece.streaming;
  for (size_t u = 0; u < kTokens; ++u, x += x_token, dx += dx_token) {
    Pair value[V], sum[V];
    F32x16 half_value, half_sum;
    for_constants<V>([&](auto v) ACLGRAD_INLINED {
      ahead.next_line();
      value[v] = load_pair(x + v * kPair);
      sum[v].first = sum[v].second = zero16();
    });
    if constexpr (kHalf) {
      if (u % 2 == 0) ahead.next_line();  // half a line a token
      half_value = load16(x + V * kPair);
      half_sum = zero16();
    }
    for_constants<R>([&](auto a) ACLGRAD_INLINED {
      const F32x16 weight =
          set16(strip.w[static_cast<int64_t>(a) * w_window + static_cast<int64_t>(u)]);
      float* chain = strip.chains + (a * kTokens + u) * kLanes;
      F32x16 dw = kFirst ? zero16() : load16(chain);
      for_constants<V>([&](auto v) ACLGRAD_INLINED {
        sum[v].first = fma(weight, grads[a][v].first, sum[v].first);
        sum[v].second = fma(weight, grads[a][v].second, sum[v].second);
        dw = fma(grads[a][v].first, value[v].first, dw);
        dw = fma(grads[a][v].second, value[v].second, dw);
      });
      if constexpr (kHalf) {
        half_sum = fma(weight, half_grads[a], half_sum);
        dw = fma(half_grads[a], half_value, dw);
      }
      store_raw(dw, chain);
    });
    store_pairs(sum, dx, streaming);
    if constexpr (kHalf) store16(half_sum, dx + V * kPair);
  }
}

// The same in half a pair of columns alone.
template <size_t R, bool kFirst, class T>
HWY_INLINE void visit_half(const Piece<T>& piece, const Strip<T>& strip, RowsAhead<T>& ahead) {
  F32x16 grads[R];
  for_constants<R>([&](auto a) ACLGRAD_INLINED {
    grads[a] = load16(strip.dy - static_cast<int64_t>(a) * piece.dy_window);
  });
  for (size_t u = 0; u < kTokens; ++u) {
    if (u % 2 == 0) ahead.next_line();  // half a line a token
    const auto token = static_cast<int64_t>(u);
    const F32x16 value = load16(strip.x + token * piece.x_token);
    F32x16 sum = zero16();
    for_constants<R>([&](auto a) ACLGRAD_INLINED {
      const auto window = static_cast<int64_t>(a);
      float* chain = strip.chains + (a * kTokens + u) * kLanes;
      sum = fma(set16(strip.w[window * piece.w_window + token]), grads[a], sum);
      store_raw(fma(grads[a], value, kFirst ? zero16() : load16(chain)), chain);
    });
    store16(sum, strip.dx + token * piece.dx_token);
  }
}

// Where registers hold a pair and a half, rows that end so take both together: a token's weights
// and chains of dw are then read once (f16 26709x13x48, 48 tokens every 16).
template <size_t R>
inline constexpr bool kTakesPairAndHalf = kParts == 1 && R <= 4;

// `columns` columns of a head from strip on, V pairs at a time, then fewer.
template <size_t R, size_t V, bool kFirst, class T>
HWY_INLINE void visit_columns(const Piece<T>& piece, Strip<T> strip, size_t columns,
                              RowsAhead<T>& ahead) {
  constexpr size_t kColumns = V * kPair;
  if constexpr (V == 1 && kTakesPairAndHalf<R>) {
    if (columns == kPair + kLanes) return visit_pairs<R, 1, true, kFirst>(piece, strip, ahead);
  }
  if (columns >= kColumns) {
    visit_pairs<R, V, false, kFirst>(piece, strip, ahead);
    for (;;) {
      columns -= kColumns;
      strip.x += kColumns;
      strip.dx += kColumns;
      strip.dy += kColumns;
      if (columns < kColumns) break;
      visit_pairs<R, V, false, false>(piece, strip, ahead);
    }
    if (columns == 0) return;
    if constexpr (V > 1) {
      visit_columns<R, V / 2, false>(piece, strip, columns, ahead);
    } else {
      visit_half<R, false>(piece, strip, ahead);
    }
  } else if constexpr (V > 1) {
    visit_columns<R, V / 2, kFirst>(piece, strip, columns, ahead);
  } else {
    visit_half<R, kFirst>(piece, strip, ahead);
  }
}

// Both gradients of sixteen tokens whose R windows are all taken together; each token's chains of
// dw go to [heads][R][kGroup][lanes].
template <size_t R, class T>
void visit_tokens(const Piece<T>& piece, float* chains, RowsAhead<T> ahead) {
  for (int64_t h = 0; h < piece.heads; ++h) {
    const Strip<T> strip{piece.x + h * piece.x_head, piece.dx + h * piece.dx_head,
                         piece.dy + h * piece.dy_head, piece.w + h * piece.w_head,
                         chains + static_cast<size_t>(h) * R * kTokens * kLanes};
    visit_columns<R, kPairsTogether<R>, true>(piece, strip, piece.columns, ahead);
  }
}

// Both gradients of sixteen tokens for one head and some of its windows, dy as convert_dy() left
// it: dx stays in FP32 chains [kGroup][kSegment], which go on from what is there.
template <size_t R, class T>
void visit_some(const Piece<T>& piece, const float* dy, float* chains, float* dx_chains) {
  for (size_t u = 0; u < kTokens; ++u) {
    const auto token = static_cast<int64_t>(u);
    const T* x = piece.x + token * piece.x_token;
    float* dx = dx_chains + u * kWidest;
    F32x16 weight[R], dw[R];
    for (size_t a = 0; a < R; ++a) {
      weight[a] = set16(piece.w[static_cast<int64_t>(a) * piece.w_window + token]);
      dw[a] = zero16();
    }
    const auto add_terms = [&](const F32x16& value, size_t c) HWY_ATTR {
      F32x16 sum = load16(dx + c);
      for (size_t a = 0; a < R; ++a) {
        const F32x16 grad = load16(dy + a * kWidest + c);
        sum = fma(weight[a], grad, sum);
        dw[a] = fma(grad, value, dw[a]);
      }
      store_raw(sum, dx + c);
    };
    size_t c = 0;
    for (; c + kPair <= piece.columns; c += kPair) {
      const Pair value = load_pair(x + c);
      add_terms(value.first, c);
      add_terms(value.second, c + kLanes);
    }
    if (c < piece.columns) add_terms(load16(x + c), c);
    for (size_t a = 0; a < R; ++a) store_raw(dw[a], chains + (a * kTokens + u) * kLanes);
  }
}

template <size_t R = kMostTogether, class T>
void visit_tokens_of(int64_t windows, const Piece<T>& piece, Scratch& scratch,
                     const RowsAhead<T>& ahead) {
  if (windows == static_cast<int64_t>(R)) {
    visit_tokens<R>(piece, scratch.chains, ahead);
  } else if constexpr (R > 1) {
    visit_tokens_of<R - 1>(windows, piece, scratch, ahead);
  }
}

// Takes the largest power of two of at most `windows` windows, and returns it.
template <size_t R = kMostTogether, class T>
int64_t visit_some_of(int64_t windows, const Piece<T>& piece, Scratch& scratch) {
  if constexpr (R > 1) {
    if (windows < static_cast<int64_t>(R)) return visit_some_of<R / 2>(windows, piece, scratch);
  }
  visit_some<R>(piece, scratch.dy, scratch.chains, scratch.dx);
  return static_cast<int64_t>(R);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::nsa_compress_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

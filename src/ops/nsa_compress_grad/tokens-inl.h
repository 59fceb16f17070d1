// SPDX-License-Identifier: Apache-2.0
// What is computed at the sixteen tokens of a group: the terms of dx from the windows that cover a
// token, and its terms of dw.

#if defined(ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_
#undef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_
#else
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_TOKENS_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
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

constexpr size_t kWidest = static_cast<size_t>(kSegment);
constexpr size_t kTokens = static_cast<size_t>(kGroup);

// Windows of a token that are taken together: as many as find room in registers for their weights
// and chains of dw. Does not influence the bits.
constexpr size_t kMostTogether = kParts == 1 ? 8 : kParts == 16 ? 2 : 4;

// What a block works with besides the tensors.
struct Scratch {
  alignas(64) float dy[kTileChains * kSegment];             // [heads][windows][kSegment]
  alignas(64) float chains[kTileChains * kGroup * kLanes];  // [heads][windows][kGroup][lanes]
  alignas(64) float dx[kGroup * kSegment];       // chains of dx, when there are many windows
  alignas(64) double totals[kGroup * kSegment];  // and their totals
};

// A tile of heads and a segment of columns of a group.
template <class T>
struct Piece {
  const T* x;  // of the first token, head and column
  T* dx;
  int64_t x_token, x_head, dx_token, dx_head;  // strides
  int64_t x_ahead;                             // distance to prefetch
  int64_t heads;
  size_t columns;
  const float* w;  // of the first token and head and the first of the windows
  int64_t w_window, w_head;
  bool streaming;
};

// Both gradients of sixteen tokens whose R windows are all taken together. dy is
// [heads][R][kSegment]; each token's chains of dw go to [heads][R][kGroup][lanes].
template <size_t R, class T>
void visit_tokens(const Piece<T>& piece, const float* dy, float* chains) {
  for (size_t u = 0; u < kTokens; ++u) {
    const auto token = static_cast<int64_t>(u);
    for (int64_t h = 0; h < piece.heads; ++h) {
      const T* x = piece.x + token * piece.x_token + h * piece.x_head;
      T* dx = piece.dx + token * piece.dx_token + h * piece.dx_head;
      const float* w = piece.w + h * piece.w_head + token;
      const size_t first_chain = static_cast<size_t>(h) * R;
      const float* grads = dy + first_chain * kWidest;
      F32x16 weight[R], dw[R];
      for (size_t a = 0; a < R; ++a) {
        weight[a] = set16(w[static_cast<int64_t>(a) * piece.w_window]);
        dw[a] = zero16();
      }
      const auto add_terms = [&](const F32x16& value, size_t c) HWY_ATTR {
        F32x16 sum = zero16();
        for (size_t a = 0; a < R; ++a) {
          const F32x16 grad = load16(grads + a * kWidest + c);
          sum = fma(weight[a], grad, sum);
          dw[a] = fma(grad, value, dw[a]);
        }
        return sum;
      };
      size_t c = 0;
      for (; c + kPair <= piece.columns; c += kPair) {
        hwy::Prefetch(x + piece.x_ahead + c);
        const Pair value = load_pair(x + c);
        Pair sum;
        sum.first = add_terms(value.first, c);
        sum.second = add_terms(value.second, c + kLanes);
        store_pair(sum, dx + c, piece.streaming);
      }
      if (c < piece.columns) store16(add_terms(load16(x + c), c), dx + c);
      for (size_t a = 0; a < R; ++a) {
        store_raw(dw[a], chains + ((first_chain + a) * kTokens + u) * kLanes);
      }
    }
  }
}

// The same for one head and some of its windows: dx stays in FP32 chains [kGroup][kSegment], which
// go on from what is there.
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
void visit_tokens_of(int64_t windows, const Piece<T>& piece, Scratch& scratch) {
  if (windows == static_cast<int64_t>(R)) {
    visit_tokens<R>(piece, scratch.dy, scratch.chains);
  } else if constexpr (R > 1) {
    visit_tokens_of<R - 1>(windows, piece, scratch);
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

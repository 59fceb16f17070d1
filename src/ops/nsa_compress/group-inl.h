// SPDX-License-Identifier: Apache-2.0
// Sixteen tokens (a group) of some heads, for windows that cover them: each token is read and
// converted once, for all of the windows, whose chains are in registers.

#if defined(ACLGRAD_OPS_NSA_COMPRESS_GROUP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_NSA_COMPRESS_GROUP_INL_H_
#undef ACLGRAD_OPS_NSA_COMPRESS_GROUP_INL_H_
#else
#define ACLGRAD_OPS_NSA_COMPRESS_GROUP_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/pairs-inl.h"
#include "kernels/cpu/rows_ahead.h"
#include "ops/nsa_compress/chains.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::nsa_compress {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

constexpr auto kTokens = static_cast<size_t>(kGroup);

// Windows that are taken together: as many as find room in registers for their chains. Does not
// influence the bits.
constexpr int64_t kMostTogether = kParts == 1 ? 8 : kParts == 16 ? 1 : 2;

// One of the windows that a group is added to: of its chain, and where its sums of a strip wait.
struct Target {
  const Next* next;
  size_t slot;
};

// What is done with a group: tokens [0, kGroup) of neighbouring heads for windows that follow each
// other backwards.
template <class T>
struct Piece {
  const T* x;  // of the first token and head
  int64_t x_token, x_head;
  int64_t heads;
  size_t columns;        // of a head
  const float* weights;  // of the first token, head and window
  int64_t weights_window, weights_head;
  T* y;  // of the first head and window
  int64_t y_window, y_head;
  float* waiting;  // of the first head
  size_t strip_floats;
  const Target* targets;  // of the windows
  bool streaming;
};

// Adds the sums that wait in `slot` to a chain, then lets it wait there or writes it.
template <class T>
HWY_INLINE void finish(Pair sum, const Next& next, float* slot, T* y, bool streaming) {
  for (size_t i = 0; i < next.count; ++i) {
    const float* partner = slot + next.partners[i] * kStripColumns;
    sum.first = add(load16(partner), sum.first);
    sum.second = add(load16(partner + kLanes), sum.second);
  }
  if (next.done) {
    store_pair(sum, y, streaming);
  } else {
    store_raw(sum.first, slot + next.level * kStripColumns);
    store_raw(sum.second, slot + next.level * kStripColumns + kLanes);
  }
}
template <class T>
HWY_INLINE void finish(F32x16 sum, const Next& next, float* slot, T* y, bool) {
  for (size_t i = 0; i < next.count; ++i) {
    sum = add(load16(slot + next.partners[i] * kStripColumns), sum);
  }
  if (next.done) {
    store16(sum, y);
  } else {
    store_raw(sum, slot + next.level * kStripColumns);
  }
}

// finish() of the chains of R windows. `kInTurn`: window r is at its group r of R, so that the
// branches are decided when this is compiled.
template <size_t R, bool kInTurn, class T, class Sum>
HWY_INLINE void finish_all(const Piece<T>& piece, const Sum (&sums)[R], float* waiting, T* y) {
  for_constants<R>([&](auto r) HWY_ATTR {
    float* slot = waiting + piece.targets[r].slot;
    T* to = y + static_cast<int64_t>(r) * piece.y_window;
    if constexpr (kInTurn) {
      constexpr Next kNext = next_of(decltype(r)::value, R);
      finish(sums[r], kNext, slot, to, piece.streaming);
    } else {
      finish(sums[r], *piece.targets[r].next, slot, to, piece.streaming);
    }
  });
}

// R windows at once.
template <size_t R, bool kInTurn, class T>
void add_group(const Piece<T>& piece, RowsAhead<T>& next_group) {
  RowsAhead<T> ahead = next_group;  // a copy that stays in registers
  float* waiting = piece.waiting;
  for (int64_t head = 0; head < piece.heads; ++head) {
    const T* head_x = piece.x + head * piece.x_head;
    const float* weights = piece.weights + head * piece.weights_head;
    T* y = piece.y + head * piece.y_head;
    const auto weight = [&](size_t r, size_t u) HWY_ATTR {
      return set16(
          weights[static_cast<int64_t>(r) * piece.weights_window + static_cast<int64_t>(u)]);
    };
    size_t c = 0;
    for (; c + kPair <= piece.columns; c += kPair, waiting += piece.strip_floats) {
      Pair sums[R];
      for_constants<R>([&](auto r) HWY_ATTR { sums[r].first = sums[r].second = zero16(); });
      const T* x = head_x + c;
      for (size_t u = 0; u < kTokens; ++u, x += piece.x_token) {
        ahead.next_line();
        const Pair value = load_pair(x);
        for_constants<R>([&](auto r) HWY_ATTR {
          const F32x16 w = weight(r, u);
          sums[r].first = fma(w, value.first, sums[r].first);
          sums[r].second = fma(w, value.second, sums[r].second);
        });
      }
      finish_all<R, kInTurn>(piece, sums, waiting, y + c);
    }
    if (c == piece.columns) continue;
    F32x16 sums[R];
    for_constants<R>([&](auto r) HWY_ATTR { sums[r] = zero16(); });
    const T* x = head_x + c;
    for (size_t u = 0; u < kTokens; ++u, x += piece.x_token) {
      if (u % 2 == 0) ahead.next_line();  // half a line a token
      const F32x16 value = load16(x);
      for_constants<R>([&](auto r) HWY_ATTR { sums[r] = fma(weight(r, u), value, sums[r]); });
    }
    finish_all<R, kInTurn>(piece, sums, waiting, y + c);
    waiting += piece.strip_floats;
  }
  next_group = ahead;
}

template <int64_t R = kMostTogether, class T>
void add_group_to(int64_t windows, bool in_turn, const Piece<T>& piece, RowsAhead<T>& next_group) {
  if (windows == R) {
    constexpr auto kWindows = static_cast<size_t>(R);
    if (in_turn) {
      add_group<kWindows, true>(piece, next_group);
    } else {
      add_group<kWindows, false>(piece, next_group);
    }
  } else if constexpr (R > 1) {
    add_group_to<R - 1>(windows, in_turn, piece, next_group);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::nsa_compress
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

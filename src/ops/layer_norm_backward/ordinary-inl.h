// SPDX-License-Identifier: Apache-2.0
// Which rows are ordinary: those whose dx loses nothing where FP32's range ends, and whose terms of
// dgamma do not (exact-inl.h has the reasons, and what becomes of the others). Their own numbers
// tell, and they pay a few comparisons for it.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_ORDINARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ORDINARY_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ORDINARY_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_ORDINARY_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/exact.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Bit i: lane i of at most sixteen.
template <class D, class Mask>
HWY_INLINE uint32_t bits_of(D d, Mask mask) {
  uint8_t bits[8] = {};
  hn::StoreMaskBits(d, mask, bits);
  return uint32_t{bits[0]} | uint32_t{bits[1]} << 8;
}

// Small groups, which are those of long rows but for whole row blocks (Visiting::one_by_one), are
// judged row by row: their means have just been stored one by one, and a load of several would wait
// until those stores have left for L1, behind dx's streaming stores (f32 8192x4096, Emerald Rapids:
// 8 % of its samples). In a row block the last of these wait, once in sixteen rows.
inline constexpr size_t kFewRows = 4;
template <class T>
HWY_INLINE bool are_few(const Rows<T>& rows) {
  return rows.count <= kFewRows;
}

// Bit r: row r is not ordinary: its dx needs a closer look, or holds a NaN. One test for both
// (dx_has_no_nan() says more about NaNs), which is all that an ordinary row pays.
template <class T>
HWY_INLINE uint32_t unusual_rows(const Rows<T>& rows) {
  constexpr float kLeastRstd = 0x1p-149f;
  constexpr float kMost = std::numeric_limits<float>::max();
  uint32_t found = 0;
  if (are_few(rows)) {
    const auto is_between = [](float least, float number, float most) {
      return std::abs(number) >= least && std::abs(number) <= most;
    };
    for (size_t r = 0; r < rows.count; ++r) {
      const bool ordinary = is_between(kLeastMeanG, rows.mean_g[r], kMost) &&
                            is_between(least_mean_gx(rows.rstd[r]), rows.mean_gx[r], kMost) &&
                            is_between(kLeastRstd, rows.rstd[r], kMostRstd);
      found |= uint32_t{!ordinary} << r;
    }
    return found;
  }
  const TagRows d;
  const auto between = [&](auto least, auto v, float most) HWY_ATTR {
    return hn::And(hn::Ge(v, least), hn::Le(v, hn::Set(d, most)));
  };
  for (size_t r = 0; r < rows.count; r += hn::Lanes(d)) {
    const auto rstd = hn::Abs(hn::Load(d, rows.rstd + r));
    const auto least_gx = hn::Mul(hn::Max(rstd, hn::Set(d, 1.0f)), hn::Set(d, kLeastMeanGx));
    const auto means =
        hn::And(between(hn::Set(d, kLeastMeanG), hn::Abs(hn::Load(d, rows.mean_g + r)), kMost),
                between(least_gx, hn::Abs(hn::Load(d, rows.mean_gx + r)), kMost));
    const auto ordinary = hn::And(means, between(hn::Set(d, kLeastRstd), rstd, kMostRstd));
    const auto unusual = hn::AndNot(ordinary, hn::FirstN(d, rows.count - r));
    if (!hn::AllFalse(d, unusual)) found |= bits_of(d, unusual) << r;
  }
  return found;
}

// Bit r: the dgamma terms of row r need a closer look. FP16 has no numbers near a mean of 0.
template <class T>
HWY_INLINE uint32_t rows_near_zero(const Rows<T>& rows) {
  uint32_t found = 0;
  if (are_few(rows)) {
    for (size_t r = 0; r < rows.count; ++r) {
      const float mean = rows.mean[r], rstd = rows.rstd[r];
      bool near = std::abs(mean * rstd) < kLeastMean;
      if constexpr (std::is_same_v<T, float16_t>) {
        near = near && !(mean == 0.0f && std::abs(rstd) > kLeastUsualRstd);
      }
      found |= uint32_t{near} << r;
    }
    return found & ~rows.padding;
  }
  const TagF32 d;
  for (size_t r = 0; r < rows.count; r += kPartLanes) {
    const VecF32 mean = hn::Load(d, rows.mean + r);
    const VecF32 rstd = hn::Load(d, rows.rstd + r);
    auto near = hn::And(hn::Lt(hn::Abs(hn::Mul(mean, rstd)), hn::Set(d, kLeastMean)),
                        hn::FirstN(d, rows.count - r));
    if constexpr (std::is_same_v<T, float16_t>) {
      const auto harmless =
          hn::And(hn::Eq(mean, hn::Zero(d)), hn::Gt(hn::Abs(rstd), hn::Set(d, kLeastUsualRstd)));
      near = hn::AndNot(harmless, near);
    }
    if (HWY_LIKELY(hn::AllFalse(d, near))) continue;
    found |= bits_of(d, near) << r;
  }
  return found & ~rows.padding;
}

// False: none of these rows has an element near its mean, but not on it, in columns [begin, end).
// Four instructions a vector of the row's own dtype, because means of exactly 0 are not rare.
template <class T>
HWY_INLINE bool any_near_mean(const Rows<T>& rows, uint32_t near_zero, int64_t first_column,
                              int64_t end_column) {
  const auto begin = static_cast<size_t>(first_column);
  const auto end = static_cast<size_t>(end_column);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
  const hn::CappedTag<Bits, kLanes> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  // Twice the bits of a magnitude, less 1: those of 0 are the largest.
  auto least = hn::Set(d, std::numeric_limits<Bits>::max());
  Bits least_rest = std::numeric_limits<Bits>::max();
  for (; near_zero != 0; near_zero &= near_zero - 1) {
    const auto r = static_cast<size_t>(std::countr_zero(near_zero));
    if (rows.mean[r] != 0.0f || !(std::abs(rows.rstd[r]) > kLeastUsualRstd)) return true;
    const auto* x = reinterpret_cast<const Bits*>(rows.x[r]);
    const auto look = [&](size_t at) HWY_ATTR {
      const auto bits = hn::LoadU(d, x + at);
      least = hn::Min(least, hn::Sub(hn::Add(bits, bits), hn::Set(d, Bits{1})));
    };
    size_t at = begin;
    for (; at + 4 * lanes <= end; at += 4 * lanes) {
      for (size_t i = 0; i < 4; ++i) look(at + i * lanes);
    }
    for (; at + lanes <= end; at += lanes) look(at);
    if (at < end && at != begin) look(end - lanes);
    for (; at < end && end - begin < lanes; ++at) {
      least_rest = std::min(least_rest, static_cast<Bits>(static_cast<Bits>(x[at] << 1) - 1u));
    }
  }
  constexpr auto kBound =
      static_cast<Bits>(std::bit_cast<uint32_t>(kNearMean) >> (32 - 8 * sizeof(Bits)));
  if (least_rest / 2 < kBound) return true;
  // Halved, they compare as signed numbers.
  const auto halved = hn::BitCast(di, hn::ShiftRight<1>(least));
  return !hn::AllFalse(di, hn::Lt(halved, hn::BitCast(di, hn::Set(d, kBound))));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

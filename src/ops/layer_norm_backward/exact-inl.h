// SPDX-License-Identifier: Apache-2.0
// Where FP32's normal numbers end: the rows in which what an intermediate loses there, up to 2^-150
// (half of a subnormal's unit), is multiplied by a large factor afterwards. They are computed again
// in FP64. Which they are follows from the row's numbers alone; an ordinary row pays two
// comparisons.
//
// dx: every rounding of g, mean_g, mean_gx and of the terms between may lose 2^-150, times rstd,
// and those of mean_gx times xhat, that of its sum over x - mean times rstd once more. The promise
// allows 2^-21 * (mean|g| + |xhat| * mean|g * xhat|) * rstd, so a row is ordinary where |mean_g|
// and |mean_gx| are large. Where one is small its elements decide. What xhat itself loses never
// matters: 2^-150 * mean|g * xhat| is under 2^-22 * mean|g|, because an xhat over 2^128 overflows.
// Where FP32 ends at the other side g * (x - mean) may be infinite, though g * xhat is not.
//
// dgamma: xhat may lose 2^-150, times dy. That matters where xhat is subnormal and |dy| over 1, and
// not where |x| + |mean| is much more than their difference.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_EXACT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_EXACT_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_EXACT_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_EXACT_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/exact.h"
#include "ops/layer_norm_backward/gather-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

// Small groups, which are those of long rows but for whole row blocks (Visiting::one_by_one), are
// judged row by row: their means have just been stored one by one, and a load of several would wait
// until those stores have left for L1, behind dx's streaming stores (f32 8192x4096, Emerald Rapids:
// 8 % of its samples). In a row block the last of these wait, once in sixteen rows.
inline constexpr size_t kFewRows = 4;
template <class T>
HWY_INLINE bool are_few(const Rows<T>& rows) {
  return rows.count <= kFewRows;
}

// Nothing can be said against the dx of these rows: none needs a closer look, none holds a NaN. One
// test for both (dx_has_no_nan() says more about NaNs), which is all that an ordinary row pays.
template <class T>
HWY_INLINE bool all_ordinary(const Rows<T>& rows) {
  constexpr float kLeastRstd = 0x1p-149f;
  constexpr float kMost = std::numeric_limits<float>::max();
  if (are_few(rows)) {
    const auto is_between = [](float least, float number, float most) {
      return std::abs(number) >= least && std::abs(number) <= most;
    };
    bool all = true;
    for (size_t r = 0; r < rows.count; ++r) {
      all = all && is_between(kLeastMeanG, rows.mean_g[r], kMost) &&
            is_between(least_mean_gx(rows.rstd[r]), rows.mean_gx[r], kMost) &&
            is_between(kLeastRstd, rows.rstd[r], kMostRstd);
    }
    return all;
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
    if (!hn::AllFalse(d, hn::AndNot(ordinary, hn::FirstN(d, rows.count - r)))) return false;
  }
  return true;
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
    return found;
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
    uint8_t bits[8] = {};
    hn::StoreMaskBits(d, near, bits);
    found |= (uint32_t{bits[0]} | uint32_t{bits[1]} << 8) << r;
  }
  return found;
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

HWY_INLINE F32x16 abs16(const F32x16& v) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Abs(v.part[i]); });
}
HWY_INLINE F32x16 max16(const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Max(a.part[i], b.part[i]); });
}
HWY_INLINE F32x16 min16(const F32x16& a, const F32x16& b) {
  return each_part([&](size_t i) HWY_ATTR { return hn::Min(a.part[i], b.part[i]); });
}
HWY_INLINE float largest_of(const F32x16& v) {
  alignas(64) float lanes[kLanes];
  store_raw(v, lanes);
  return *std::max_element(lanes, lanes + kLanes);
}

// Largest magnitudes in a row.
struct Largest {
  float g, xhat;
  bool zero;  // every g is exactly 0
};

template <class T, class Source>
HWY_INLINE Largest largest_in_row(const Rows<T>& rows, Source& source, size_t r, const float* gamma,
                                  size_t cols) {
  const F32x16 mean = set16(rows.mean[r]);
  const F32x16 rstd = set16(rows.rstd[r]);
  F32x16 g = zero16(), xhat = zero16(), least_factor = zero16();
  for (size_t chunk = 0; chunk < cols; chunk += kChainColumns) {
    const size_t columns = std::min(kChainColumns, cols - chunk);
    const T* dy_chunk = source.dy(r, chunk, columns);
    const T* x_chunk = source.x(r, chunk, columns);
    for (size_t at = 0; at < columns; at += kStrip<T>) {
      const size_t rest = columns - at;
      const bool whole = rest >= kStrip<T>;
      const Strip<T> dy = whole ? load_strip(dy_chunk + at) : load_strip_first(dy_chunk + at, rest);
      const Strip<T> x = whole ? load_strip(x_chunk + at) : load_strip_first(x_chunk + at, rest);
      const Strip<T> factor = load_numbers<T>(gamma + chunk + at);
      Strip<T> distance;
      for (size_t i = 0; i < kStripVectors<T>; ++i) distance.v[i] = sub(x.v[i], mean);
      if (!whole) distance = keep_first_columns<T>(distance, rest);
      for (size_t i = 0; i < kStripVectors<T>; ++i) {
        g = max16(g, abs16(mul(dy.v[i], factor.v[i])));
        xhat = max16(xhat, abs16(mul(distance.v[i], rstd)));
        least_factor = max16(least_factor, min16(abs16(dy.v[i]), abs16(factor.v[i])));
      }
    }
  }
  return {largest_of(g), largest_of(xhat), largest_of(least_factor) == 0.0f};
}

template <class T, class Source>
void exact_means(Rows<T>& rows, Source& source, size_t r, const float* gamma, size_t cols) {
  const auto mean = static_cast<double>(rows.mean[r]);
  const auto rstd = static_cast<double>(rows.rstd[r]);
  double sum_g = 0.0, sum_gx = 0.0;
  for (size_t chunk = 0; chunk < cols; chunk += kChainColumns) {
    const size_t columns = std::min(kChainColumns, cols - chunk);
    const T* dy = source.dy(r, chunk, columns);
    const T* x = source.x(r, chunk, columns);
    for (size_t c = 0; c < columns; ++c) {
      const double g = static_cast<double>(to_float(dy[c])) *
                       static_cast<double>(gamma[chunk + strip_place<T>(c)]);
      sum_g += g;
      sum_gx += g * ((static_cast<double>(to_float(x[c])) - mean) * rstd);
    }
  }
  rows.exact |= 1u << r;
  rows.exact_means[r] = {sum_g / static_cast<double>(cols), sum_gx / static_cast<double>(cols)};
}

// Whether a mean_gx is no number only because FP32's range ends, where all g are numbers: a
// distance that is infinite meets a g that is 0 because FP32 has no number so small, and their
// product is infinite and no NaN; or all x are numbers, and FP32 has none so large as g * (x -
// mean).
template <class T, class Source>
bool is_beyond_range(const Rows<T>& rows, Source& source, size_t r, const float* gamma,
                     size_t cols) {
  bool all_finite = true;
  for (size_t chunk = 0; chunk < cols; chunk += kChainColumns) {
    const size_t columns = std::min(kChainColumns, cols - chunk);
    const T* dy_chunk = source.dy(r, chunk, columns);
    const T* x_chunk = source.x(r, chunk, columns);
    for (size_t c = 0; c < columns; ++c) {
      const float x = to_float(x_chunk[c]);
      all_finite = all_finite && std::isfinite(x);
      if (!std::isinf(x - rows.mean[r])) continue;
      const float dy = to_float(dy_chunk[c]);
      const float factor = gamma[chunk + strip_place<T>(c)];
      if (dy * factor == 0.0f && dy != 0.0f && factor != 0.0f) return true;
    }
  }
  return all_finite;
}

// After the first visit: marks the rows whose dx is to be computed in FP64, and finds their means.
template <class T, class Source>
void mark_exact_rows(Rows<T>& rows, Source& source, const float* gamma, size_t cols) {
  for (size_t r = 0; r < rows.count; ++r) {
    const float g = std::abs(rows.mean_g[r]);
    const float gx = std::abs(rows.mean_gx[r]);
    if (!std::isfinite(g)) continue;
    if (!std::isfinite(gx)) {
      if (is_beyond_range(rows, source, r, gamma, cols)) {
        exact_means(rows, source, r, gamma, cols);
      }
      continue;
    }
    const float least_gx = least_mean_gx(rows.rstd[r]);
    if (g >= kLeastMeanG && gx >= least_gx) continue;
    const Largest most = largest_in_row(rows, source, r, gamma, cols);
    if (most.zero && std::isfinite(most.xhat)) continue;
    const bool plain = (g >= kLeastMeanG || most.g >= kLeastG) &&
                       (gx >= least_gx || most.xhat <= most_xhat(rows.rstd[r]));
    if (!plain) exact_means(rows, source, r, gamma, cols);
  }
}

// Out of line: ordinary rows never come here.
template <class T>
HWY_NOINLINE void look_closer(Rows<T>& rows, const RowForms& forms, const float* gamma,
                              size_t cols) {
  Gathered<T> source(rows, forms);  // takes dense rows as they lie
  mark_exact_rows(rows, source, gamma, cols);
}

// A term of dgamma loses more than the promise allows.
HWY_INLINE auto loses(VecF32 dy, VecF32 distance, VecF32 rstd) {
  const TagF32 d;
  const auto subnormal = hn::Lt(hn::Abs(hn::Mul(distance, rstd)), hn::Set(d, kLeastNormal));
  return hn::And(hn::And(subnormal, hn::Ne(distance, hn::Zero(d))),
                 hn::Gt(hn::Abs(dy), hn::Set(d, kMostHarmlessDy)));
}
inline bool loses(float dy, float distance, float rstd) {
  return distance != 0.0f && std::abs(distance * rstd) < kLeastNormal &&
         std::abs(dy) > kMostHarmlessDy;
}

// One of `count` terms does.
template <class T>
HWY_INLINE bool any_loses(const T* dy_row, const T* x_row, size_t count, float mean, float rstd) {
  const TagF32 d;
  auto found = hn::Ne(hn::Zero(d), hn::Zero(d));
  for (size_t at = 0; at < count; at += kStrip<T>) {
    const size_t rest = count - at;
    const bool whole = rest >= kStrip<T>;
    const Strip<T> dy = whole ? load_strip(dy_row + at) : load_strip_first(dy_row + at, rest);
    const Strip<T> x = whole ? load_strip(x_row + at) : load_strip_first(x_row + at, rest);
    for (size_t i = 0; i < kStripVectors<T>; ++i) {
      const F32x16 distance = sub(x.v[i], set16(mean));
      for (size_t part = 0; part < kParts; ++part) {
        found = hn::Or(found, loses(dy.v[i].part[part], distance.part[part], hn::Set(d, rstd)));
      }
    }
  }
  return !hn::AllFalse(d, found);
}

// One row's columns [begin, begin + count) of a tile: its operands as they were before the second
// visit, which may write dx over them, and the chains of dgamma before it.
template <class T>
class ExactTile {
 public:
  ExactTile(const Rows<T>& rows, const RowForms& forms, size_t r, int64_t begin, int64_t count)
      : rows_(rows), forms_(forms), r_(r), begin_(begin), count_(static_cast<size_t>(count)) {
    copy(forms.dy, rows.dy[r], dy_);
    copy(forms.x, rows.x[r], x_);
  }
  bool any_term_loses() const { return any_loses(dy_, x_, count_, rows_.mean[r_], rows_.rstd[r_]); }
  void keep(const float* chain) {
    for (size_t c = 0; c < count_; ++c) before_[c] = chain[place(c)];
  }

  // The terms of dgamma that lose something, in FP64 and rounded once, instead of those that the
  // visit added.
  void write_terms(float* chain) const {
    const auto mean = static_cast<double>(rows_.mean[r_]);
    const auto rstd = static_cast<double>(rows_.rstd[r_]);
    for (size_t c = 0; c < count_; ++c) {
      const float dy = to_float(dy_[c]);
      const float x = to_float(x_[c]);
      if (!loses(dy, x - rows_.mean[r_], rows_.rstd[r_])) continue;
      const double xhat = (static_cast<double>(x) - mean) * rstd;
      chain[place(c)] = before_[c] + static_cast<float>(static_cast<double>(dy) * xhat);
    }
  }

  void write_dx(const float* gamma, aclDataType dtype) const {
    visit_float(dtype, [&](auto type) {
      using Out = decltype(type);
      Out dx[kLongTile];
      for (size_t c = 0; c < count_; ++c) dx[c] = from_float<Out>(dx_at(c, gamma));
      auto* row = static_cast<Out*>(rows_.dx[r_]);
      if (forms_.dx.dense()) {
        std::copy_n(dx, count_, row + begin_);
      } else {
        forms_.dx.copy_out(dx, begin_, static_cast<int64_t>(count_), row);
      }
    });
  }

 private:
  void copy(const Segments& form, const T* row, T* to) const {
    if (form.dense()) {
      std::copy_n(row + begin_, count_, to);
    } else {
      form.copy_in(row, begin_, static_cast<int64_t>(count_), to);
    }
  }
  // Where the chain of dgamma of a column stands, that of dbeta sixteen further on.
  static size_t place(size_t col) {
    const size_t in_strip = strip_place<T>(col % kStrip<T>);
    return 2 * (col / kStrip<T> * kStrip<T> + in_strip / kLanes * kLanes) + in_strip % kLanes;
  }
  float dx_at(size_t col, const float* gamma) const {
    const auto rstd = static_cast<double>(rows_.rstd[r_]);
    const Means& means = rows_.exact_means[r_];
    const double g = static_cast<double>(to_float(dy_[col])) *
                     static_cast<double>(gamma[static_cast<size_t>(begin_) + strip_place<T>(col)]);
    const double xhat =
        (static_cast<double>(to_float(x_[col])) - static_cast<double>(rows_.mean[r_])) * rstd;
    return static_cast<float>(rstd * (g - means.g - xhat * means.gx));
  }

  const Rows<T>& rows_;
  const RowForms& forms_;
  size_t r_;
  int64_t begin_;
  size_t count_;
  T dy_[kLongTile];
  T x_[kLongTile];
  float before_[kLongTile];
};

// The second visit of columns [begin, begin + count) where some rows are `rows.exact` or
// `near_zero` (rows_near_zero()): visit(first, last) does rows [first, last). Row follows row in
// every chain as if all were visited at once.
template <class T, class Visit>
HWY_NOINLINE void visit_with_exact_rows(const Rows<T>& rows, uint32_t near_zero,
                                        const RowForms& forms, const float* gamma,
                                        aclDataType dx_dtype, int64_t begin, int64_t count,
                                        float* chain, const Visit& visit) {
  size_t done = 0;
  for (size_t r = 0; r < rows.count; ++r) {
    const bool exact_dx = (rows.exact >> r & 1u) != 0;
    if (!exact_dx && (near_zero >> r & 1u) == 0) continue;
    ExactTile<T> tile(rows, forms, r, begin, count);
    const bool exact_terms = (near_zero >> r & 1u) != 0 && tile.any_term_loses();
    if (!exact_dx && !exact_terms) continue;
    if (done < r) visit(done, r);
    if (exact_terms) tile.keep(chain);
    visit(r, r + 1);
    if (exact_terms) tile.write_terms(chain);
    if (exact_dx) tile.write_dx(gamma, dx_dtype);
    done = r + 1;
  }
  if (done < rows.count) visit(done, rows.count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

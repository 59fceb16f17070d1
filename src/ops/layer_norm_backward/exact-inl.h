// SPDX-License-Identifier: Apache-2.0
// Where FP32's normal numbers end: the rows in which what an intermediate loses there, up to 2^-150
// (half of a subnormal's unit), is multiplied by a large factor afterwards. They are computed again
// in FP64. Which they are follows from the row's numbers alone (ordinary-inl.h).
//
// dx: every rounding of g, mean_g, mean_gx and of the terms between may lose 2^-150, times rstd,
// and those of mean_gx times xhat: there it is also what g has lost, times its own xhat, and what
// the sum over x - mean has, times rstd. The promise allows rstd times 2^-21 of
//   mean|g| + |xhat| * mean|g * xhat|
// so a row is ordinary where |mean_g| and |mean_gx| are large. Where one is small its elements
// decide. (No row is asked whether an |xhat| is over 2^29, beside which a g that has lost something
// would show in a mean_gx of 2^-100: rstd would have to be that of other numbers.) What xhat itself
// loses never matters: 2^-150 * mean|g * xhat| is under 2^-22 * mean|g|, because an xhat over 2^128
// overflows.
//
// FP32 ends at the other side, too: g * (x - mean) may be infinite where g * xhat is not, and of an
// infinite rstd, which multiplies their sum, no term is 0. Rows with means that are no numbers take
// FP64 as well.
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

#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/exact.h"
#include "ops/layer_norm_backward/gamma-inl.h"
#include "ops/layer_norm_backward/gather-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/ordinary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

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

// No magnitude of a row, which has no NaN, is larger.
template <class T>
HWY_INLINE bool are_at_most(const T* row, size_t count, float most) {
  const TagF32 d;
  F32x16 largest = zero16();
  for (size_t at = 0; at < count; at += kStrip<T>) {
    const size_t rest = count - at;
    const Strip<T> strip =
        rest >= kStrip<T> ? load_strip(row + at) : load_strip_first(row + at, rest);
    for (size_t i = 0; i < kStripVectors<T>; ++i) largest = max16(largest, abs16(strip.v[i]));
  }
  bool all = true;
  for (size_t part = 0; part < kParts; ++part) {
    all = all && hn::AllTrue(d, hn::Le(largest.part[part], hn::Set(d, most)));
  }
  return all;
}

template <class T, class Source>
HWY_INLINE Largest largest_in_row(const Rows<T>& rows, Source& source, size_t r,
                                  GammaChunks<T>& gamma, size_t cols) {
  const F32x16 mean = set16(rows.mean[r]);
  const F32x16 rstd = set16(rows.rstd[r]);
  F32x16 g = zero16(), xhat = zero16(), least_factor = zero16();
  for (size_t chunk = 0; chunk < cols; chunk += kChainColumns) {
    const size_t columns = std::min(kChainColumns, cols - chunk);
    const T* dy_chunk = source.dy(r, chunk, columns);
    const T* x_chunk = source.x(r, chunk, columns);
    const float* gamma_chunk = gamma.chunk(chunk, columns);
    for (size_t at = 0; at < columns; at += kStrip<T>) {
      const size_t rest = columns - at;
      const bool whole = rest >= kStrip<T>;
      const Strip<T> dy = whole ? load_strip(dy_chunk + at) : load_strip_first(dy_chunk + at, rest);
      const Strip<T> x = whole ? load_strip(x_chunk + at) : load_strip_first(x_chunk + at, rest);
      const Strip<T> factor = load_numbers<T>(gamma_chunk + at);
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
void exact_means(Rows<T>& rows, Source& source, size_t r, GammaChunks<T>& gamma, size_t cols) {
  const auto mean = static_cast<double>(rows.mean[r]);
  const auto rstd = static_cast<double>(rows.rstd[r]);
  double sum_g = 0.0, sum_gx = 0.0;
  for (size_t chunk = 0; chunk < cols; chunk += kChainColumns) {
    const size_t columns = std::min(kChainColumns, cols - chunk);
    const T* dy = source.dy(r, chunk, columns);
    const T* x = source.x(r, chunk, columns);
    const float* factors = gamma.chunk(chunk, columns);
    for (size_t c = 0; c < columns; ++c) {
      const double g =
          static_cast<double>(to_float(dy[c])) * static_cast<double>(factors[strip_place<T>(c)]);
      sum_g += g;
      sum_gx += g * ((static_cast<double>(to_float(x[c])) - mean) * rstd);
    }
  }
  rows.exact |= 1u << r;
  rows.exact_means[r] = {sum_g / static_cast<double>(cols), sum_gx / static_cast<double>(cols)};
}

// Whether all dx of a row are NaN, because one of its operands is.
template <class T, class Source>
bool has_nan(const Rows<T>& rows, Source& source, size_t r, GammaChunks<T>& gamma, size_t cols) {
  if (std::isnan(rows.mean[r]) || std::isnan(rows.rstd[r])) return true;
  for (size_t chunk = 0; chunk < cols; chunk += kChainColumns) {
    const size_t columns = std::min(kChainColumns, cols - chunk);
    const T* dy = source.dy(r, chunk, columns);
    const T* x = source.x(r, chunk, columns);
    const float* factors = gamma.chunk(chunk, columns);
    for (size_t c = 0; c < columns; ++c) {
      const bool of_row = std::isnan(to_float(dy[c])) || std::isnan(to_float(x[c]));
      if (of_row || std::isnan(factors[strip_place<T>(c)])) return true;
    }
  }
  return false;
}

// Padding, which is not rare: rows of zeros. Where all of x is its mean of 0, or every dy is 0, no
// term loses anything, be it of dgamma or, beside a mean_g that is large and finite, or 0 as well,
// of dx. The means say that there is no NaN; what bounds rstd, x and mean says that no xhat is
// infinite.
template <class T, class Source>
bool is_padding(const Rows<T>& rows, Source& source, size_t r, size_t cols) {
  const float g = std::abs(rows.mean_g[r]), mean = std::abs(rows.mean[r]);
  const bool no_x = g >= kLeastMeanG && std::isfinite(g) && mean == 0.0f;
  const bool no_dy = g == 0.0f && mean <= kMostOfPadding;
  const float rstd = std::abs(rows.rstd[r]);
  const bool usual = rstd >= kLeastUsualRstd && rstd <= kMostOfPadding;
  if (rows.mean_gx[r] != 0.0f || !usual || !(no_x || no_dy)) return false;
  for (size_t chunk = 0; chunk < cols; chunk += kChainColumns) {
    const size_t columns = std::min(kChainColumns, cols - chunk);
    if (no_dy && !are_at_most(source.dy(r, chunk, columns), columns, 0.0f)) return false;
    const float most = no_x ? 0.0f : kMostOfPadding;
    if (!are_at_most(source.x(r, chunk, columns), columns, most)) return false;
  }
  return true;
}

// After the first visit: marks those of the unusual_rows() that are padding and those whose dx is
// to be computed in FP64, and finds the means of the latter.
template <class T, class Source>
void mark_exact_rows(Rows<T>& rows, uint32_t unusual, Source& source, GammaChunks<T>& gamma,
                     size_t cols) {
  rows.ordinary = true;
  for (; unusual != 0; unusual &= unusual - 1) {
    const auto r = static_cast<size_t>(std::countr_zero(unusual));
    if (is_padding(rows, source, r, cols)) {
      rows.padding |= 1u << r;
      continue;
    }
    rows.ordinary = false;
    const float g = std::abs(rows.mean_g[r]);
    const float gx = std::abs(rows.mean_gx[r]);
    if (!std::isfinite(g) || !std::isfinite(gx)) {
      if (!has_nan(rows, source, r, gamma, cols)) exact_means(rows, source, r, gamma, cols);
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
HWY_NOINLINE void look_closer(const Job& job, Rows<T>& rows, uint32_t unusual) {
  Gathered<T> source(rows, job.forms);  // takes dense rows as they lie
  GammaChunks<T> gamma(job);
  mark_exact_rows(rows, unusual, source, gamma, static_cast<size_t>(job.problem.cols));
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

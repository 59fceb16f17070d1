// SPDX-License-Identifier: Apache-2.0
// A row's statistics in FP64, and the rows that are written in FP64 as well.
//
//   y = (x - mean) * rstd * gamma + beta
//
// In FP32 a mean that is subnormal loses 2^-150 (half of a subnormal's unit), times rstd * gamma,
// and a subnormal product (x - mean) * rstd as much, times gamma. The promise allows 2^-21 * (|x| +
// |mean|) * rstd * gamma, so neither matters where |mean| and |mean| * rstd are large, nor in an
// element that is far from the mean, or on it. A row with another element is computed in FP64 and
// rounded once.
#ifndef ACLGRAD_OPS_LAYER_NORM_STATISTICS_H_
#define ACLGRAD_OPS_LAYER_NORM_STATISTICS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/half.h"

namespace aclgrad::layer_norm {

// Mean of some elements, and the sum of their squared distances from it.
struct Moments {
  double mean, squares;
};

// The moments of a row, its panels joined in order: exact but for FP64 roundings.
class RowMoments {
 public:
  void add(const Moments& panel, int64_t columns) {
    const auto count = static_cast<double>(columns);
    const double total = count_ + count;
    const double apart = panel.mean - all_.mean;
    all_.mean += apart * (count / total);
    all_.squares += panel.squares + apart * apart * (count_ * count / total);
    count_ = total;
  }
  const Moments& all() const { return all_; }

 private:
  Moments all_{0.0, 0.0};
  double count_ = 0.0;
};

// What the FP32 sums of a row are good for: squares below 2^-150 count as nothing, so the sum of
// variance and eps has to stand well above.
inline constexpr double kLeastVariance = 0x1p-120;

// A negative eps that leaves less of the variance than this part leaves the errors of FP32 sums
// whole.
inline constexpr double kLittleLeft = 0.125;

// A mean under the square root of this part of the variance may be what is left of numbers of both
// signs: an FP64 sum of 65536 of them is exact to 2^-37 of their size, and an element near the mean
// wants 2^-21 of the mean itself.
inline constexpr double kLeftOver = 0x1p-40;

// The sum in two doubles, hi + lo, each step without a loss (Knuth's two-sum). Divided, not
// multiplied by the reciprocal: the mean of equal numbers is the number. A row is one of those of
// row.h.
template <class Row>
double exact_mean(typename Row::Argument x, int64_t cols) {
  double hi = 0.0, lo = 0.0;
  x.each_piece([&](const auto* piece, int64_t columns) {
    for (int64_t i = 0; i < columns; ++i) {
      const auto value = static_cast<double>(to_float(piece[i]));
      const double sum = hi + value;
      const double kept = sum - hi;
      lo += (hi - (sum - kept)) + (value - kept);
      hi = sum;
    }
  });
  if (std::isfinite(hi)) hi += lo;  // of Inf, lo is a NaN
  return hi / static_cast<double>(cols);
}

// In FP64, for the rows whose squares leave FP32, or fall below its normal numbers and are not
// outweighed by eps. Also where Inf or NaN makes its way.
template <class Row>
Moments wide_moments(typename Row::Argument x, int64_t cols) {
  Moments row{exact_mean<Row>(x, cols), 0.0};
  x.each_piece([&](const auto* piece, int64_t columns) {
    for (int64_t i = 0; i < columns; ++i) {
      const double apart = static_cast<double>(to_float(piece[i])) - row.mean;
      row.squares += apart * apart;
    }
  });
  return row;
}

// A row is ordinary when its variance (with eps) and |mean| lie between these numbers and their
// reciprocals, and the mean is no left-over: nothing above then asks for FP64 or a second look,
// whatever its elements are.
inline constexpr double kUsualVariance = 0x1p-100;
inline constexpr double kUsualMean = 0x1p-48;

// |gamma| and |beta| up to which an ordinary row's y is no NaN: by its variance, |xhat| is at most
// the root of the number of columns, unless eps is negative.
inline constexpr float kUsualWeight = 0x1p80f;

// A distance, mean or multiple of rstd from here on loses nothing that shows: 2^-150 is less than
// 2^-21 of it by far.
inline constexpr float kNear = 0x1p-100f;

// The least rstd that FP32 holds with all its digits. A variance leads below it only from numbers
// near 2^128, but an eps may be anything.
inline constexpr float kLeastRstd = 0x1p-126f;

// True where FP32 could lose what shows, whatever the row's elements.
inline bool is_near_zero(float mean, float rstd) {
  const float size = std::abs(mean);
  return (size < kNear) | (size * rstd < kNear) | (rstd < kLeastRstd);  // without branches
}

// What the elements of a row are normalised with in FP64, where they need it.
struct ExactStatistics {
  bool needed;
  double mean, rstd;
};

// The same with what other rows need.
struct Statistics {
  float mean, rstd;
  bool ordinary;
  ExactStatistics exact;
};

inline float exact_y(const ExactStatistics& row, float x, float gamma, float beta) {
  const double xhat = (static_cast<double>(x) - row.mean) * row.rstd;
  return static_cast<float>(static_cast<double>(gamma) * xhat + static_cast<double>(beta));
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_STATISTICS_H_

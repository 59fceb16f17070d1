// SPDX-License-Identifier: Apache-2.0
// The statistics of a row on a GPU from its moments, as on the CPU (job.h, find-inl.h): ordinary
// rows pay a few comparisons, of the others the elements are looked at again, and what has to be
// added in FP64 in their order is one thread's work.
#ifndef ACLGRAD_OPS_LAYER_NORM_ROW_STATISTICS_CUH_
#define ACLGRAD_OPS_LAYER_NORM_ROW_STATISTICS_CUH_

#include "ops/layer_norm/moments.cuh"
#include "ops/layer_norm/plan.h"

namespace aclgrad::layer_norm {

template <class T>
__device__ double exact_mean_of(const T* x, int64_t cols) {
  double hi = 0.0;
  double lo = 0.0;
  for (int64_t col = 0; col < cols; ++col) {
    const auto value = static_cast<double>(cuda::widen(x[col]));
    const double sum = hi + value;
    const double kept = sum - hi;
    lo += (hi - (sum - kept)) + (value - kept);
    hi = sum;
  }
  if (fabs(hi) <= 0x1.fffffffffffffp1023) hi += lo;  // of Inf, lo is a NaN
  return hi / static_cast<double>(cols);
}

template <class T>
__device__ Moments wide_moments_of(const T* x, int64_t cols) {
  Moments row{exact_mean_of(x, cols), 0.0};
  for (int64_t col = 0; col < cols; ++col) {
    const double apart = static_cast<double>(cuda::widen(x[col])) - row.mean;
    row.squares += apart * apart;
  }
  return row;
}

__device__ inline double from_first_lane(double value) { return __shfl_sync(kAllLanes, value, 0); }

// What the row is normalised with, for which FP32 may be too little. A warp calls it.
template <class T>
__device__ RowNumbers find_unusual(const T* x, int64_t cols, double reciprocal_cols, double eps,
                                   Moments row) {
  const bool first = cuda::lane_index() == 0;
  const auto count = static_cast<double>(cols);
  const double spread = row.squares * reciprocal_cols;
  double variance = spread + eps;
  const bool in_range = variance >= kLeastVariance && variance <= 0x1.fffffffffffffp1023;
  if (!in_range || variance < kLittleLeft * spread) {
    if (first) row = wide_moments_of(x, cols);
    row = {from_first_lane(row.mean), from_first_lane(row.squares)};
    variance = row.squares / count + eps;
  }
  if (row.mean * row.mean < kLeftOver * row.squares * reciprocal_cols) {
    row.mean = from_first_lane(first ? exact_mean_of(x, cols) : 0.0);
  }
  const double wide_rstd = 1.0 / sqrt(variance);
  RowNumbers out{static_cast<float>(row.mean), static_cast<float>(wide_rstd), 0, 0.0, 0.0};
  const float size = fabsf(out.mean);
  if (!(size < kNear || size * out.rstd < kNear || out.rstd < kLeastRstd)) return out;
  bool look = (row.mean != 0.0 && fabs(row.mean) < static_cast<double>(kNear)) ||
              wide_rstd < static_cast<double>(kLeastRstd);
  if (!look) {
    const double widest = 1.0 / wide_rstd;
    const double scaled = 1.0 < widest ? widest : 1.0;
    const auto reach = static_cast<float>(static_cast<double>(kNear) * scaled);
    bool near = false;
    for (int64_t col = cuda::lane_index(); col < cols; col += kWarpLanes) {
      const float apart = cuda::widen(x[col]) - out.mean;
      near = near || (apart != 0.0f && fabsf(apart) < reach);
    }
    look = __any_sync(kAllLanes, near ? 1 : 0) != 0;
  }
  if (look) {
    out.exact = 1;
    out.exact_mean = from_first_lane(first ? exact_mean_of(x, cols) : 0.0);
    out.exact_rstd = wide_rstd;
  }
  return out;
}

template <class T>
__device__ RowNumbers row_numbers(const T* x, int64_t cols, double reciprocal_cols, double eps,
                                  const Moments& row) {
  const double spread = row.squares * reciprocal_cols;
  const double variance = spread + eps;
  const double size = fabs(row.mean);
  const bool ordinary = !(eps < 0.0) && variance >= kUsualVariance &&
                        variance <= 1.0 / kUsualVariance && size >= kUsualMean &&
                        size <= 1.0 / kUsualMean && row.mean * row.mean >= kLeftOver * spread;
  if (!ordinary) return find_unusual(x, cols, reciprocal_cols, eps, row);
  const double rstd = 1.0 / sqrt(variance);
  return {static_cast<float>(row.mean), static_cast<float>(rstd), 0, 0.0, 0.0};
}

__device__ inline float y_of(const RowNumbers& row, float x, float gamma, float beta) {
  if (row.exact != 0) {
    const double xhat = (static_cast<double>(x) - row.exact_mean) * row.exact_rstd;
    return static_cast<float>(static_cast<double>(gamma) * xhat + static_cast<double>(beta));
  }
  return fmaf((x - row.mean) * row.rstd, gamma, beta);
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_ROW_STATISTICS_CUH_

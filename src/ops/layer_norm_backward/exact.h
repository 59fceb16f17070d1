// SPDX-License-Identifier: Apache-2.0
// From where on, and up to where, the ends of FP32's range cannot matter (exact-inl.h has the
// reasons): what CPU and GPU compare the numbers of a row with.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_EXACT_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_EXACT_H_

namespace aclgrad::layer_norm_backward {

// |mean_g|, or the largest |g| in rows of up to 2^40 columns, from which the losses that only rstd
// multiplies are nothing: 2^-21 * 2^-100 and 2^-21 * 2^-60 / 2^40 are 2^-121.
inline constexpr float kLeastMeanG = 0x1p-100f;
inline constexpr float kLeastG = 0x1p-60f;

// |mean_gx| from which what it loses is nothing beside it; where it is smaller, |xhat| up to which
// its losses, 2^-150 times an xhat or two of them, are nothing beside those 2^-121. Both hold for
// an |rstd| of up to 1: one over it multiplies what the sum of g * (x - mean) has lost.
inline constexpr float kLeastMeanGx = 0x1p-100f;
inline constexpr float kMostXhat = 0x1p14f;
constexpr float least_mean_gx(float rstd) {
  const float magnitude = rstd < 0.0f ? -rstd : rstd;
  return magnitude > 1.0f ? kLeastMeanGx * magnitude : kLeastMeanGx;
}
constexpr float most_xhat(float rstd) {
  const float magnitude = rstd < 0.0f ? -rstd : rstd;
  return magnitude > 1.0f ? kMostXhat / magnitude : kMostXhat;
}

// |rstd| up to which an infinite xhat does not meet an infinite g - mean_g: that one takes a |g| of
// 2^127, hence, unless their product shows in the sums, |x - mean| under 2.
inline constexpr float kMostRstd = 0x1p126f;

// |mean * rstd| from which a subnormal xhat has lost nothing beside it.
inline constexpr float kLeastMean = 0x1p-100f;

// Distances from a mean of 0 under which an xhat may be subnormal, unless |rstd| is not even usual.
inline constexpr float kNearMean = 0x1p-100f;
inline constexpr float kLeastUsualRstd = 0x1p-25f;

// |x|, |mean| and |rstd| up to which (x - mean) * rstd is finite by far.
inline constexpr float kMostOfPadding = 0x1p62f;

// A term of dgamma loses more than the promise allows where |xhat| is under the least normal number
// and |dy| is over kMostHarmlessDy.
inline constexpr float kLeastNormal = 0x1p-126f;
inline constexpr float kMostHarmlessDy = 1.0f;

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_EXACT_H_

// SPDX-License-Identifier: Apache-2.0
// The sums of a row's g and g * (x - mean) on a GPU, in the order of the CPU's (row_sums-inl.h): a
// column's chain depends on its place among 64, so that a thread which takes the same four of every
// 64 columns adds four chains, in order. A team of sixteen threads takes up to 1024 columns.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_SUMS_CUH_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_SUMS_CUH_

#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vec.cuh"
#include "ops/layer_norm_backward/exact.h"
#include "ops/layer_norm_backward/plan.h"
#include "ops/layer_norm_backward/tree.h"

namespace aclgrad::layer_norm_backward {

using cuda::kAllLanes;

// Columns that a team takes at a time, and a thread of it.
inline constexpr int kRoundCols = static_cast<int>(kRowChains * kLanes);
inline constexpr int kOwnCols = kRoundCols / kTeam;

// Columns of the CPU's strips (kernels/cpu/strips-inl.h); rows of up to two of them are summed
// vector after vector, without chains.
template <class T>
inline constexpr int kStripCols = static_cast<int>(kStrip<T>);
// BF16's even columns stand in one vector, the odd ones in the next.
template <class T>
inline constexpr bool kInterleaved = std::is_same_v<T, bfloat16_t>;

// The chains of one thread: of g and of g * (x - mean), a column each.
struct Chains {
  float sum[2][kOwnCols];
};

// Adds the thread's columns of `count`. load(col, dy, x, gamma) gives those from `col` on; no
// column from `count` on counts for anything. kUnroll: accesses to have under way.
template <int kUnroll, class Load>
__device__ void add_columns(int count, float mean, Load&& load, Chains& chains) {
#pragma unroll
  for (int i = 0; i < kOwnCols; ++i) chains.sum[0][i] = chains.sum[1][i] = 0.0f;
  const int member = cuda::lane_index() % kTeam;
  const auto add = [&](int col, int own) {
    float dy[kOwnCols], x[kOwnCols], gamma[kOwnCols];
    load(col, dy, x, gamma);
#pragma unroll
    for (int i = 0; i < kOwnCols; ++i) {
      const float g = i < own ? dy[i] * gamma[i] : 0.0f;
      const float distance = i < own ? x[i] - mean : 0.0f;
      chains.sum[0][i] += g;
      chains.sum[1][i] = fmaf(g, distance, chains.sum[1][i]);
    }
  };
  int col = member * kOwnCols;
#pragma unroll kUnroll
  for (; col + kOwnCols <= count; col += kRoundCols) add(col, kOwnCols);
  if (col < count) add(col, count - col);
}

// Two of the sixteen lanes' sums, of g or of g * (x - mean).
struct LaneSums {
  float lane[2];
};

// Where a thread's LaneSums belong among the kChunkSums of a chunk: lanes of g, then
// of g * (x - mean).
template <class T>
__device__ int lane_place() {
  const int member = cuda::lane_index() % kTeam;
  const int lanes = static_cast<int>(kLanes);
  if constexpr (kInterleaved<T>) {
    return member / 8 * lanes + member % 8 * 2;
  } else {
    return (member >> 2 & 1) * lanes + member % 4 * 4 + member / 8 * 2;
  }
}

// Joins the four vectors of 64 columns in pairs. All threads of the warp call it, and what follows.
template <class T>
__device__ LaneSums join_vectors(const Chains& chains) {
  const int member = cuda::lane_index() % kTeam;
  LaneSums out;
  if constexpr (kInterleaved<T>) {
    const bool second = member >= 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float g = chains.sum[0][2 * i] + chains.sum[0][2 * i + 1];
      const float gx = chains.sum[1][2 * i] + chains.sum[1][2 * i + 1];
      out.lane[i] = (second ? gx : g) + __shfl_xor_sync(kAllLanes, second ? g : gx, 8);
    }
  } else {
    const bool second = (member & 4) != 0;
    float pairs[kOwnCols];
#pragma unroll
    for (int i = 0; i < kOwnCols; ++i) {
      const float g = chains.sum[0][i];
      const float gx = chains.sum[1][i];
      pairs[i] = (second ? gx : g) + __shfl_xor_sync(kAllLanes, second ? g : gx, 4);
    }
    const bool upper = member >= 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, upper ? pairs[i] : pairs[i + 2], 8);
      out.lane[i] = (upper ? pairs[i + 2] : pairs[i]) + other;
    }
  }
  return out;
}

// The same for a short row of sixteen-bit elements and two strips: one vector after the other.
template <class T>
__device__ LaneSums join_vectors_in_order(const Chains& chains) {
  const int lane = cuda::lane_index();
  const int member = lane % kTeam;
  const int team = lane - member;
  LaneSums out;
  if constexpr (kInterleaved<T>) {
    const int of_first = team + member % 8;
    const int of_last = of_first + 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sums[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float joined = chains.sum[k][2 * i] + chains.sum[k][2 * i + 1];
        sums[k] = __shfl_sync(kAllLanes, joined, of_first);
        sums[k] += __shfl_sync(kAllLanes, chains.sum[k][2 * i], of_last);
        sums[k] += __shfl_sync(kAllLanes, chains.sum[k][2 * i + 1], of_last);
      }
      out.lane[i] = member >= 8 ? sums[1] : sums[0];
    }
  } else {
    float sums[2][kOwnCols];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int i = 0; i < kOwnCols; ++i) {
        sums[k][i] = __shfl_sync(kAllLanes, chains.sum[k][i], team + member % 4);
#pragma unroll
        for (int vector = 1; vector < 4; ++vector) {
          sums[k][i] += __shfl_sync(kAllLanes, chains.sum[k][i], team + 4 * vector + member % 4);
        }
      }
    }
    const bool second = (member & 4) != 0;
    const bool upper = member >= 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float g = upper ? sums[0][i + 2] : sums[0][i];
      const float gx = upper ? sums[1][i + 2] : sums[1][i];
      out.lane[i] = second ? gx : g;
    }
  }
  return out;
}

template <class T>
__device__ LaneSums join_vectors(const Chains& chains, int64_t cols) {
  if (sizeof(T) == 2 && cols <= 2 * kStripCols<T> && cols > kStripCols<T>) {
    return join_vectors_in_order<T>(chains);
  }
  return join_vectors<T>(chains);
}

// Of a row: sums of g and g * (x - mean), or means of g and g * xhat before they are rounded.
struct Sums {
  double g, gx;
};
__device__ inline Sums means_of(const Sums& sums, float rstd, double reciprocal_cols) {
  return {sums.g * reciprocal_cols, mean_gx_of(sums.gx, rstd, reciprocal_cols)};
}

// Of a row of one chunk: sixteen lanes in FP32. Every thread of the team has them.
template <class T>
__device__ Sums join_lanes(const LaneSums& sums) {
  float lane[2] = {sums.lane[0], sums.lane[1]};
  constexpr int kBits[3] = {kInterleaved<T> ? 4 : 2, kInterleaved<T> ? 2 : 1,
                            kInterleaved<T> ? 1 : 8};
#pragma unroll
  for (const int bit : kBits) {
    for (float& each : lane) each += __shfl_xor_sync(kAllLanes, each, bit);
  }
  const float own = lane[0] + lane[1];
  constexpr int kOther = kInterleaved<T> ? 8 : 4;
  const float other = __shfl_xor_sync(kAllLanes, own, kOther);
  const bool second = (cuda::lane_index() & kOther) != 0;
  // 0 makes +0 of -0: a chain of underflowing products may be that.
  return {static_cast<double>(second ? other : own) + 0.0,
          static_cast<double>(second ? own : other) + 0.0};
}

// Of a row of several chunks, from their kChunkSums: lane by lane in FP64, by a warp. Wide rows are
// summed panel by panel.
__device__ inline Sums join_chunks(const float* lane_sums, int64_t chunks, int64_t panel_chunks) {
  const int lane = cuda::lane_index();
  double all = 0.0;
  double panel = 0.0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    panel += static_cast<double>(lane_sums[chunk * kChunkSums + lane]);
    if (chunk + 1 < chunks && (chunk + 1) % panel_chunks != 0) continue;
    for (int bit = static_cast<int>(kLanes) / 2; bit > 0; bit /= 2) {
      panel += __shfl_xor_sync(kAllLanes, panel, bit);
    }
    all = chunks > panel_chunks ? all + panel : panel;
    panel = 0.0;
  }
  return {__shfl_sync(kAllLanes, all, 0), __shfl_sync(kAllLanes, all, static_cast<int>(kLanes))};
}

constexpr float kMostFinite = 0x1.fffffep127f;

// Whether a closer look at the row's elements decides if its dx takes FP64.
__device__ inline bool is_suspect(float mean_g, float mean_gx, float rstd) {
  const float g = fabsf(mean_g);
  const float gx = fabsf(mean_gx);
  return !(g >= kLeastMeanG && g <= kMostFinite && gx >= least_mean_gx(rstd) && gx <= kMostFinite);
}

// The largest magnitudes in a row; `factor`: of the smaller one of dy and gamma. `nan`: 1 where an
// operand is one, as all dx are then.
struct Largest {
  float g = 0.0f, xhat = 0.0f, factor = 0.0f, nan = 0.0f;

  __device__ void look(float dy, float x, float gamma, float mean, float rstd) {
    g = fmaxf(g, fabsf(dy * gamma));
    xhat = fmaxf(xhat, fabsf((x - mean) * rstd));
    factor = fmaxf(factor, fminf(fabsf(dy), fabsf(gamma)));
    if (dy != dy || x != x || gamma != gamma || mean != mean || rstd != rstd) nan = 1.0f;
  }
  __device__ void take(const Largest& other) {
    g = fmaxf(g, other.g);
    xhat = fmaxf(xhat, other.xhat);
    factor = fmaxf(factor, other.factor);
    nan = fmaxf(nan, other.nan);
  }
  // Of `lanes` threads.
  __device__ void join(int lanes) {
    for (int bit = lanes / 2; bit > 0; bit /= 2) {
      take({__shfl_xor_sync(kAllLanes, g, bit), __shfl_xor_sync(kAllLanes, xhat, bit),
            __shfl_xor_sync(kAllLanes, factor, bit), __shfl_xor_sync(kAllLanes, nan, bit)});
    }
  }
  // dx of such a row takes FP64.
  __device__ bool decides(float mean_g, float mean_gx, float rstd) const {
    const float gx = fabsf(mean_gx);
    if (!(gx <= kMostFinite && fabsf(mean_g) <= kMostFinite)) return nan == 0.0f;
    if (factor == 0.0f && xhat <= kMostFinite) return false;
    const bool plain = (fabsf(mean_g) >= kLeastMeanG || g >= kLeastG) &&
                       (gx >= least_mean_gx(rstd) || xhat <= most_xhat(rstd));
    return !plain;
  }
};

// The FP64 means of such a row, by one thread: column after column. load(col, dy, x, gamma) gives
// one column.
template <class Load>
__device__ Sums exact_means(int64_t cols, float mean, float rstd, Load&& load) {
  Sums sums{0.0, 0.0};
  for (int64_t col = 0; col < cols; ++col) {
    float dy, x, gamma;
    load(col, dy, x, gamma);
    const double g = static_cast<double>(dy) * static_cast<double>(gamma);
    sums.g += g;
    sums.gx +=
        g * ((static_cast<double>(x) - static_cast<double>(mean)) * static_cast<double>(rstd));
  }
  const auto count = static_cast<double>(cols);
  return {sums.g / count, sums.gx / count};
}

// Whether a term of dgamma of this row may lose what its dy makes large.
template <class T>
__device__ bool is_near_zero(float mean, float rstd) {
  if (!(fabsf(mean * rstd) < kLeastMean)) return false;
  return !(std::is_same_v<T, float16_t> && mean == 0.0f && fabsf(rstd) > kLeastUsualRstd);
}

// Adds the terms of one element to its column's chains. `near_zero`: see is_near_zero().
__device__ inline void add_terms(float dy, float x, float mean, float rstd, bool near_zero,
                                 float& dgamma, float& dbeta) {
  const float apart = x - mean;
  const float xhat = apart * rstd;
  if (near_zero && apart != 0.0f && fabsf(xhat) < kLeastNormal && fabsf(dy) > kMostHarmlessDy) {
    const double exact =
        (static_cast<double>(x) - static_cast<double>(mean)) * static_cast<double>(rstd);
    dgamma += static_cast<float>(static_cast<double>(dy) * exact);
  } else {
    dgamma = fmaf(dy, xhat, dgamma);
  }
  dbeta += dy;
}

__device__ inline float dx_of(float dy, float x, float gamma, float mean, float rstd, float mean_g,
                              float mean_gx) {
  const float xhat = (x - mean) * rstd;
  return fmaf(-xhat, mean_gx, fmaf(dy, gamma, -mean_g)) * rstd;
}
__device__ inline float exact_dx_of(float dy, float x, float gamma, float mean, float rstd,
                                    const Sums& means) {
  const auto wide_rstd = static_cast<double>(rstd);
  const double g = static_cast<double>(dy) * static_cast<double>(gamma);
  const double xhat = (static_cast<double>(x) - static_cast<double>(mean)) * wide_rstd;
  return static_cast<float>(wide_rstd * (g - means.g - xhat * means.gx));
}

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_SUMS_CUH_

// SPDX-License-Identifier: Apache-2.0
// Up to sixteen rows, and their first visit: sum_rows() along the rows.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

inline constexpr size_t kRows = static_cast<size_t>(kRowBlock);

// Columns visited for all rows of a group before the next ones: 4 KiB of chains.
inline constexpr int64_t kTile = 512;

// Columns that one round of the four chains of a row covers: four vectors.
inline constexpr size_t kRound = kRowChains * kLanes;

// Columns after which the chains are full.
inline constexpr size_t kChainColumns = kRowChainElements;

// Means of g and g * xhat over a row.
struct Means {
  double g, gx;
};

// Bytes from a row to the one that the next call visits, for prefetching.
struct Ahead {
  intptr_t dy = 0, x = 0;
  // Both visits ask for its lines, and to L2; else the second one alone, and to L1.
  bool twice = true;
};

// Up to sixteen rows and what each needs: dx = rstd * ((g - mean_g) - xhat * mean_gx).
template <class T>
struct Rows {
  size_t count = 0;
  const T* dy[kRows];
  const T* x[kRows];
  void* dx[kRows];
  alignas(64) float mean[kRows] = {};
  alignas(64) float rstd[kRows] = {};
  alignas(64) float mean_g[kRows] = {};
  alignas(64) float mean_gx[kRows] = {};
  bool ordinary = false;  // all_ordinary() (exact-inl.h)
  uint32_t exact = 0;     // bit r: the dx of row r takes FP64 (exact-inl.h), from these means
  Means exact_means[kRows];
  Ahead ahead;
};

// False when dx may hold a NaN. A NaN or an infinity among a row's g and xhat shows in its sums
// (Inf * 0 is NaN there); from finite ones only rstd = 0 makes a NaN, when the rest overflows.
template <class T>
HWY_INLINE bool dx_has_no_nan(const Rows<T>& rows) {
  for (size_t r = 0; r < rows.count; r += kPartLanes) {
    const TagF32 d;
    const auto here = hn::FirstN(d, rows.count - r);
    const VecF32 rstd = hn::Load(d, rows.rstd + r);
    const auto usual = hn::And(hn::IsFinite(hn::Load(d, rows.mean_g + r)),
                               hn::IsFinite(hn::Load(d, rows.mean_gx + r)));
    const auto invertible = hn::AndNot(hn::Eq(rstd, hn::Zero(d)), hn::IsFinite(rstd));
    if (!hn::AllTrue(d, hn::Or(hn::And(usual, invertible), hn::Not(here)))) return false;
  }
  return true;
}

// Asks for the lines of the next rows. A core that drops prefetches is asked by both visits, but
// for long rows where L2 is small (slab()): the second one catches what the first one lost
// (8192x4096 on one core of Zen 4: 24.8 ms with the second visit's alone, 19.0 ms with both). Where
// they wait instead they belong to the second visit, for the first one's loads come from L2 or
// beyond (f32 8192x4096 on two cores of Granite Rapids: 14.9 ms with both, 13.1 with the second
// visit's alone, 12.6 into L1). Only 16-bit rows that stay in L1, which arithmetic holds up more
// than memory, want both there too (bf16 32768x768: 5.8 and 6.6 ms).
HWY_INLINE void first_prefetch(const void* dy, const void* x, const Ahead& ahead) {
  if (!ahead.twice) return;
  prefetch_to_l2(dy, ahead.dy);
  prefetch_to_l2(x, ahead.x);
}
template <bool kTwice>
HWY_INLINE void second_prefetch(const void* dy, const void* x, const Ahead& ahead) {
  if constexpr (kTwice) {
    prefetch_to_l2(dy, ahead.dy);
    prefetch_to_l2(x, ahead.x);
  } else {
    prefetch_to_l1(dy, ahead.dy);
    prefetch_to_l1(x, ahead.x);
  }
}

// Bytes by which the first visit calls the rest of a long row from L2, or what never came there, to
// L1 (8192x4096: 18.1 ms instead of 19.0). Shorter rows lose 5 % by it.
inline constexpr intptr_t kNear = 2048;

// Sums of g and g * xhat over up to kChainColumns columns of a row, lane by lane: vector i goes to
// chain i mod 4, and the chains are joined in pairs. kLong: of a row
// of more than kChainColumns.
template <bool kLong, class T>
HWY_INLINE void sum_chains(const T* dy, const T* x, const float* gamma, size_t count, float mean,
                           float rstd, Ahead ahead, F32x16 (&sums)[2]) {
  constexpr size_t kVectors = kStripVectors<T>;
  constexpr std::integral_constant<size_t, kVectors> all;
  const F32x16 mean16 = set16(mean);
  const F32x16 rstd16 = set16(rstd);
  F32x16 acc[kRowChains][2];
  for_constants<kRowChains>([&](auto c) HWY_ATTR { acc[c][0] = acc[c][1] = zero16(); });
  // `columns` of a strip, in some vectors, to the chains from `first` on, all of them constants.
  const auto add_terms = [&](const Strip<T>& dy_strip, const Strip<T>& x_strip, size_t here,
                             size_t columns, auto vectors, auto first) ACLGRAD_INLINED {
    const Strip<T> numbers = load_numbers<T>(gamma + here);
    Strip<T> g, xhat;
    for_constants<kVectors>([&](auto i) HWY_ATTR { g.v[i] = xhat.v[i] = zero16(); });
    for_constants<vectors>([&](auto i) HWY_ATTR {
      g.v[i] = mul(dy_strip.v[i], numbers.v[i]);
      xhat.v[i] = mul(sub(x_strip.v[i], mean16), rstd16);
    });
    if (columns < kStrip<T>) {
      g = keep_first_columns<T>(g, columns);
      xhat = keep_first_columns<T>(xhat, columns);
    }
    for_constants<vectors>([&](auto i) HWY_ATTR {
      F32x16(&chain)[2] = acc[first + i];
      chain[0] = add(chain[0], g.v[i]);
      chain[1] = fma(g.v[i], xhat.v[i], chain[1]);
    });
  };
  constexpr size_t kStrips = kRowChains / kVectors;
  size_t at = 0;
  for (; at + kRound <= count; at += kRound) {
    for_constants<kStrips>([&](auto s) ACLGRAD_INLINED {
      const size_t here = at + s * kStrip<T>;
      first_prefetch(dy + here, x + here, ahead);
      if constexpr (kLong) {
        prefetch_to_l1(dy + here, kNear);
        prefetch_to_l1(x + here, kNear);
      }
      add_terms(load_strip(dy + here), load_strip(x + here), here, kStrip<T>, all,
                std::integral_constant<size_t, s * kVectors>());
    });
  }
  // Less than a round is left.
  for_constants<kStrips>([&](auto s) ACLGRAD_INLINED {
    constexpr std::integral_constant<size_t, s * kVectors> first;
    const size_t here = at + s * kStrip<T>;
    if (here + kStrip<T> <= count) {
      add_terms(load_strip(dy + here), load_strip(x + here), here, kStrip<T>, all, first);
    } else if (here < count) {
      const size_t rest = count - here;
      with_vectors_of<T>(rest, [&](auto vectors) ACLGRAD_INLINED {
        add_terms(load_strip_first(dy + here, rest), load_strip_first(x + here, rest), here, rest,
                  vectors, first);
      });
    }
  });
  for_constants<2>([&](auto k) HWY_ATTR {
    sums[k] = add(add(acc[0][k], acc[1][k]), add(acc[2][k], acc[3][k]));
  });
}

// The same for rows of S strips, the last one of `last` columns in V vectors, all of it unrolled.
// gamma is in registers. Of one or two strips the terms themselves are summed, one after the other,
// of more the chains that they begin.
template <class T, size_t S, size_t V>
HWY_INLINE void sum_short(const T* dy, const T* x, const Strip<T> (&gamma)[S], size_t last,
                          float mean, float rstd, const Ahead& ahead, F32x16 (&sums)[2]) {
  constexpr size_t kVectors = kStripVectors<T>;
  constexpr size_t kAll = (S - 1) * kVectors + V;
  constexpr bool kInChains = S > 2;
  const F32x16 mean16 = set16(mean);
  const F32x16 rstd16 = set16(rstd);
  F32x16 g[kAll], xhat[kAll];
  for_constants<S>([&](auto s) ACLGRAD_INLINED {
    const size_t at = s * kStrip<T>;
    constexpr bool kWhole = s + 1 < S;
    if constexpr (kInChains) first_prefetch(dy + at, x + at, ahead);
    const Strip<T> dy_strip = kWhole ? load_strip(dy + at) : load_strip_first(dy + at, last);
    const Strip<T> x_strip = kWhole ? load_strip(x + at) : load_strip_first(x + at, last);
    Strip<T> g_strip, xhat_strip;
    for_constants<kVectors>([&](auto i) HWY_ATTR {
      g_strip.v[i] = mul(dy_strip.v[i], gamma[s].v[i]);
      xhat_strip.v[i] = mul(sub(x_strip.v[i], mean16), rstd16);
    });
    if constexpr (!kWhole) {
      g_strip = keep_first_columns<T>(g_strip, last);
      xhat_strip = keep_first_columns<T>(xhat_strip, last);
    }
    for_constants<(kWhole ? kVectors : V)>([&](auto i) HWY_ATTR {
      g[s * kVectors + i] = g_strip.v[i];
      xhat[s * kVectors + i] = xhat_strip.v[i];
    });
  });
  if constexpr (kInChains) {
    F32x16 chains[kRowChains][2];
    for_constants<kRowChains>([&](auto c) HWY_ATTR { chains[c][0] = chains[c][1] = zero16(); });
    for_constants<kAll>([&](auto i) HWY_ATTR {
      chains[i % kRowChains][0] = add(chains[i % kRowChains][0], g[i]);
      chains[i % kRowChains][1] = fma(g[i], xhat[i], chains[i % kRowChains][1]);
    });
    for_constants<2>([&](auto k) HWY_ATTR {
      sums[k] = add(add(chains[0][k], chains[1][k]), add(chains[2][k], chains[3][k]));
    });
  } else {
    sums[0] = g[0];
    sums[1] = mul(g[0], xhat[0]);
    for_constants<kAll - 1>([&](auto i) HWY_ATTR {
      sums[0] = add(sums[0], g[i + 1]);
      sums[1] = add(sums[1], mul(g[i + 1], xhat[i + 1]));
    });
  }
}

// Source of the first visit: dy(r, at, count) and x(r, at, count) are columns [at, at + count) of
// row r, at most kChainColumns of them, good until the next call. Here they are read where they
// lie; Gathered (gather-inl.h) is for rows that are not one run.
template <class T>
struct InPlace {
  const Rows<T>& rows;
  HWY_INLINE const T* dy(size_t r, size_t at, size_t) const { return rows.dy[r] + at; }
  HWY_INLINE const T* x(size_t r, size_t at, size_t) const { return rows.x[r] + at; }
};

// The same over columns [begin, begin + count) of row r, any number of them, the lanes joined.
template <class T, class Source>
void sum_row(Source& source, size_t r, const float* gamma, size_t begin, size_t count, float mean,
             float rstd, const Ahead& ahead, double (&sums)[2]) {
  alignas(64) double totals[2][kLanes] = {};
  for (size_t at = begin; at < begin + count; at += kChainColumns) {
    const size_t columns = std::min(kChainColumns, begin + count - at);
    F32x16 part[2];
    sum_chains<true>(source.dy(r, at, columns), source.x(r, at, columns), gamma + at, columns, mean,
                     rstd, ahead, part);
    add_to(totals[0], part[0]);
    add_to(totals[1], part[1]);
  }
  sums[0] = join16(totals[0]);
  sums[1] = join16(totals[1]);
}

// Rows whose two sums lane_sums() takes at once.
inline constexpr size_t kLaneRows = kLanes / 2;

// mean_g and mean_gx of every row from its sums lane by lane, which sum_one(r, sums) finds.
template <class T, class SumOne>
HWY_INLINE void join_rows(Rows<T>& rows, double reciprocal_cols, SumOne&& sum_one) {
  alignas(64) float lanes[kLanes * kLanes];
  for (size_t i = 0; i < kLanes; ++i) store_raw(zero16(), lanes + i * kLanes);
  alignas(64) double totals[kLanes];
  for (size_t first = 0; first < rows.count; first += kLaneRows) {
    const size_t count = std::min(kLaneRows, rows.count - first);
    for (size_t i = 0; i < count; ++i) {
      F32x16 sums[2];
      sum_one(first + i, sums);
      store_raw(sums[0], lanes + i * kLanes);
      store_raw(sums[1], lanes + (kLaneRows + i) * kLanes);
    }
    set_to(totals, lane_sums(lanes));
    for (size_t i = 0; i < count; ++i) {
      rows.mean_g[first + i] = static_cast<float>(totals[i] * reciprocal_cols);
      rows.mean_gx[first + i] = static_cast<float>(totals[kLaneRows + i] * reciprocal_cols);
    }
  }
}

// First visit: mean_g and mean_gx of every row. Rows of at most kChainColumns columns are summed
// over their lanes eight at a time.
template <class T, class Source>
void sum_rows(Rows<T>& rows, Source& source, const float* gamma, size_t cols,
              double reciprocal_cols) {
  if (cols > kChainColumns) {
    for (size_t r = 0; r < rows.count; ++r) {
      double sums[2];
      sum_row<T>(source, r, gamma, 0, cols, rows.mean[r], rows.rstd[r], rows.ahead, sums);
      rows.mean_g[r] = static_cast<float>(sums[0] * reciprocal_cols);
      rows.mean_gx[r] = static_cast<float>(sums[1] * reciprocal_cols);
    }
    return;
  }
  const Ahead ahead = rows.ahead;
  const auto sum_all = [&](auto&& sum_one) HWY_ATTR {
    join_rows(rows, reciprocal_cols, [&](size_t r, F32x16(&sums)[2]) HWY_ATTR {
      sum_one(source.dy(r, 0, cols), source.x(r, 0, cols), rows.mean[r], rows.rstd[r], sums);
    });
  };
  const auto sum_strips = [&](auto strips) HWY_ATTR {
    constexpr size_t kStrips = decltype(strips)::value;
    Strip<T> numbers[kStrips];
    for (size_t s = 0; s < kStrips; ++s) numbers[s] = load_numbers<T>(gamma + s * kStrip<T>);
    const size_t last = cols - (kStrips - 1) * kStrip<T>;
    with_vectors_of<T>(last, [&](auto vectors) HWY_ATTR {
      sum_all([&](const T* dy, const T* x, float mean, float rstd, F32x16(&sums)[2]) HWY_ATTR {
        sum_short<T, kStrips, vectors>(dy, x, numbers, last, mean, rstd, ahead, sums);
      });
    });
  };
  if (cols <= kStrip<T>) return sum_strips(std::integral_constant<size_t, 1>());
  if (cols <= 2 * kStrip<T>) return sum_strips(std::integral_constant<size_t, 2>());
  if (cols <= 3 * kStrip<T>) return sum_strips(std::integral_constant<size_t, 3>());
  if constexpr (kStripVectors<T> == 1) {
    if (cols <= 4 * kStrip<T>) return sum_strips(std::integral_constant<size_t, 4>());
  }
  sum_all([&](const T* dy, const T* x, float mean, float rstd, F32x16(&sums)[2])
              HWY_ATTR { sum_chains<false>(dy, x, gamma, cols, mean, rstd, ahead, sums); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

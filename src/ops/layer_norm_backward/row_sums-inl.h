// SPDX-License-Identifier: Apache-2.0
// The first visit: sums of g and g * xhat along the rows, and the means that they give.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_SUMS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_SUMS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_SUMS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/row_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Bytes by which the first visit calls the rest of a long row from L2, or what never came there, to
// L1 (8192x4096: 18.1 ms instead of 19.0). Shorter rows lose 5 % by it, and all where the core
// follows each load by itself (two cores of Zen 5, one thread, f32 8192x4096 2, 2048x12288 4 %).
inline constexpr intptr_t kNear = 2048;

// The sums of g and g * (x - mean) over up to kChainColumns columns of a row, lane by lane: vector
// i goes to chain i mod 4, and the chains are joined in pairs. rstd multiplies the mean of the
// latter once (mean_gx_of()) instead of every element.
template <class T>
struct RowChains {
  static constexpr size_t kVectors = kStripVectors<T>;
  static constexpr size_t kStrips = kRowChains / kVectors;  // of a round

  HWY_INLINE explicit RowChains(float row_mean) : mean(set16(row_mean)) {
    for_constants<kRowChains>([&](auto c) ACLGRAD_INLINED { acc[c][0] = acc[c][1] = zero16(); });
  }

  // `columns` of a strip, in some vectors, to the chains from `first` on, both constants.
  template <class Vectors, class First>
  HWY_INLINE void add_strip(const Strip<T>& dy, const Strip<T>& x, const float* gamma,
                            size_t columns, Vectors vectors, First first) {
    const Strip<T> numbers = load_numbers<T>(gamma);
    Strip<T> g, distance;
    for_constants<kVectors>([&](auto i) ACLGRAD_INLINED { g.v[i] = distance.v[i] = zero16(); });
    for_constants<vectors>([&](auto i) ACLGRAD_INLINED {
      g.v[i] = mul(dy.v[i], numbers.v[i]);
      distance.v[i] = sub(x.v[i], mean);
    });
    if (columns < kStrip<T>) {
      g = keep_first_columns<T>(g, columns);
      distance = keep_first_columns<T>(distance, columns);
    }
    for_constants<vectors>([&](auto i) ACLGRAD_INLINED {
      F32x16(&chain)[2] = acc[first + i];
      chain[0] = add(chain[0], g.v[i]);
      chain[1] = fma(g.v[i], distance.v[i], chain[1]);
    });
  }

  // Part by part: AVX2's registers do not hold all chains.
  template <class First>
  HWY_INLINE void add_whole_strip(const T* dy_row, const T* x_row, const float* gamma,
                                  First first) {
    for_parts([&](auto part) ACLGRAD_INLINED {
      const StripPart<T> dy = load_strip_part(dy_row, part);
      const StripPart<T> x = load_strip_part(x_row, part);
      for_constants<kVectors>([&](auto i) ACLGRAD_INLINED {
        const VecF32 g = hn::Mul(dy.v[i], load_part(gamma + i * kLanes + part * kPartLanes));
        // The parts of mean are alike: one register.
        const VecF32 distance = hn::Sub(x.v[i], mean.part[0]);
        F32x16(&chain)[2] = acc[first + i];
        chain[0].part[part] = hn::Add(chain[0].part[part], g);
        chain[1].part[part] = fused(g, distance, chain[1].part[part]);
      });
    });
  }

  // A round of columns; ask(dy, x) is called with every strip.
  template <class Ask>
  HWY_INLINE void add_round(const T* dy, const T* x, const float* gamma, Ask&& ask) {
    for_constants<kStrips>([&](auto s) ACLGRAD_INLINED {
      constexpr size_t at = s * kStrip<T>;
      ask(dy + at, x + at);
      add_whole_strip(dy + at, x + at, gamma + at, std::integral_constant<size_t, s * kVectors>());
    });
  }

  // The last columns, less than a round.
  HWY_INLINE void add_rest(const T* dy, const T* x, const float* gamma, size_t count, bool open) {
    for_constants<kStrips>([&](auto s) ACLGRAD_INLINED {
      constexpr std::integral_constant<size_t, s * kVectors> first;
      constexpr size_t at = s * kStrip<T>;
      if (at + kStrip<T> <= count) {
        add_strip(load_strip(dy + at), load_strip(x + at), gamma + at, kStrip<T>,
                  std::integral_constant<size_t, kVectors>(), first);
      } else if (at < count) {
        const size_t rest = count - at;
        with_vectors_of<T>(rest, [&](auto vectors) ACLGRAD_INLINED {
          add_strip(load_last_strip(dy + at, rest, open), load_last_strip(x + at, rest, open),
                    gamma + at, rest, vectors, first);
        });
      }
    });
  }

  HWY_INLINE void join(F32x16 (&sums)[2]) const {
    for_constants<2>([&](auto k) ACLGRAD_INLINED {
      sums[k] = add(add(acc[0][k], acc[1][k]), add(acc[2][k], acc[3][k]));
    });
  }

  F32x16 mean;
  F32x16 acc[kRowChains][2];
};

// The sums of a row of up to kChainColumns columns, or of so many of a longer one. kNearer: they
// are called to L1.
template <bool kNearer, class T>
HWY_INLINE void sum_chains(const T* dy, const T* x, const float* gamma, size_t count, float mean,
                           Ahead ahead, bool open, F32x16 (&sums)[2]) {
  RowChains<T> chains(mean);
  size_t at = 0;
  for (; at + kRound <= count; at += kRound) {
    chains.add_round(dy + at, x + at, gamma + at,
                     [&](const T* dy_at, const T* x_at) ACLGRAD_INLINED {
                       first_prefetch(dy_at, x_at, ahead);
                       if constexpr (kNearer) {
                         prefetch_to_l1(dy_at, kNear);
                         prefetch_to_l1(x_at, kNear);
                       }
                     });
  }
  chains.add_rest(dy + at, x + at, gamma + at, count - at, open);
  chains.join(sums);
}

// The same of rows of S strips, the last one of `last` columns in V vectors, all of it unrolled;
// kWhole: it is a whole one. gamma is in registers. Of one or two strips the terms themselves are
// summed, one after the other, of more the chains that they begin. Part by part, so that AVX2
// spills fewer of them.
template <class T, size_t S, size_t V, bool kWhole>
HWY_INLINE void sum_short(const T* dy, const T* x, const Strip<T> (&gamma)[S], size_t last,
                          float mean, const Ahead& ahead, bool open, F32x16 (&sums)[2]) {
  constexpr size_t kVectors = kStripVectors<T>;
  constexpr size_t kLastAt = (S - 1) * kStrip<T>;
  constexpr size_t kTerms = (S - 1) * kVectors + V;
  constexpr bool kInChains = S > 2;
  if constexpr (kInChains) {
    for_constants<S>([&](auto s) ACLGRAD_INLINED {
      first_prefetch(dy + s * kStrip<T>, x + s * kStrip<T>, ahead);
    });
  }
  const F32x16 mean16 = set16(mean);
  Strip<T> last_g, last_distance;
  if constexpr (!kWhole) {
    last_g = load_last_strip(dy + kLastAt, last, open);
    last_distance = load_last_strip(x + kLastAt, last, open);
    for_constants<kVectors>([&](auto i) ACLGRAD_INLINED {
      last_g.v[i] = mul(last_g.v[i], gamma[S - 1].v[i]);
      last_distance.v[i] = sub(last_distance.v[i], mean16);
    });
    last_g = keep_first_columns<T>(last_g, last);
    last_distance = keep_first_columns<T>(last_distance, last);
  }
  for_parts([&](auto part) ACLGRAD_INLINED {
    constexpr size_t kChains = kInChains ? std::min(kRowChains, kTerms) : 1;
    VecF32 chains[kChains][2];
    const auto add_term = [&](auto index, VecF32 g, VecF32 distance) ACLGRAD_INLINED {
      VecF32(&chain)[2] = chains[index % kChains];
      if constexpr (index < kChains) {
        chain[0] = g;
        chain[1] = hn::Mul(g, distance);
      } else {
        chain[0] = hn::Add(chain[0], g);
        chain[1] =
            kInChains ? fused(g, distance, chain[1]) : hn::Add(chain[1], hn::Mul(g, distance));
      }
    };
    for_constants<kWhole ? S : S - 1>([&](auto s) ACLGRAD_INLINED {
      const StripPart<T> dy_part = load_strip_part(dy + s * kStrip<T>, part);
      const StripPart<T> x_part = load_strip_part(x + s * kStrip<T>, part);
      for_constants<kVectors>([&](auto i) ACLGRAD_INLINED {
        add_term(std::integral_constant<size_t, s * kVectors + i>(),
                 hn::Mul(dy_part.v[i], gamma[s].v[i].part[part]),
                 hn::Sub(x_part.v[i], mean16.part[0]));
      });
    });
    if constexpr (!kWhole) {
      for_constants<V>([&](auto i) ACLGRAD_INLINED {
        add_term(std::integral_constant<size_t, (S - 1) * kVectors + i>(), last_g.v[i].part[part],
                 last_distance.v[i].part[part]);
      });
    }
    for_constants<2>([&](auto k) ACLGRAD_INLINED {
      VecF32 sum = chains[0][k];
      if constexpr (kInChains) {
        sum = hn::Add(sum, chains[1][k]);
        sum = hn::Add(sum,
                      kChains > 3 ? hn::Add(chains[2][k], chains[kChains - 1][k]) : chains[2][k]);
      }
      sums[k].part[part] = sum;
    });
  });
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
             const Ahead& ahead, double (&sums)[2]) {
  alignas(64) double totals[2][kLanes];
  for (double* half : {totals[0], totals[1]}) set_to(half, zero16());
  // One call for 1024 columns, instead of both forms in place.
  const auto sum_part = kTakesPrefetches ? sum_chains<false, T> : sum_chains<true, T>;
  for (size_t at = begin; at < begin + count; at += kChainColumns) {
    const size_t columns = std::min(kChainColumns, begin + count - at);
    F32x16 part[2];
    sum_part(source.dy(r, at, columns), source.x(r, at, columns), gamma + at, columns, mean, ahead,
             false, part);
    add_to(totals[0], part[0]);
    add_to(totals[1], part[1]);
  }
  sums[0] = join16(totals[0]);
  sums[1] = join16(totals[1]);
}

// Columns of the rows whose sums are unrolled, a form for each number of strips.
template <class T>
inline constexpr size_t kShortColumns = (kStripVectors<T> == 1 ? 4 : 3) * kStrip<T>;

// First visit: mean_g and mean_gx of every row. Those of at most kChainColumns columns are summed
// over their lanes eight at a time.
template <class T, class Source, class Between>
HWY_INLINE void sum_long_rows(Rows<T>& rows, Source& source, const float* gamma, size_t cols,
                              double reciprocal_cols, Between&& between) {
  if (cols > kChainColumns) {
    for (size_t r = 0; r < rows.count; ++r) {
      double sums[2];
      sum_row<T>(source, r, gamma, 0, cols, rows.mean[r], rows.ahead, sums);
      rows.mean_g[r] = static_cast<float>(sums[0] * reciprocal_cols);
      rows.mean_gx[r] = static_cast<float>(mean_gx_of(sums[1], rows.rstd[r], reciprocal_cols));
      between(r);
    }
    return;
  }
  const Ahead ahead = rows.ahead;
  const bool open = rows.open;
  join_rows(
      rows, reciprocal_cols,
      [&](size_t r, F32x16(&sums)[2]) ACLGRAD_INLINED {
        sum_chains<false>(source.dy(r, 0, cols), source.x(r, 0, cols), gamma, cols, rows.mean[r],
                          ahead, open, sums);
      },
      between);
}

// The same of rows of any length.
template <class T, class Between>
HWY_INLINE void sum_rows(Rows<T>& rows, const float* gamma, size_t cols, double reciprocal_cols,
                         Between&& between) {
  const Ahead ahead = rows.ahead;
  const bool open = rows.open;
  const auto sum_strips = [&](auto strips) ACLGRAD_INLINED {
    constexpr size_t kStrips = decltype(strips)::value;
    Strip<T> numbers[kStrips];
    for (size_t s = 0; s < kStrips; ++s) numbers[s] = load_numbers<T>(gamma + s * kStrip<T>);
    const size_t last = cols - (kStrips - 1) * kStrip<T>;
    const auto sum_with = [&](auto vectors, auto whole) ACLGRAD_INLINED {
      join_rows(
          rows, reciprocal_cols,
          [&](size_t r, F32x16(&sums)[2]) ACLGRAD_INLINED {
            sum_short<T, kStrips, vectors, whole>(rows.dy[r], rows.x[r], numbers, last,
                                                  rows.mean[r], ahead, open, sums);
          },
          between);
    };
    if (last == kStrip<T>) {
      sum_with(std::integral_constant<size_t, kStripVectors<T>>(), std::true_type());
    } else {
      with_vectors_of<T>(
          last, [&](auto vectors) ACLGRAD_INLINED { sum_with(vectors, std::false_type()); });
    }
  };
  if (cols <= kStrip<T>) return sum_strips(std::integral_constant<size_t, 1>());
  if (cols <= 2 * kStrip<T>) return sum_strips(std::integral_constant<size_t, 2>());
  if (cols <= 3 * kStrip<T>) return sum_strips(std::integral_constant<size_t, 3>());
  if constexpr (kStripVectors<T> == 1) {
    if (cols <= 4 * kStrip<T>) return sum_strips(std::integral_constant<size_t, 4>());
  }
  InPlace<T> source{rows};
  sum_long_rows(rows, source, gamma, cols, reciprocal_cols, between);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

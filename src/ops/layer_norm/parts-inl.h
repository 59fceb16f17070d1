// SPDX-License-Identifier: Apache-2.0
// Sixteen short rows on AVX2, register by register of eight lanes, counted by constants: what a row
// does not have is neither loaded nor computed (24 columns are three of the four registers of two
// vectors; only beyond 64 columns it may be a register of FP32 or FP16), and its sums stay in
// registers. All are taken in the order of block_moments-inl.h.

#if defined(ACLGRAD_OPS_LAYER_NORM_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_PARTS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_PARTS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_PARTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/wide_sums-inl.h"
#include "ops/layer_norm/ahead.h"
#include "ops/layer_norm/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Columns of a step, what one load brings: a register of FP32 or FP16, two of BF16.
template <class T>
inline constexpr size_t kStep = std::is_same_v<T, bfloat16_t> ? 2 * kPartLanes : kPartLanes;

// Columns of the longest rows of this kind (two cores of Zen 3, times as fast as the strips of
// block-inl.h: 16 bits 65 to 80 columns 1.3 to 1.9, 97 1.2 to 1.4, 112 1.3, 127 1.05 to 1.1; f32 65
// 1.1, 80 1.2, but 95 to 97 0.9).
template <class T>
inline constexpr size_t kMostOfParts = sizeof(T) == sizeof(float) ? 80 : 128;

// Columns up to which the code counts single steps. That of longer rows counts by sixteen columns.
inline constexpr size_t kMostBySteps = 64;
template <class T>
HWY_INLINE constexpr size_t next_steps(size_t steps) {
  return steps + (steps * kStep<T> < kMostBySteps ? 1 : 2 * kPartLanes / kStep<T>);
}

// As how many columns those of a row are read and written.
template <class T>
constexpr int64_t columns_in_parts(int64_t cols) {
  const bool by_steps = cols <= int64_t{kMostBySteps};
  return round_up(cols, static_cast<int64_t>(by_steps ? kStep<T> : 2 * kPartLanes));
}

#if HWY_TARGET == HWY_AVX2
// FP16 numbers of sixteen rows as FP32, register by register: converted once, in the first of three
// visits. (Two cores of Zen 1, times as fast: 400000x24 1.08, x64 1.12, 250000x100 1.13. BF16,
// which takes a shift or a mask, 1.01 to 1.07, and in the caches 0.97 to 1.05.)
template <class T>
struct Converted {};
template <>
struct Converted<float16_t> {
  alignas(64) float numbers[kLanes * kMostOfParts<float16_t>];
};

// The place of what a row does not have.
struct Nothing {};
HWY_INLINE Nothing plus(Nothing, Nothing) { return {}; }
template <class V>
HWY_INLINE V plus(V a, Nothing) {
  return a;
}
HWY_INLINE VecF32 plus(VecF32 a, VecF32 b) { return hn::Add(a, b); }
HWY_INLINE VecF64 plus(VecF64 a, VecF64 b) { return hn::Add(a, b); }

// Rows of P steps of T. Register q is half q % 2 of vector q / 2 (strips-inl.h).
template <class T, size_t P>
class Parts {
  static constexpr bool kPairs = std::is_same_v<T, bfloat16_t>;
  static constexpr bool kConverts = std::is_same_v<T, float16_t>;
  static constexpr size_t kRegisters = hwy::RoundUpTo(P * kStep<T> / kPartLanes, size_t{4});
  // Steps at a row's end that may not be whole.
  static constexpr size_t kLastSteps = P * kStep<T> > kMostBySteps ? 2 * kPartLanes / kStep<T> : 1;

  static constexpr size_t step_of(size_t q) { return kPairs ? q / 4 * 2 + q % 2 : q; }
  static constexpr bool has(size_t q) { return q < kRegisters && step_of(q) < P; }
  // Two vectors at most: their squares are added by fma (squares_of_two()).
  static constexpr bool kTwoVectors = !has(4);

 public:
  HWY_INLINE explicit Parts(size_t n) {
    for (size_t i = 0; i < 2; ++i) {
      const size_t begin = (P - kLastSteps + (kPairs ? 0 : HWY_MIN(i, kLastSteps - 1))) * kStep<T>;
      const size_t here = n > begin ? n - begin : 0;
      last_[i] = hn::FirstN(TagF32(), kPairs ? (here + 1 - i) / 2 : here);
    }
  }

  // The FP64 sums of sixteen rows, `stride` elements apart.
  HWY_INLINE void put_sums(const T* x, int64_t stride, double* sums,
                           Converted<T>& converted) const {
    for (size_t row = 0; row < kLanes; row += kWideLanes) {
      VecF64 sum[kWideLanes];
      for_constants<kWideLanes>([&](auto r) ACLGRAD_INLINED {
        // Two cores of Zen 3, rows of 63 columns, times as fast: f32 1.05 to 1.25, 16 bits 0.9.
        if (std::is_same_v<T, float> && !kPrefetchesWait) ask_for<false>(x);
        sum[r] = row_sum(x, converted, row + r);
        x += stride;
      });
      hn::Store(joined_wide(sum), TagF64(), sums + row);
    }
  }

  // The squares of the same rows around their centres.
  HWY_INLINE F32x16 squares(const T* x, int64_t stride, const float* centres,
                            const Converted<T>& converted) const {
    F32x16 out;
    for_constants<kParts>([&](auto part) ACLGRAD_INLINED {
      VecF32 sum[kPartLanes];
      for_constants<kPartLanes>([&](auto r) ACLGRAD_INLINED {
        sum[r] = row_squares(x, hn::Set(TagF32(), centres[part * kPartLanes + r]), converted,
                             part * kPartLanes + r);
        x += stride;
      });
      out.part[part] = joined_lanes(sum);
    });
    return out;
  }

  // y of the same rows, whole steps of it: what is behind a row's last column may be overwritten.
  // `streaming`: past the caches; every row begins a register and is whole ones of y's dtype.
  HWY_INLINE void write(const T* x, int64_t stride, const float* mean, const float* rstd,
                        const Weights<T>& weights, size_t n, void* const* y, bool streaming,
                        const Converted<T>& converted) const {
    VecF32 gamma[kRegisters], beta[kRegisters];
    spread(weights.gamma, n, gamma);
    spread(weights.beta, n, beta);
    for (size_t row = 0; row < kLanes; ++row, x += stride) {
      ask_for<true>(x);
      const VecF32 centre = hn::Set(TagF32(), mean[row]);
      const VecF32 scale = hn::Set(TagF32(), rstd[row]);
      // All loads before the stores, which might change what is loaded for all that the compiler
      // knows.
      VecF32 v[kRegisters];
      for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
        if constexpr (has(q)) v[q] = load_again<q>(x, converted, row);
      });
      for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
        if constexpr (has(q)) {
          v[q] = hn::MulAdd(hn::Mul(hn::Sub(v[q], centre), scale), gamma[q], beta[q]);
        }
      });
      auto* const to = static_cast<T*>(y[row]);
      for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
        if constexpr (has(q)) store<q>(v, to + step_of(q) * kStep<T>, streaming);
      });
    }
  }

 private:
  // Asks for a row of those to come: to L2, or to L1 what is nearer.
  template <bool kToL2>
  HWY_INLINE static void ask_for(const T* x) {
    for (size_t at = 0; at < P * kStep<T>; at += kLineBytes / sizeof(T)) {
      if constexpr (kToL2) {
        prefetch_to_l2(x + at, kAhead);
      } else {
        prefetch_to_l1(x + at, kAheadToL1);
      }
    }
  }
  // The numbers of columns as registers.
  HWY_INLINE static void spread(const ColumnNumbers<T>& numbers, size_t n,
                                VecF32 (&out)[kRegisters]) {
    constexpr size_t kOfStrip = 2 * kStripVectors<T>;
    for_constants<kRegisters / kOfStrip>([&](auto s) ACLGRAD_INLINED {
      if constexpr (has(s * kOfStrip)) {
        constexpr size_t kAt = s * kStrip<T>;
        const Strip<T> strip = numbers.last(kAt, std::min(kStrip<T>, n - kAt));
        for_constants<kOfStrip>(
            [&](auto i) ACLGRAD_INLINED { out[s * kOfStrip + i] = strip.v[i / 2].part[i % 2]; });
      }
    });
  }
  // Register q, or all that is stored with it.
  template <size_t q>
  HWY_INLINE static void store(const VecF32 (&v)[kRegisters], T* to, bool streaming) {
    const auto put = [streaming](auto d, auto out, auto* at) ACLGRAD_INLINED {
      if (streaming) {
        hn::Stream(out, d, at);
      } else {
        hn::StoreU(out, d, at);
      }
    };
    if constexpr (std::is_same_v<T, float16_t>) {
      const TagU16 d16;
      const hn::Twice<TagU16> twice;
      const auto half = [&](size_t i) ACLGRAD_INLINED {
        return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, TagF32>(), v[i]));
      };
      if constexpr (q % 2 == 0 && has(q + 1)) {
        put(twice, hn::Combine(twice, half(q + 1), half(q)), reinterpret_cast<uint16_t*>(to));
      } else if constexpr (q % 2 == 0) {
        hn::StoreU(half(q), d16, reinterpret_cast<uint16_t*>(to));
      }
    } else if constexpr (!kPairs) {
      put(TagF32(), v[q], to);
    } else if constexpr (q % 4 < 2) {
      const hn::Repartition<uint16_t, TagU32> d16;
      put(d16, packed(v[q], v[q + 2], T()), reinterpret_cast<uint16_t*>(to));
    }
  }
  // Register q of a row.
  template <size_t q>
  HWY_INLINE static VecF32 load(const T* x) {
    const T* from = x + step_of(q) * kStep<T>;
    if constexpr (!kPairs) {
      return load_part(from);
    } else {
      const VecU32 both =
          hn::BitCast(TagU32(), hn::LoadU(TagF32(), reinterpret_cast<const float*>(from)));
      return q % 4 < 2 ? even_numbers(both) : odd_numbers(both);
    }
  }
  // The same on the visits behind the first one, of row `row`.
  template <size_t q>
  HWY_INLINE static VecF32 load_again(const T* x, [[maybe_unused]] const Converted<T>& converted,
                                      [[maybe_unused]] size_t row) {
    if constexpr (kConverts) {
      return hn::Load(TagF32(), converted.numbers + (row * kRegisters + q) * kPartLanes);
    } else {
      return load<q>(x);
    }
  }
  // Without what is no column of the row.
  template <size_t q>
  HWY_INLINE VecF32 kept(VecF32 v) const {
    if constexpr (step_of(q) + kLastSteps < P) return v;
    return hn::IfThenElseZero(last_[kPairs ? q % 4 / 2 : step_of(q) + kLastSteps - P], v);
  }
  // The first of what a row has of `chains`.
  template <size_t q, class V, size_t N>
  HWY_INLINE static auto of(const V (&chains)[N]) {
    if constexpr (has(q)) {
      return chains[q];
    } else {
      return Nothing();
    }
  }

  // Vector i goes to chain i mod 2.
  HWY_INLINE VecF64 row_sum(const T* x, [[maybe_unused]] Converted<T>& converted,
                            [[maybe_unused]] size_t row) const {
    const TagF64 d;
    const hn::Half<TagF32> half;
    VecF64 lower[4], upper[4];  // quarters of the chains' vectors
    for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
      if constexpr (has(q)) {
        const VecF32 all = load<q>(x);
        if constexpr (kConverts) {
          hn::Store(all, TagF32(), converted.numbers + (row * kRegisters + q) * kPartLanes);
        }
        const VecF32 v = kept<q>(all);
        const VecF64 first = hn::PromoteTo(d, hn::LowerHalf(half, v));
        const VecF64 second = hn::PromoteTo(d, hn::UpperHalf(half, v));
        lower[q % 4] = q < 4 ? first : hn::Add(lower[q % 4], first);
        upper[q % 4] = q < 4 ? second : hn::Add(upper[q % 4], second);
      }
    });
    const auto joined = [](const VecF64(&chains)[4]) ACLGRAD_INLINED {
      return plus(plus(of<0>(chains), of<2>(chains)), plus(of<1>(chains), of<3>(chains)));
    };
    const VecF64 sum = hn::Add(joined(lower), joined(upper));
    // The +0 of lanes that a row does not have, or of a chain's beginning, makes +0 of a sum of
    // nothing but -0.
    return kTwoVectors && has(3) ? sum : hn::Add(sum, hn::Zero(d));
  }

  // Vector i goes to chain i mod 4, of two vectors to the first.
  HWY_INLINE VecF32 row_squares(const T* x, VecF32 centre, const Converted<T>& converted,
                                size_t row) const {
    constexpr size_t kHalves = kTwoVectors ? 2 : 8;  // of the chains' vectors
    VecF32 chains[kHalves];
    for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
      if constexpr (has(q)) {
        const VecF32 apart = kept<q>(hn::Sub(load_again<q>(x, converted, row), centre));
        VecF32& chain = chains[q % kHalves];
        chain = q < kHalves ? hn::Mul(apart, apart) : hn::MulAdd(apart, apart, chain);
      }
    });
    if constexpr (kTwoVectors) {
      return plus(chains[0], of<1>(chains));
    } else {
      const auto of_half = [&](auto h) ACLGRAD_INLINED {
        return plus(plus(of<h>(chains), of<h + 2>(chains)),
                    plus(of<h + 4>(chains), of<h + 6>(chains)));
      };
      return plus(of_half(std::integral_constant<size_t, 0>()),
                  of_half(std::integral_constant<size_t, 1>()));
    }
  }

  hn::Mask<TagF32> last_[2];
};

// Calls fn with the Parts of rows of n columns.
template <class T, size_t P = 1, class Fn>
HWY_INLINE void with_parts(size_t n, Fn&& fn) {
  if constexpr (P * kStep<T> < kMostOfParts<T>) {
    if (n > P * kStep<T>) return with_parts<T, next_steps<T>(P)>(n, fn);
  }
  fn(Parts<T, P>(n));
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

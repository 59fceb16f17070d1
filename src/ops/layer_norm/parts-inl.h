// SPDX-License-Identifier: Apache-2.0
// Sixteen short rows on AVX2, register by register of eight lanes, counted by constants: what a row
// does not have is neither loaded nor computed (24 columns are three of the four registers of two
// vectors), and its sums stay in registers. All are taken in the order of block_moments-inl.h.

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

// Columns of the longest rows of this kind.
inline constexpr size_t kMostOfParts = 64;

// Columns of a step, what one load brings: a register of FP32 or FP16, two of BF16.
template <class T>
inline constexpr size_t kStep = std::is_same_v<T, bfloat16_t> ? 2 * kPartLanes : kPartLanes;

#if HWY_TARGET == HWY_AVX2
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
  static constexpr size_t kRegisters = 2 * kMostOfParts / kLanes;
  static constexpr bool kPairs = std::is_same_v<T, bfloat16_t>;

  static constexpr size_t step_of(size_t q) { return kPairs ? q / 4 * 2 + q % 2 : q; }
  static constexpr bool has(size_t q) { return step_of(q) < P; }
  // Two vectors at most: their squares are added by fma (squares_of_two()).
  static constexpr bool kTwoVectors = !has(4);

 public:
  HWY_INLINE explicit Parts(size_t n) {
    const size_t here = n - (P - 1) * kStep<T>;
    last_[0] = hn::FirstN(TagF32(), kPairs ? (here + 1) / 2 : here);
    last_[1] = hn::FirstN(TagF32(), kPairs ? here / 2 : here);
  }

  // The FP64 sums of sixteen rows, `stride` elements apart.
  HWY_INLINE void put_sums(const T* x, int64_t stride, double* sums) const {
    for (size_t row = 0; row < kLanes; row += kWideLanes) {
      VecF64 sum[kWideLanes];
      for_constants<kWideLanes>([&](auto r) ACLGRAD_INLINED {
        sum[r] = row_sum(x);
        x += stride;
      });
      hn::Store(joined_wide(sum), TagF64(), sums + row);
    }
  }

  // The squares of the same rows around their centres.
  HWY_INLINE F32x16 squares(const T* x, int64_t stride, const float* centres) const {
    F32x16 out;
    for_constants<kParts>([&](auto part) ACLGRAD_INLINED {
      VecF32 sum[kPartLanes];
      for_constants<kPartLanes>([&](auto r) ACLGRAD_INLINED {
        sum[r] = row_squares(x, hn::Set(TagF32(), centres[part * kPartLanes + r]));
        x += stride;
      });
      out.part[part] = joined_lanes(sum);
    });
    return out;
  }

  // y of the same rows, whole steps of it: what is behind a row's last column may be overwritten.
  // `streaming`: past the caches, FP32 only; every row begins a register and is whole ones.
  HWY_INLINE void write(const T* x, int64_t stride, const float* mean, const float* rstd,
                        const Weights<T>& weights, size_t n, void* const* y, bool streaming) const {
    VecF32 gamma[kRegisters], beta[kRegisters];
    spread(weights.gamma, n, gamma);
    spread(weights.beta, n, beta);
    for (size_t row = 0; row < kLanes; ++row, x += stride) {
      for (size_t at = 0; at < P * kStep<T>; at += kLineBytes / sizeof(T))
        prefetch_to_l2(x + at, kAhead);
      const VecF32 centre = hn::Set(TagF32(), mean[row]);
      const VecF32 scale = hn::Set(TagF32(), rstd[row]);
      VecF32 v[kRegisters];
      load(x, v);
      for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
        if constexpr (has(q)) {
          v[q] = hn::MulAdd(hn::Mul(hn::Sub(v[q], centre), scale), gamma[q], beta[q]);
        }
      });
      store(v, static_cast<T*>(y[row]), streaming);
    }
  }

 private:
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
  HWY_INLINE static void store(const VecF32 (&v)[kRegisters], T* y, bool streaming) {
    for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
      if constexpr (has(q)) {
        auto* to = y + step_of(q) * kStep<T>;
        if constexpr (std::is_same_v<T, float16_t>) {
          const hn::Rebind<hwy::float16_t, TagF32> half;
          hn::StoreU(hn::BitCast(TagU16(), hn::DemoteTo(half, v[q])), TagU16(),
                     reinterpret_cast<uint16_t*>(to));
        } else if constexpr (kPairs) {
          if constexpr (q % 4 < 2) {
            const hn::Repartition<uint16_t, TagU32> d16;
            hn::StoreU(packed(v[q], v[q + 2], T()), d16, reinterpret_cast<uint16_t*>(to));
          }
        } else if (streaming) {
          hn::Stream(v[q], TagF32(), to);
        } else {
          hn::StoreU(v[q], TagF32(), to);
        }
      }
    });
  }
  HWY_INLINE void load(const T* x, VecF32 (&out)[kRegisters]) const {
    for_constants<kRegisters>([&](auto q) ACLGRAD_INLINED {
      if constexpr (has(q)) {
        const T* from = x + step_of(q) * kStep<T>;
        if constexpr (!kPairs) {
          out[q] = load_part(from);
        } else {
          const VecU32 both =
              hn::BitCast(TagU32(), hn::LoadU(TagF32(), reinterpret_cast<const float*>(from)));
          out[q] = q % 4 < 2 ? even_numbers(both) : odd_numbers(both);
        }
      }
    });
  }
  // Without what is no column of the row.
  template <size_t q>
  HWY_INLINE VecF32 kept(VecF32 v) const {
    if constexpr (step_of(q) + 1 < P) return v;
    return hn::IfThenElseZero(last_[kPairs ? q % 4 / 2 : 0], v);
  }

  HWY_INLINE VecF64 row_sum(const T* x) const {
    const TagF64 d;
    VecF32 v[kRegisters];
    load(x, v);
    const hn::Half<TagF32> half;
    const auto quarter = [&](auto upper) ACLGRAD_INLINED {
      const auto wide = [&](auto q) ACLGRAD_INLINED {
        if constexpr (!has(q)) {
          return Nothing();
        } else if constexpr (upper) {
          return hn::PromoteTo(d, hn::UpperHalf(half, kept<q>(v[q])));
        } else {
          return hn::PromoteTo(d, hn::LowerHalf(half, kept<q>(v[q])));
        }
      };
      const auto of_half = [&](auto h) ACLGRAD_INLINED {
        return plus(plus(wide(h), wide(std::integral_constant<size_t, h + 4>())),
                    plus(wide(std::integral_constant<size_t, h + 2>()),
                         wide(std::integral_constant<size_t, h + 6>())));
      };
      return plus(of_half(std::integral_constant<size_t, 0>()),
                  of_half(std::integral_constant<size_t, 1>()));
    };
    const VecF64 sum = hn::Add(quarter(std::false_type()), quarter(std::true_type()));
    // The +0 of lanes that a row does not have, or of a chain's beginning, makes +0 of a sum of
    // nothing but -0.
    return kTwoVectors && has(3) ? sum : hn::Add(sum, hn::Zero(d));
  }

  HWY_INLINE VecF32 row_squares(const T* x, VecF32 centre) const {
    VecF32 v[kRegisters];
    load(x, v);
    const auto apart = [&](auto q) ACLGRAD_INLINED { return kept<q>(hn::Sub(v[q], centre)); };
    const auto square = [&](auto q) ACLGRAD_INLINED {
      if constexpr (!has(q)) {
        return Nothing();
      } else {
        const VecF32 a = apart(q);
        return hn::Mul(a, a);
      }
    };
    const auto of_half = [&](auto h) ACLGRAD_INLINED {
      constexpr std::integral_constant<size_t, h + 2> kSecond;
      constexpr std::integral_constant<size_t, h + 4> kThird;
      constexpr std::integral_constant<size_t, h + 6> kFourth;
      if constexpr (kTwoVectors && has(kSecond)) {
        const VecF32 a = apart(kSecond);
        return hn::MulAdd(a, a, square(h));
      } else {
        return plus(plus(square(h), square(kSecond)), plus(square(kThird), square(kFourth)));
      }
    };
    return plus(of_half(std::integral_constant<size_t, 0>()),
                of_half(std::integral_constant<size_t, 1>()));
  }

  hn::Mask<TagF32> last_[2];
};

// Calls fn with the Parts of rows of n columns.
template <class T, size_t P = 1, class Fn>
HWY_INLINE void with_parts(size_t n, Fn&& fn) {
  if constexpr (P * kStep<T> < kMostOfParts) {
    if (n > P * kStep<T>) return with_parts<T, P + 1>(n, fn);
  }
  fn(Parts<T, P>(n));
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

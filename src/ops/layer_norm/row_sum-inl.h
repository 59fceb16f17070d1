// SPDX-License-Identifier: Apache-2.0
// The sum of a row, or of a panel of one, in FP64 lanes.

#if defined(ACLGRAD_OPS_LAYER_NORM_ROW_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_ROW_SUM_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_ROW_SUM_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_ROW_SUM_INL_H_
#endif

#include <cstddef>
#include <type_traits>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "kernels/cpu/wide_sums-inl.h"
#include "ops/layer_norm/narrow_pairs-inl.h"
#include "ops/layer_norm/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Sixteen FP64 lanes: one chain of a sum.
using Chain = VecF64[kWideParts];

HWY_INLINE void add_vector(const F32x16& v, Chain& chain) {
  each_wide(v, [&](size_t lane, VecF64 wide) HWY_ATTR {
    // A multiplication by 1 changes nothing but the execution unit: the adders are busy promoting.
    chain[lane / kWideLanes] = hn::MulAdd(wide, hn::Set(TagF64(), 1.0), chain[lane / kWideLanes]);
  });
}
HWY_INLINE void add_vector(const float* x, Chain& chain) {
  const hn::Rebind<float, TagF64> narrow;  // promoted on the way from memory
  for (size_t part = 0; part < kWideParts; ++part) {
    const auto wide = hn::PromoteTo(TagF64(), hn::LoadU(narrow, x + part * kWideLanes));
    chain[part] = hn::MulAdd(wide, hn::Set(TagF64(), 1.0), chain[part]);
  }
}

#if HWY_TARGET <= HWY_AVX2
HWY_INLINE void add_narrow_pair(const NarrowPair& pair, size_t part, Chain (&chains)[2]) {
  const VecF64 one = hn::Set(TagF64(), 1.0);  // as in add_vector()
  chains[0][part] = hn::MulAdd(hn::PromoteTo(TagF64(), pair.first), one, chains[0][part]);
  chains[1][part] = hn::MulAdd(hn::PromoteTo(TagF64(), pair.second), one, chains[1][part]);
}
#endif

#if HWY_TARGET == HWY_AVX2
// Plain additions: f16 32768x768 and 8192x4096 1.04 to 1.06 times as fast as by add_vector()'s way
// (two cores of Zen 1).
HWY_INLINE void add_part_of_vector(VecF32 v, size_t part, Chain& chain) {
  const TagF64 d;
  const hn::Half<TagF32> half;
  VecF64& lower = chain[2 * part];
  VecF64& upper = chain[2 * part + 1];
  lower = hn::Add(lower, hn::PromoteTo(d, hn::LowerHalf(half, v)));
  upper = hn::Add(upper, hn::PromoteTo(d, hn::UpperHalf(half, v)));
}
#endif

// Two vectors more, or what is there of them.
template <class T>
HWY_INLINE void add_two(const T* x, Chain (&chains)[2]) {
  if constexpr (kStripVectors<T> == 1) {
    add_vector(x, chains[0]);
    add_vector(x + kLanes, chains[1]);
  } else {
#if HWY_TARGET == HWY_AVX2
    if constexpr (std::is_same_v<T, float16_t>) {
      // One conversion of eight numbers instead of two of four (two cores of Zen 1, f16 32768x768
      // and 200704x192 1.04 times as fast; BF16, which converts by a shift and a mask, 0.98).
      return for_parts([&](auto part) ACLGRAD_INLINED {
        const StripPart<T> columns = load_strip_part(x, part);
        for_constants<2>(
            [&](auto i) ACLGRAD_INLINED { add_part_of_vector(columns.v[i], part, chains[i]); });
      });
    }
#endif
#if HWY_TARGET <= HWY_AVX2
    for (size_t part = 0; part < kWideParts; ++part) {
      add_narrow_pair(load_narrow_pair(x, part * kWideLanes), part, chains);
    }
#else
    const Strip<T> strip = load_strip(x);
    add_vector(strip.v[0], chains[0]);
    add_vector(strip.v[1], chains[1]);
#endif
  }
}
template <class T>
HWY_INLINE void add_first(const T* x, size_t count, [[maybe_unused]] bool open,
                          Chain (&chains)[2]) {
  if constexpr (kStripVectors<T> == 1) {
    if (count < kLanes) return add_vector(load_first(x, count), chains[0]);
    add_vector(x, chains[0]);
    if (count > kLanes) add_vector(load_first(x + kLanes, count - kLanes), chains[1]);
  } else {
#if HWY_TARGET <= HWY_AVX3
    for (size_t part = 0; part < kWideParts; ++part) {
      add_narrow_pair(load_narrow_pair_first(x, part * kWideLanes, count), part, chains);
    }
#else
    Strip<T> strip = load_last_strip(x, count, open);
    if (kReadsWhole && open) strip = keep_first_columns<T>(strip, count);
    with_vectors_of<T>(count, [&](auto vectors) HWY_ATTR {
      for (size_t i = 0; i < vectors; ++i) add_vector(strip.v[i], chains[i]);
    });
#endif
  }
}

// The sum of a row or panel, in FP64 (`open`: load_last_strip()): between large numbers of both
// signs the mean may be small, and elements near it are right only if it is. Vector i goes to chain
// i mod 2; the chains are joined, then lanes i and i + 8.
class WideSum {
 public:
  HWY_INLINE WideSum() {
    for (size_t part = 0; part < kWideParts; ++part) {
      chains_[0][part] = chains_[1][part] = hn::Zero(TagF64());
    }
  }
  template <class T>
  HWY_INLINE void add(const T* x) {
    add_two(x, chains_);
  }
#if HWY_TARGET == HWY_AVX2
  HWY_INLINE void add_part(VecF32 v, size_t chain, size_t part) {
    add_part_of_vector(v, part, chains_[chain]);
  }
#endif
  template <class T>
  HWY_INLINE void add_last(const T* x, size_t count, bool open = false) {
    if (count != 0) add_first(x, count, open, chains_);
  }
  HWY_INLINE void put(double* out) const {
    constexpr size_t kHalf = kWideParts / 2;
    for (size_t part = 0; part < kHalf; ++part) {
      hn::Store(hn::Add(hn::Add(chains_[0][part], chains_[1][part]),
                        hn::Add(chains_[0][part + kHalf], chains_[1][part + kHalf])),
                TagF64(), out + part * kWideLanes);
    }
  }

 private:
  Chain chains_[2];
};
template <class T>
HWY_INLINE void put_sums(const T* x, size_t n, double* out) {
  WideSum sum;
  size_t at = 0;
  for (; at + 2 * kTwo <= n; at += 2 * kTwo) {
    sum.add(x + at);
    sum.add(x + at + kTwo);
  }
  if (at + kTwo <= n) {
    sum.add(x + at);
    at += kTwo;
  }
  sum.add_last(x + at, n - at);
  sum.put(out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

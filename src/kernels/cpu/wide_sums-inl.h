// SPDX-License-Identifier: Apache-2.0
// The sums of several rows' FP64 lanes at once, each in the order of join16() (sums-inl.h).

#if defined(ACLGRAD_KERNELS_CPU_WIDE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_WIDE_SUMS_INL_H_
#undef ACLGRAD_KERNELS_CPU_WIDE_SUMS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_WIDE_SUMS_INL_H_
#endif

#include <algorithm>

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

// What is left of a row's sixteen lanes before they are joined over several rows at once: lanes i
// and i + 8 are added.
inline constexpr size_t kWideSums = kLanes / 2;

ACLGRAD_SIXTEEN void put_wide(const F32x16& v, double* out) {
  VecF64 wide[kWideParts];
  each_wide(v, [&](size_t lane, VecF64 part) HWY_ATTR { wide[lane / kWideLanes] = part; });
  constexpr size_t kHalf = kWideParts / 2;
  for (size_t i = 0; i < kHalf; ++i) {
    hn::StoreU(hn::Add(wide[i], wide[i + kHalf]), TagF64(), out + i * kWideLanes);
  }
}

// Lane k of the result is the sum of the eight doubles from p + 8 k: lanes i and i + 4, then i + 2,
// i + 1 (lane_sums-inl.h does the same in FP32).
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void join_sums(const double* p, double* out) {
  for (size_t k = 0; k < kWideSums; ++k) {
    double v[kWideSums];
    std::copy_n(p + k * kWideSums, kWideSums, v);
    for (size_t half = kWideSums / 2; half > 0; half /= 2) {
      for (size_t i = 0; i < half; ++i) v[i] += v[i + half];
    }
    out[k] = v[0];
  }
}
#else
// One register of the sums over the lanes of as many registers as it has lanes.
template <size_t kRegister>
HWY_INLINE VecF64 joined_wide(VecF64 (&v)[kRegister]) {
  const TagF64 d;
  if constexpr (kRegister > 2) {
    constexpr size_t kHalf = kRegister / 2;
    for_constants<kHalf>([&](auto k) HWY_ATTR {
      const VecF64 a = v[k], b = v[k + kHalf];
      v[k] = hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    });
  }
  if constexpr (kRegister == 8) {
    for_constants<2>([&](auto k) HWY_ATTR {
      const VecF64 a = v[k], b = v[k + 2];
      v[k] = hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a),
                     hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)));
    });
  }
  return hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
}

// Those of the eight doubles from p, p + 8 and so on.
template <size_t kRegister>
HWY_INLINE VecF64 register_of_joined(const double* p) {
  const TagF64 d;
  VecF64 v[kRegister];
  for_constants<kRegister>([&](auto k) HWY_ATTR {
    const auto part = [&](size_t i)
                          HWY_ATTR { return hn::Load(d, p + k * kWideSums + i * kWideLanes); };
    if constexpr (kRegister == 8) {
      v[k] = part(0);
    } else if constexpr (kRegister == 4) {
      v[k] = hn::Add(part(0), part(1));
    } else {
      v[k] = hn::Add(hn::Add(part(0), part(2)), hn::Add(part(1), part(3)));
    }
  });
  return joined_wide(v);
}
HWY_INLINE void join_sums(const double* p, double* out) {
  for (size_t k = 0; k < kWideSums; k += kWideLanes) {
    hn::StoreU(register_of_joined<kWideLanes>(p + k * kWideSums), TagF64(), out + k);
  }
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// gamma as the kernels read it.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_GAMMA_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/checked.h"
#include "base/dtype.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm_backward/block-inl.h"
#include "ops/layer_norm_backward/job.h"
#include "ops/layer_norm_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// A strip of T from numbers of any dtype.
template <class T, class From>
HWY_INLINE Strip<T> gamma_strip(const From* from) {
  Strip<T> out;
  if constexpr (!std::is_same_v<T, bfloat16_t>) {
    for (size_t i = 0; i < kStripVectors<T>; ++i) out.v[i] = load16(from + i * kLanes);
  } else if constexpr (std::is_same_v<From, T>) {
    out = load_strip(from);
  } else {
    alignas(64) float numbers[kStrip<T>];
    for (size_t i = 0; i < kStripVectors<T>; ++i) {
      store_raw(load16(from + i * kLanes), numbers + i * kLanes);
    }
    for (size_t i = 0; i < kParts; ++i) {
      hn::LoadInterleaved2(TagF32(), numbers + 2 * i * kPartLanes, out.v[0].part[i],
                           out.v[1].part[i]);
    }
  }
  return out;
}

// Columns [begin, end) of gamma as FP32 in strip order, zeros behind them to the end of the strip.
// `begin` begins a strip and stands at out[0].
template <class T>
HWY_NOINLINE void prepare_gamma(const Problem& problem, const void* gamma, int64_t begin,
                                int64_t end, float* out) {
  const auto count = static_cast<size_t>(end - begin);
  size_t at = 0;
  if (!problem.has_gamma()) {
    std::fill_n(out, count / kStrip<T> * kStrip<T>, 1.0f);
    for (at = count / kStrip<T> * kStrip<T>; at < count; ++at) out[strip_place<T>(at)] = 1.0f;
  } else {
    const RowOffsets columns(problem.gamma, problem.gamma.rank);
    const bool dense = columns.uniform() && columns.stride() == 1;
    visit_float(problem.gamma.dtype, [&](auto type) HWY_ATTR {
      using From = decltype(type);
      const auto* from = static_cast<const From*>(gamma);
      for (; dense && at + kStrip<T> <= count; at += kStrip<T>) {
        const Strip<T> strip = gamma_strip<T>(from + begin + at);
        for (size_t i = 0; i < kStripVectors<T>; ++i) store_raw(strip.v[i], out + at + i * kLanes);
      }
      for (; at < count; ++at) {
        out[strip_place<T>(at)] = to_float(from[columns(begin + static_cast<int64_t>(at))]);
      }
    });
  }
  const size_t padded = (count + kStrip<T> - 1) / kStrip<T> * kStrip<T>;
  for (; at < padded; ++at) out[strip_place<T>(at)] = 0.0f;
}

// gamma of a panel, where it is prepared panel by panel (Plan::gamma_by_panel).
template <class T>
class PanelGamma {
 public:
  // The job with gamma of columns [begin, end), a panel's.
  HWY_INLINE Job of(const Job& job, int64_t begin, int64_t end) {
    Job out = job;
    if (!job.plan.gamma_by_panel) return out;
    prepare_gamma<T>(job.problem, job.at.gamma, begin, end, numbers_);
    // Kernels count columns from the first one of the row.
    out.gamma = reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(numbers_) -
                                               static_cast<uintptr_t>(begin) * sizeof(float));
    return out;
  }

 private:
  alignas(64) float numbers_[kPanel];
};

// gamma chunk by chunk, for who looks at whole rows.
template <class T>
class GammaChunks {
 public:
  explicit GammaChunks(const Job& job) : job_(job) {}

  // `count` columns from `at` on.
  const float* chunk(size_t at, size_t count) {
    if (!job_.plan.gamma_by_panel) return job_.gamma + at;
    const auto begin = static_cast<int64_t>(at);
    prepare_gamma<T>(job_.problem, job_.at.gamma, begin, begin + static_cast<int64_t>(count),
                     numbers_);
    return numbers_;
  }

 private:
  const Job& job_;
  alignas(64) float numbers_[kChainColumns];
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Sixteen FP32 rows that follow each other are as many whole lines as they have columns: y written
// line by line past the caches, whatever rows a line belongs to. Only where a vector is one
// register.

#if defined(ACLGRAD_OPS_LAYER_NORM_ACROSS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_ACROSS_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_ACROSS_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_ACROSS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/prefetch.h"
#include "ops/layer_norm/ahead.h"
#include "ops/layer_norm/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Columns of rows of which at most two share a line, and that are visited one after the other.
inline constexpr size_t kLeastAcross = kLanes + 1, kMostAcross = 64;

#if HWY_TARGET <= HWY_AVX3
// gamma or beta with its beginning once more behind its end; nothing of none.
class Around {
 public:
  HWY_INLINE void set(const float* numbers, size_t n) {
    std::copy_n(numbers, n, values_);
    std::copy_n(numbers, std::min(n, kLanes), values_ + n);
  }
  HWY_INLINE const float* from(size_t column) const { return values_ + column; }

 private:
  alignas(64) float values_[kMostAcross + kLanes];
};

// For rows whose y begins a line. All plain.
class AcrossWriter {
 public:
  HWY_INLINE AcrossWriter(const float* gamma, const float* beta, size_t n) : n_(n) {
    gamma_.set(gamma, n);
    beta_.set(beta, n);
  }
  HWY_INLINE void write(const Rows<float>& rows) const {
    const TagF32 d;
    const float* x = rows.x[0];
    auto* y = static_cast<float*>(rows.y[0]);
    size_t row = 0, column = 0;  // of the line's first element
    for (size_t line = 0; line < n_; ++line, x += kLanes, y += kLanes) {
      if (!kPrefetchesWait) {
        prefetch_to_l2(x, kAhead);
      } else {
        prefetch_to_l1(x, kAheadIntoL1);
      }
      const size_t other = std::min(row + 1, kRows - 1);
      const auto first = hn::FirstN(d, std::min(n_ - column, kLanes));
      const auto of_rows = [&](const float* numbers) HWY_ATTR {
        F32x16 out;
        out.part[0] = hn::IfThenElse(first, hn::Set(d, numbers[row]), hn::Set(d, numbers[other]));
        return out;
      };
      Strip<float> gamma, beta;
      gamma.v[0] = load16(gamma_.from(column));
      beta.v[0] = load16(beta_.from(column));
      store_clean_strip(
          normalised(load_strip(x), of_rows(rows.mean), of_rows(rows.rstd), gamma, beta), y, true);
      column += kLanes;
      if (column >= n_) {
        column -= n_;
        ++row;
      }
    }
  }

 private:
  // Where prefetches wait, lines come to L1 at once (f32 400000x24 on two cores of Granite Rapids:
  // 4.2 -> 3.2 ms).
  static constexpr intptr_t kAheadIntoL1 = intptr_t{4} << 10;

  size_t n_;
  Around gamma_, beta_;
};
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

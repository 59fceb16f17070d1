// SPDX-License-Identifier: Apache-2.0
// Exponents of unusual rows: those that FP32 cannot tell apart, or that have nothing to go by.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_EXPONENTS_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_EXPONENTS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "ops/scaled_masked_softmax/tree.h"

namespace aclgrad::scaled_masked_softmax {

// An unusual row's exponents, base 2, in FP64: unmasked elements get scale * x - offset, by way of
// the difference to the largest x where that is what they are measured from.
class Exponents {
 public:
  template <class T>
  Exponents(const T* x, const uint8_t* mask, size_t cols, double scale) : scale_(scale) {
    double top = -std::numeric_limits<double>::infinity();
    bool any_masked = false;
    for (size_t i = 0; i < cols; ++i) {
      if (mask[i] != 0) {
        any_masked = true;
        continue;
      }
      const double value = static_cast<double>(to_float(x[i]));
      const double z = scale * value;
      has_nan_ = has_nan_ || std::isnan(z);
      if (z >= top) {
        top = z;
        largest_ = value;
      }
    }
    from_mask_ = any_masked && !(top > kMasked);
  }
  bool has_nan() const { return has_nan_; }
  double of(double x) const {
    return (from_mask_ ? scale_ * x - kMasked : scale_ * (x - largest_)) * kLog2OfE;
  }
  double of_masked() const { return from_mask_ ? 0.0 : (kMasked - scale_ * largest_) * kLog2OfE; }

 private:
  double scale_;
  double largest_ = 0.0;
  bool has_nan_ = false;
  bool from_mask_ = false;
};

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_EXPONENTS_H_

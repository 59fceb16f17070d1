// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmax in double, on dense row-major data: the oracle of test, bench and fuzz. The
// elements are their own magnitudes: A, which scales the tolerance, is y.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_REFERENCE_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace aclgrad::scaled_masked_softmax {

struct Sizes {
  size_t batches, heads, rows, cols;
  size_t mask_batches, mask_heads;  // as batches and heads, or 1
};

// Appends the softmax of a row. Its numbers may be so large that only their differences have digits
// in double. A NaN is the largest number there is.
inline void append_softmax(const std::vector<long double>& z, std::vector<double>& out) {
  long double largest = -std::numeric_limits<long double>::infinity();
  for (const long double value : z) {
    if (std::isnan(value) || value > largest) largest = value;
    if (std::isnan(largest)) break;
  }
  double sum = 0;
  const size_t begin = out.size();
  for (const long double value : z) {
    out.push_back(std::exp(static_cast<double>(value - largest)));
    sum += out.back();
  }
  for (size_t i = begin; i < out.size(); ++i) out[i] /= sum;
}

// x: batches x heads x rows x cols; mask: mask_batches x mask_heads x rows x cols.
inline std::vector<double> reference(const Sizes& n, const std::vector<double>& x,
                                     const std::vector<double>& mask, double scale) {
  std::vector<double> out;
  std::vector<long double> z(n.cols);
  for (size_t b = 0; b < n.batches; ++b) {
    for (size_t h = 0; h < n.heads; ++h) {
      for (size_t r = 0; r < n.rows; ++r) {
        const size_t row = ((b * n.heads + h) * n.rows + r) * n.cols;
        const size_t mask_batch = n.mask_batches == 1 ? 0 : b;
        const size_t mask_head = n.mask_heads == 1 ? 0 : h;
        const size_t mask_row = ((mask_batch * n.mask_heads + mask_head) * n.rows + r) * n.cols;
        for (size_t c = 0; c < n.cols; ++c) {
          const bool masked = mask[mask_row + c] != 0;
          z[c] = masked ? -10000.0L : static_cast<long double>(scale) * x[row + c];
        }
        append_softmax(z, out);
      }
    }
  }
  return out;
}

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_REFERENCE_H_

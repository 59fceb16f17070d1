// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward in double, term by term, on dense row-major data: the oracle of test,
// bench and fuzz. Beside each element stands A, the sum of the magnitudes of its terms, which
// scales the tolerance.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_REFERENCE_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_REFERENCE_H_

#include <cmath>
#include <cstddef>
#include <vector>

namespace aclgrad::scaled_masked_softmax_backward {

struct Sizes {
  size_t batches, heads, rows, cols;
  size_t mask_batches, mask_heads;  // as batches and heads, or 1
};

struct Reference {
  std::vector<double> dx, dx_magnitude;
};

// dy, y: batches x heads x rows x cols; mask: mask_batches x mask_heads x rows x cols.
inline Reference reference(const Sizes& n, const std::vector<double>& dy,
                           const std::vector<double>& y, const std::vector<double>& mask,
                           double scale) {
  Reference out;
  for (size_t b = 0; b < n.batches; ++b) {
    for (size_t h = 0; h < n.heads; ++h) {
      for (size_t r = 0; r < n.rows; ++r) {
        const size_t row = ((b * n.heads + h) * n.rows + r) * n.cols;
        const size_t mask_batch = n.mask_batches == 1 ? 0 : b;
        const size_t mask_head = n.mask_heads == 1 ? 0 : h;
        const size_t mask_row = ((mask_batch * n.mask_heads + mask_head) * n.rows + r) * n.cols;
        double sum = 0, sum_magnitude = 0;
        for (size_t c = 0; c < n.cols; ++c) {
          sum += dy[row + c] * y[row + c];
          sum_magnitude += std::abs(dy[row + c] * y[row + c]);
        }
        for (size_t c = 0; c < n.cols; ++c) {
          const double product = dy[row + c] * y[row + c];
          const bool masked = mask[mask_row + c] != 0;
          out.dx.push_back(masked ? 0.0 : scale * (product - y[row + c] * sum));
          out.dx_magnitude.push_back(
              masked
                  ? 0.0
                  : std::abs(scale) * (std::abs(product) + std::abs(y[row + c]) * sum_magnitude));
        }
      }
    }
  }
  return out;
}

}  // namespace aclgrad::scaled_masked_softmax_backward

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_REFERENCE_H_

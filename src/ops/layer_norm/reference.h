// SPDX-License-Identifier: Apache-2.0
// LayerNorm in double, term by term, on dense row-major data: the oracle of test, bench and fuzz.
// Beside each output stands A, the sum of the magnitudes of its terms, which scales the tolerance.
#ifndef ACLGRAD_OPS_LAYER_NORM_REFERENCE_H_
#define ACLGRAD_OPS_LAYER_NORM_REFERENCE_H_

#include <cmath>
#include <cstddef>
#include <vector>

namespace aclgrad::layer_norm {

struct Reference {
  std::vector<double> y, mean, rstd;
  std::vector<double> y_magnitude, mean_magnitude, rstd_magnitude;
};

// x: rows x cols; gamma, beta: cols, or empty for ones and zeros.
inline Reference reference(size_t rows, size_t cols, const std::vector<double>& x,
                           const std::vector<double>& gamma, const std::vector<double>& beta,
                           double eps) {
  Reference out;
  const auto n = static_cast<double>(cols);
  for (size_t r = 0; r < rows; ++r) {
    const double* row = x.data() + r * cols;
    double sum = 0, lost = 0, magnitude = 0, squares = 0;
    for (size_t c = 0; c < cols; ++c) {  // with Neumaier's compensation, for rows that cancel
      const double next = sum + row[c];
      lost += std::abs(sum) >= std::abs(row[c]) ? (sum - next) + row[c] : (row[c] - next) + sum;
      sum = next;
      magnitude += std::abs(row[c]);
    }
    if (std::isfinite(sum)) sum += lost;
    const double mean = cols == 0 ? 0.0 : sum / n;
    for (size_t c = 0; c < cols; ++c) squares += (row[c] - mean) * (row[c] - mean);
    const double rstd = 1.0 / std::sqrt(squares / n + eps);  // NaN for no columns
    for (size_t c = 0; c < cols; ++c) {
      const double w = gamma.empty() ? 1.0 : gamma[c];
      const double b = beta.empty() ? 0.0 : beta[c];
      out.y.push_back((row[c] - mean) * rstd * w + b);
      out.y_magnitude.push_back(std::abs(w) * (std::abs(row[c]) + std::abs(mean)) * rstd +
                                std::abs(b));
    }
    out.mean.push_back(mean);
    out.mean_magnitude.push_back(cols == 0 ? 0.0 : magnitude / n);
    out.rstd.push_back(rstd);
    out.rstd_magnitude.push_back(rstd);
  }
  return out;
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_REFERENCE_H_

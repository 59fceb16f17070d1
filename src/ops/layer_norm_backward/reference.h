// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward in double, term by term, on dense row-major data: the oracle of test, bench and
// fuzz. Beside each output stands A, the sum of the magnitudes of its terms, which scales the
// tolerance.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_REFERENCE_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_REFERENCE_H_

#include <cmath>
#include <cstddef>
#include <vector>

namespace aclgrad::layer_norm_backward {

struct Reference {
  std::vector<double> dx, dgamma, dbeta;
  std::vector<double> dx_magnitude, dgamma_magnitude, dbeta_magnitude;
};

// dy, x: rows x cols; mean, rstd: rows; gamma: cols, or empty for ones.
inline Reference reference(size_t rows, size_t cols, const std::vector<double>& dy,
                           const std::vector<double>& x, const std::vector<double>& mean,
                           const std::vector<double>& rstd, const std::vector<double>& gamma) {
  Reference out;
  for (auto* v : {&out.dx, &out.dx_magnitude}) v->assign(rows * cols, 0.0);
  for (auto* v : {&out.dgamma, &out.dbeta, &out.dgamma_magnitude, &out.dbeta_magnitude}) {
    v->assign(cols, 0.0);
  }
  const auto g = [&](size_t r, size_t c) {
    return dy[r * cols + c] * (gamma.empty() ? 1.0 : gamma[c]);
  };
  const auto xhat = [&](size_t r, size_t c) { return (x[r * cols + c] - mean[r]) * rstd[r]; };
  const auto bound = [&](size_t r, size_t c) {
    return (std::abs(x[r * cols + c]) + std::abs(mean[r])) * std::abs(rstd[r]);
  };
  for (size_t r = 0; r < rows; ++r) {
    double mean_g = 0, mean_gx = 0, mean_abs_g = 0, mean_abs_gx = 0;
    for (size_t c = 0; c < cols; ++c) {
      mean_g += g(r, c);
      mean_gx += g(r, c) * xhat(r, c);
      mean_abs_g += std::abs(g(r, c));
      mean_abs_gx += std::abs(g(r, c)) * bound(r, c);
    }
    const auto n = static_cast<double>(cols);
    for (size_t c = 0; c < cols; ++c) {
      const size_t i = r * cols + c;
      out.dx[i] = rstd[r] * (g(r, c) - mean_g / n - xhat(r, c) * (mean_gx / n));
      out.dx_magnitude[i] = std::abs(rstd[r]) *
                            (std::abs(g(r, c)) + mean_abs_g / n + bound(r, c) * (mean_abs_gx / n));
      out.dgamma[c] += dy[i] * xhat(r, c);
      out.dgamma_magnitude[c] += std::abs(dy[i]) * bound(r, c);
      out.dbeta[c] += dy[i];
      out.dbeta_magnitude[c] += std::abs(dy[i]);
    }
  }
  return out;
}

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_REFERENCE_H_

// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad in double, window by window, on dense row-major data: the oracle of test, bench
// and fuzz. Beside each output stands A, the sum of the magnitudes of its terms, which scales the
// tolerance.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_REFERENCE_H_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_REFERENCE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aclgrad::nsa_compress_grad {

// The first token of each window. `ends` are the sequences' cumulative ends; none: one sequence of
// all tokens.
inline std::vector<int64_t> window_starts(int64_t tokens, int64_t window, int64_t step,
                                          std::vector<int64_t> ends) {
  if (ends.empty()) ends.push_back(tokens);
  std::vector<int64_t> starts;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t start = begin; start + window <= end; start += step) starts.push_back(start);
    begin = end;
  }
  return starts;
}

struct Reference {
  std::vector<double> dx, dx_magnitude;  // tokens x heads x width
  std::vector<double> dw, dw_magnitude;  // window x heads
};

inline Reference reference(size_t heads, size_t width, size_t window,
                           const std::vector<int64_t>& starts, const std::vector<double>& dy,
                           const std::vector<double>& x, const std::vector<double>& w) {
  Reference out;
  out.dx.assign(x.size(), 0.0);
  out.dx_magnitude = out.dx;
  out.dw.assign(w.size(), 0.0);
  out.dw_magnitude = out.dw;
  for (size_t i = 0; i < starts.size(); ++i) {
    for (size_t j = 0; j < window; ++j) {
      const size_t token = static_cast<size_t>(starts[i]) + j;
      for (size_t n = 0; n < heads; ++n) {
        for (size_t c = 0; c < width; ++c) {
          const size_t at = (token * heads + n) * width + c;
          const double grad = dy[(i * heads + n) * width + c];
          out.dx[at] += w[j * heads + n] * grad;
          out.dx_magnitude[at] += std::abs(w[j * heads + n] * grad);
          out.dw[j * heads + n] += grad * x[at];
          out.dw_magnitude[j * heads + n] += std::abs(grad * x[at]);
        }
      }
    }
  }
  return out;
}

}  // namespace aclgrad::nsa_compress_grad

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_REFERENCE_H_

// SPDX-License-Identifier: Apache-2.0
// NsaCompress in double, window by window, on dense row-major data: the oracle of test, bench and
// fuzz. Beside each element stands A, the sum of the magnitudes of its terms, which scales the
// tolerance.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_REFERENCE_H_
#define ACLGRAD_OPS_NSA_COMPRESS_REFERENCE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aclgrad::nsa_compress {

// The first token of each window. `ends` are the sequences' cumulative ends.
inline std::vector<int64_t> window_starts(int64_t window, int64_t step,
                                          const std::vector<int64_t>& ends) {
  std::vector<int64_t> starts;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t start = begin; start + window <= end; start += step) starts.push_back(start);
    begin = end;
  }
  return starts;
}

struct Reference {
  std::vector<double> y, y_magnitude;  // windows x heads x width
};

// x: tokens x heads x width; w: window x heads.
inline Reference reference(size_t heads, size_t width, size_t window,
                           const std::vector<int64_t>& starts, const std::vector<double>& x,
                           const std::vector<double>& w) {
  Reference out;
  out.y.assign(starts.size() * heads * width, 0.0);
  out.y_magnitude = out.y;
  for (size_t i = 0; i < starts.size(); ++i) {
    for (size_t j = 0; j < window; ++j) {
      const size_t token = static_cast<size_t>(starts[i]) + j;
      for (size_t n = 0; n < heads; ++n) {
        for (size_t c = 0; c < width; ++c) {
          const double term = w[j * heads + n] * x[(token * heads + n) * width + c];
          out.y[(i * heads + n) * width + c] += term;
          out.y_magnitude[(i * heads + n) * width + c] += std::abs(term);
        }
      }
    }
  }
  return out;
}

}  // namespace aclgrad::nsa_compress

#endif  // ACLGRAD_OPS_NSA_COMPRESS_REFERENCE_H_

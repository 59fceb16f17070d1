// SPDX-License-Identifier: Apache-2.0
// GroupedBiasAddGrad in double, row by row, on dense row-major data: the oracle of test, bench and
// fuzz. Beside the output stands A, the sum of the magnitudes of its terms, which scales the
// tolerance.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_REFERENCE_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace aclgrad::grouped_bias_add_grad {

// Rows [first, end) of dy; none where end <= first.
struct RowRange {
  int64_t first, end;
};

// The groups that ends (or sizes) name, clamped to the rows there are; running sums saturate.
inline std::vector<RowRange> named_groups(const std::vector<int64_t>& ends, bool sizes,
                                          int64_t rows) {
  using Limits = std::numeric_limits<int64_t>;
  std::vector<RowRange> out;
  int64_t previous = 0;
  for (const int64_t value : ends) {
    int64_t end = value;
    if (sizes && __builtin_add_overflow(previous, value, &end)) {
      end = value < 0 ? Limits::min() : Limits::max();
    }
    out.push_back({std::clamp(previous, int64_t{0}, rows), std::clamp(end, int64_t{0}, rows)});
    previous = end;
  }
  return out;
}

inline std::vector<RowRange> equal_groups(int64_t groups, int64_t rows) {
  std::vector<RowRange> out;
  for (int64_t group = 0; group < groups; ++group) {
    out.push_back({group * rows, (group + 1) * rows});
  }
  return out;
}

struct Reference {
  std::vector<double> dbias, dbias_magnitude;  // groups x cols
};

inline Reference reference(size_t cols, const std::vector<double>& dy,
                           const std::vector<RowRange>& groups) {
  Reference out;
  out.dbias.assign(groups.size() * cols, 0.0);
  out.dbias_magnitude.assign(groups.size() * cols, 0.0);
  for (size_t group = 0; group < groups.size(); ++group) {
    for (int64_t row = groups[group].first; row < groups[group].end; ++row) {
      for (size_t col = 0; col < cols; ++col) {
        const double term = dy[static_cast<size_t>(row) * cols + col];
        out.dbias[group * cols + col] += term;
        out.dbias_magnitude[group * cols + col] += std::abs(term);
      }
    }
  }
  return out;
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_REFERENCE_H_

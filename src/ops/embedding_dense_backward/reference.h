// SPDX-License-Identifier: Apache-2.0
// EmbeddingDenseBackward in double precision, no cleverness; the oracle of test, bench and fuzz.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_REFERENCE_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_REFERENCE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aclgrad::embedding_dense_backward {

struct ReferenceProblem {
  size_t cols = 0;
  size_t table_rows = 0;
  uint64_t padding = ~uint64_t{0};
  bool scale_by_frequency = false;
  std::vector<double> dy;       // [rows, cols]
  std::vector<double> indices;  // [rows]; a bool is 0 or 1
};

struct ReferenceResult {
  std::vector<double> dw;         // [table_rows, cols]
  std::vector<double> magnitude;  // of dw: the sum of the magnitudes of its terms
  size_t most_terms = 0;          // of any row of dw
  int64_t first_bad = -1;         // position of the first index out of range
};

inline ReferenceResult reference(const ReferenceProblem& p) {
  ReferenceResult result;
  result.dw.assign(p.table_rows * p.cols, 0.0);
  result.magnitude.assign(p.table_rows * p.cols, 0.0);
  std::vector<size_t> count(p.table_rows, 0);
  for (size_t r = 0; r < p.indices.size(); ++r) {
    const double index = std::trunc(p.indices[r]);
    if (!(index >= 0.0 && index < static_cast<double>(p.table_rows))) {
      if (result.first_bad < 0) result.first_bad = static_cast<int64_t>(r);
      continue;
    }
    const auto v = static_cast<size_t>(index);
    ++count[v];
    if (v == p.padding) continue;
    for (size_t c = 0; c < p.cols; ++c) {
      result.dw[v * p.cols + c] += p.dy[r * p.cols + c];
      result.magnitude[v * p.cols + c] += std::abs(p.dy[r * p.cols + c]);
    }
  }
  for (size_t v = 0; v < p.table_rows; ++v) {
    if (count[v] > result.most_terms) result.most_terms = count[v];
    if (!p.scale_by_frequency || count[v] == 0) continue;
    for (size_t c = 0; c < p.cols; ++c) {
      result.dw[v * p.cols + c] /= static_cast<double>(count[v]);
      result.magnitude[v * p.cols + c] /= static_cast<double>(count[v]);
    }
  }
  return result;
}

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_REFERENCE_H_

// SPDX-License-Identifier: Apache-2.0
// Embedding byte by byte, on dense data; the oracle of test, bench and fuzz.
#ifndef ACLGRAD_OPS_EMBEDDING_REFERENCE_H_
#define ACLGRAD_OPS_EMBEDDING_REFERENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aclgrad::embedding {

struct Reference {
  std::vector<uint8_t> y;
  int64_t first_bad = -1;  // position of the first index out of range
};

// table: table_rows rows of row_bytes bytes.
inline Reference reference(const std::vector<uint8_t>& table, size_t table_rows, size_t row_bytes,
                           const std::vector<double>& indices) {
  Reference out;
  out.y.assign(indices.size() * row_bytes, 0);
  for (size_t r = 0; r < indices.size(); ++r) {
    if (!(indices[r] >= 0.0 && indices[r] < static_cast<double>(table_rows))) {
      if (out.first_bad < 0) out.first_bad = static_cast<int64_t>(r);
      continue;
    }
    const size_t from = static_cast<size_t>(indices[r]) * row_bytes;
    std::copy_n(table.data() + from, row_bytes, out.y.data() + r * row_bytes);
  }
  return out;
}

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_REFERENCE_H_

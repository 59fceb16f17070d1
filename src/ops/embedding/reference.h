// SPDX-License-Identifier: Apache-2.0
// Embedding byte by byte and with canonical NaNs, on dense data; the oracle of test and fuzz.
#ifndef ACLGRAD_OPS_EMBEDDING_REFERENCE_H_
#define ACLGRAD_OPS_EMBEDDING_REFERENCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "acl/acl_base.h"

namespace aclgrad::embedding {

// Every NaN among floating numbers of this size becomes `quiet`.
template <class Bits>
void canonicalise(std::vector<uint8_t>& bytes, Bits infinity, Bits quiet) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, &bytes[at], sizeof(bits));
    const auto magnitude = static_cast<Bits>(static_cast<Bits>(bits << 1) >> 1);
    if (magnitude > infinity) std::memcpy(&bytes[at], &quiet, sizeof(quiet));
  }
}
inline void canonicalise(std::vector<uint8_t>& bytes, aclDataType dtype) {
  if (dtype == ACL_FLOAT || dtype == ACL_COMPLEX64) {
    canonicalise<uint32_t>(bytes, 0x7F800000u, 0x7FC00000u);
  } else if (dtype == ACL_DOUBLE || dtype == ACL_COMPLEX128) {
    canonicalise<uint64_t>(bytes, 0x7FF0000000000000u, 0x7FF8000000000000u);
  } else if (dtype == ACL_FLOAT16) {
    canonicalise<uint16_t>(bytes, 0x7C00u, 0x7E00u);
  } else if (dtype == ACL_BF16) {
    canonicalise<uint16_t>(bytes, 0x7F80u, 0x7FC0u);
  }
}

struct Reference {
  std::vector<uint8_t> y;
  int64_t first_bad = -1;  // position of the first index out of range
};

// table: table_rows rows of row_bytes bytes.
inline Reference reference(const std::vector<uint8_t>& table, size_t table_rows, size_t row_bytes,
                           const std::vector<double>& indices, aclDataType dtype) {
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
  canonicalise(out.y, dtype);
  return out;
}

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_REFERENCE_H_

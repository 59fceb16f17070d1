// SPDX-License-Identifier: Apache-2.0
// Indices of any dtype.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_INDEX_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_INDEX_H_

#include <cstdint>
#include <type_traits>

#include "aclnn/acl_meta.h"
#include "base/dtype.h"
#include "base/half.h"

namespace aclgrad::embedding_dense_backward {

struct BoolByte {
  uint8_t byte;
};

// An index of any dtype. It is good when it lies, truncated toward zero, in [0, table_rows).
template <class T>
struct Index {
  int64_t integer = 0;
  double floating = 0.0;

  constexpr explicit Index(T value) {
    if constexpr (std::is_integral_v<T>) {
      integer = value;  // NOLINT(bugprone-signed-char-misuse): an int8 index has a sign
    } else if constexpr (std::is_same_v<T, BoolByte>) {
      integer = value.byte != 0 ? 1 : 0;
    } else if constexpr (std::is_same_v<T, double>) {
      floating = value;
    } else {
      floating = static_cast<double>(to_float(value));
    }
  }
  // -1 when it is bad. Comparing before converting keeps NaN and huge values defined.
  constexpr int64_t row(int64_t table_rows) const {
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, BoolByte>) {
      return integer >= 0 && integer < table_rows ? integer : -1;
    } else {
      const bool good = floating > -1.0 && floating < static_cast<double>(table_rows);
      return good ? static_cast<int64_t>(floating) : -1;
    }
  }
};

template <class Fn>
constexpr void visit_index(aclDataType dtype, Fn&& fn) {
  switch (dtype) {
    case ACL_FLOAT:
      return fn(float{});
    case ACL_FLOAT16:
      return fn(float16_t{});
    case ACL_DOUBLE:
      return fn(double{});
    case ACL_INT64:
      return fn(int64_t{});
    case ACL_INT32:
      return fn(int32_t{});
    case ACL_INT16:
      return fn(int16_t{});
    case ACL_INT8:
      return fn(int8_t{});
    case ACL_UINT8:
      return fn(uint8_t{});
    default:
      return fn(BoolByte{});
  }
}

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_INDEX_H_

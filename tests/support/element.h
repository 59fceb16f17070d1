// SPDX-License-Identifier: Apache-2.0
// One element of a tensor as a double, in both directions.
#ifndef ACLGRAD_TESTS_SUPPORT_ELEMENT_H_
#define ACLGRAD_TESTS_SUPPORT_ELEMENT_H_

#include <cstring>
#include <stdexcept>

#include "base/dtype.h"
#include "base/half.h"

namespace aclgrad::test {

template <class T>
T load_as(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <class T>
void store_as(void* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

inline double load_element(aclDataType dtype, const void* from) {
  switch (dtype) {
    case ACL_FLOAT:
      return static_cast<double>(load_as<float>(from));
    case ACL_FLOAT16:
      return static_cast<double>(to_float(load_as<float16_t>(from)));
    case ACL_BF16:
      return static_cast<double>(to_float(load_as<bfloat16_t>(from)));
    case ACL_DOUBLE:
      return load_as<double>(from);
    case ACL_INT8:
      return load_as<int8_t>(from);
    case ACL_INT16:
      return load_as<int16_t>(from);
    case ACL_INT32:
      return load_as<int32_t>(from);
    case ACL_INT64:
      return static_cast<double>(load_as<int64_t>(from));
    case ACL_UINT8:
    case ACL_BOOL:
      return load_as<uint8_t>(from);
    default:
      throw std::invalid_argument("load_element: a dtype tests do not use");
  }
}

// Floating values are rounded to nearest even (16-bit ones by way of FP32), integers truncated.
inline void store_element(aclDataType dtype, double value, void* to) {
  switch (dtype) {
    case ACL_FLOAT:
      return store_as(to, static_cast<float>(value));
    case ACL_FLOAT16:
      return store_as(to, from_float<float16_t>(static_cast<float>(value)));
    case ACL_BF16:
      return store_as(to, from_float<bfloat16_t>(static_cast<float>(value)));
    case ACL_DOUBLE:
      return store_as(to, value);
    case ACL_INT8:
      return store_as(to, static_cast<int8_t>(value));
    case ACL_INT16:
      return store_as(to, static_cast<int16_t>(value));
    case ACL_INT32:
      return store_as(to, static_cast<int32_t>(value));
    case ACL_INT64:
      return store_as(to, static_cast<int64_t>(value));
    case ACL_UINT8:
    case ACL_BOOL:
      return store_as(to, static_cast<uint8_t>(value));
    default:
      throw std::invalid_argument("store_element: a dtype tests do not use");
  }
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_ELEMENT_H_

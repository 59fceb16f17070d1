// SPDX-License-Identifier: Apache-2.0
// Data types of the contract: size, names, and the storage type of each.
#ifndef ACLGRAD_BASE_DTYPE_H_
#define ACLGRAD_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "acl/acl_base.h"

namespace aclgrad {

// Bytes of one element; 0 for types that have no whole number of bytes and for unknown values.
constexpr size_t dtype_size(aclDataType dtype) {
  switch (dtype) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
    case ACL_HIFLOAT8:
    case ACL_FLOAT8_E5M2:
    case ACL_FLOAT8_E4M3FN:
    case ACL_FLOAT8_E8M0:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
    case ACL_UINT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_COMPLEX32:
      return 4;
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_DOUBLE:
    case ACL_COMPLEX64:
      return 8;
    case ACL_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

// The contract's name, for messages ("FLOAT16").
constexpr const char* dtype_name(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return "FLOAT";
    case ACL_FLOAT16:
      return "FLOAT16";
    case ACL_BF16:
      return "BFLOAT16";
    case ACL_DOUBLE:
      return "DOUBLE";
    case ACL_INT8:
      return "INT8";
    case ACL_INT16:
      return "INT16";
    case ACL_INT32:
      return "INT32";
    case ACL_INT64:
      return "INT64";
    case ACL_UINT8:
      return "UINT8";
    case ACL_UINT16:
      return "UINT16";
    case ACL_UINT32:
      return "UINT32";
    case ACL_UINT64:
      return "UINT64";
    case ACL_BOOL:
      return "BOOL";
    case ACL_STRING:
      return "STRING";
    case ACL_COMPLEX32:
      return "COMPLEX32";
    case ACL_COMPLEX64:
      return "COMPLEX64";
    case ACL_COMPLEX128:
      return "COMPLEX128";
    case ACL_INT4:
      return "INT4";
    case ACL_UINT1:
      return "UINT1";
    case ACL_HIFLOAT8:
      return "HIFLOAT8";
    case ACL_FLOAT8_E5M2:
      return "FLOAT8_E5M2";
    case ACL_FLOAT8_E4M3FN:
      return "FLOAT8_E4M3FN";
    case ACL_FLOAT8_E8M0:
      return "FLOAT8_E8M0";
    case ACL_FLOAT6_E3M2:
      return "FLOAT6_E3M2";
    case ACL_FLOAT6_E2M3:
      return "FLOAT6_E2M3";
    case ACL_FLOAT4_E2M1:
      return "FLOAT4_E2M1";
    case ACL_FLOAT4_E1M2:
      return "FLOAT4_E1M2";
    case ACL_DT_UNDEFINED:
      return "UNDEFINED";
  }
  return "an unknown dtype";
}

// The name in problem strings, "f16" in layer_norm_backward/f16/4096x1024.
constexpr const char* dtype_short_name(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return "f32";
    case ACL_FLOAT16:
      return "f16";
    case ACL_BF16:
      return "bf16";
    case ACL_DOUBLE:
      return "f64";
    case ACL_INT8:
      return "i8";
    case ACL_INT16:
      return "i16";
    case ACL_INT32:
      return "i32";
    case ACL_INT64:
      return "i64";
    case ACL_UINT8:
      return "u8";
    case ACL_BOOL:
      return "bool";
    default:
      return "other";
  }
}

// The three floating types every gradient operator works in.
constexpr bool is_float_dtype(aclDataType dtype) {
  return dtype == ACL_FLOAT || dtype == ACL_FLOAT16 || dtype == ACL_BF16;
}

// Storage of 16-bit floats as distinct types, so that templates can tell them apart.
struct float16_t {
  uint16_t bits;
};
struct bfloat16_t {
  uint16_t bits;
};

// Calls fn with a value of the storage type of a floating dtype (is_float_dtype must hold).
template <class Fn>
decltype(auto) visit_float(aclDataType dtype, Fn&& fn) {
  switch (dtype) {
    case ACL_FLOAT16:
      return fn(float16_t{});
    case ACL_BF16:
      return fn(bfloat16_t{});
    default:
      return fn(float{});
  }
}

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_DTYPE_H_

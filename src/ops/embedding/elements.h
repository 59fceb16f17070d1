// SPDX-License-Identifier: Apache-2.0
// What the copies need to know of a dtype: the bits of its infinity and of its canonical NaN, or
// that there are none. A complex number is two of its parts.
#ifndef ACLGRAD_OPS_EMBEDDING_ELEMENTS_H_
#define ACLGRAD_OPS_EMBEDDING_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/half.h"

namespace aclgrad::embedding {

// Integers and truth values, copied as they are.
struct PlainBits {
  using Bits = uint32_t;  // copied at a time
  static constexpr bool kFloating = false;
};
struct Float32Bits {
  using Bits = uint32_t;
  static constexpr bool kFloating = true;
  static constexpr Bits kInfinity = 0x7F800000u, kQuiet = kCanonicalNanF32;
};
struct Float16Bits {
  using Bits = uint16_t;
  static constexpr bool kFloating = true;
  static constexpr Bits kInfinity = 0x7C00u, kQuiet = kCanonicalNanF16;
};
struct Bfloat16Bits {
  using Bits = uint16_t;
  static constexpr bool kFloating = true;
  static constexpr Bits kInfinity = 0x7F80u, kQuiet = kCanonicalNanBf16;
};
struct Float64Bits {
  using Bits = uint64_t;
  static constexpr bool kFloating = true;
  static constexpr Bits kInfinity = 0x7FF0000000000000u, kQuiet = 0x7FF8000000000000u;
};

// fn(kind) for the kind of `dtype`.
template <class Fn>
void visit_kind(aclDataType dtype, Fn&& fn) {
  switch (dtype) {
    case ACL_FLOAT:
    case ACL_COMPLEX64:
      return fn(Float32Bits());
    case ACL_FLOAT16:
      return fn(Float16Bits());
    case ACL_BF16:
      return fn(Bfloat16Bits());
    case ACL_DOUBLE:
    case ACL_COMPLEX128:
      return fn(Float64Bits());
    default:
      return fn(PlainBits());
  }
}

// Bytes of the smallest register.
inline constexpr size_t kSmallest = 16;

// Zeros where `from` is null. Small rows do without the detour through the library's memcpy.
inline void copy_or_clear(char* to, const char* from, size_t bytes) {
  if (from == nullptr) {
    std::memset(to, 0, bytes);
    return;
  }
  switch (bytes) {
    case 1:
      std::memcpy(to, from, 1);
      return;
    case 2:
      std::memcpy(to, from, 2);
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    case 16:
      std::memcpy(to, from, 16);
      return;
    case 32:
      std::memcpy(to, from, 32);
      return;
    case 64:
      std::memcpy(to, from, 64);
      return;
    default:
      std::memcpy(to, from, bytes);
  }
}

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_ELEMENTS_H_

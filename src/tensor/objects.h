// SPDX-License-Identifier: Apache-2.0
// The objects behind scalars, arrays and lists: plain values, immutable after their creation.
#ifndef ACLGRAD_TENSOR_OBJECTS_H_
#define ACLGRAD_TENSOR_OBJECTS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "acl/acl_base.h"
#include "base/handle_table.h"

namespace aclgrad {

// The value's bytes, at most those of a COMPLEX128.
struct Scalar {
  Scalar(const void* value, size_t size, aclDataType type) : dtype(type) {
    std::memcpy(bytes.data(), value, size);
  }
  std::array<std::byte, 16> bytes{};
  aclDataType dtype;
};

template <class T>
struct HostArray {
  // The form of new that does not throw: sanitizers end the process in the one that does.
  HostArray(const T* source, uint64_t count) : values(new (std::nothrow) T[count]), size(count) {
    if (values == nullptr) throw std::bad_alloc();
    std::copy_n(source, count, values.get());
  }
  std::unique_ptr<T[]> values;
  uint64_t size;
};

// Bytes in place of bool: a program's array may hold bytes that are neither 0 nor 1.
using IntArray = HostArray<int64_t>;
using FloatArray = HostArray<float>;
using BoolArray = HostArray<uint8_t>;
// Members as handles: one that the program destroyed by itself is found dead, not dangling.
using TensorList = HostArray<const void*>;
using ScalarList = HostArray<const void*>;

extern constinit HandleTable<Scalar> scalars;
extern constinit HandleTable<IntArray> int_arrays;
extern constinit HandleTable<FloatArray> float_arrays;
extern constinit HandleTable<BoolArray> bool_arrays;
extern constinit HandleTable<TensorList> tensor_lists;
extern constinit HandleTable<ScalarList> scalar_lists;

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_OBJECTS_H_

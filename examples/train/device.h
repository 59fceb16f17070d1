// SPDX-License-Identifier: Apache-2.0
// Owners of what the interface hands out: the device, its memory, tensors. On the CPU device memory
// from aclrtMalloc is plain memory, so the matrix products read and write it in place; on another
// device they would belong there too.
#ifndef ACLGRAD_TRAIN_DEVICE_H_
#define ACLGRAD_TRAIN_DEVICE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

namespace aclgrad::train {

// Throws with the library's own explanation when a call was refused.
inline void require(int status, const std::string& call) {
  if (status == 0) return;
  const char* message = aclGetRecentErrMsg();
  throw std::runtime_error(call + " answered " + std::to_string(status) + ": " +
                           (message == nullptr ? "" : message));
}

// Device 0 with a stream, from the first to the last use of the library.
class Device {
 public:
  Device() {
    require(aclInit(nullptr), "aclInit");
    require(aclrtSetDevice(0), "aclrtSetDevice");
    require(aclrtCreateStream(&stream_), "aclrtCreateStream");
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    static_cast<void>(aclrtDestroyStream(stream_));
    static_cast<void>(aclrtResetDevice(0));
    static_cast<void>(aclFinalize());
  }
  aclrtStream stream() const { return stream_; }

 private:
  aclrtStream stream_ = nullptr;
};

// `size` elements of device memory, zero at first.
template <class T>
class Array {
 public:
  Array() = default;
  explicit Array(size_t size) : size_(size) {
    const size_t bytes = std::max<size_t>(size * sizeof(T), 1);
    void* memory = nullptr;
    require(aclrtMalloc(&memory, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    data_ = static_cast<T*>(memory);
    std::memset(memory, 0, bytes);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Array() {
    if (data_ != nullptr) static_cast<void>(aclrtFree(data_));
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  void fill(T value) { std::fill_n(data_, size_, value); }

 private:
  void swap(Array& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  T* data_ = nullptr;
  size_t size_ = 0;
};

using Dims = std::vector<int64_t>;

inline size_t element_count(const Dims& dims) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  return count;
}

// A contiguous tensor over memory that somebody else owns.
class Tensor {
 public:
  Tensor(const Dims& dims, aclDataType dtype, const void* memory)
      : handle_(aclCreateTensor(dims.data(), dims.size(), dtype, nullptr, 0, ACL_FORMAT_ND,
                                dims.data(), dims.size(), const_cast<void*>(memory))) {
    if (handle_ == nullptr) throw std::runtime_error("aclCreateTensor found no memory");
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  ~Tensor() { static_cast<void>(aclDestroyTensor(handle_)); }
  aclTensor* get() const { return handle_; }

 private:
  aclTensor* handle_;
};

// An array of numbers as an argument of a call.
class Numbers {
 public:
  explicit Numbers(const std::vector<int64_t>& values)
      : handle_(aclCreateIntArray(values.data(), values.size())) {}
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  ~Numbers() { static_cast<void>(aclDestroyIntArray(handle_)); }
  aclIntArray* get() const { return handle_; }

 private:
  aclIntArray* handle_;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_DEVICE_H_

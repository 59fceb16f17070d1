// SPDX-License-Identifier: Apache-2.0
// What the examples share: a tensor with its device memory, and a run of the two phases. C++11.
#ifndef DEVICE_TENSOR_H_
#define DEVICE_TENSOR_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

// Ends the program with the library's own explanation when a call was refused.
inline void check(int status, const char* call) {
  if (status == 0) return;
  const char* message = aclGetRecentErrMsg();
  std::printf("%s answered %d: %s\n", call, status, message == nullptr ? "" : message);
  std::exit(1);
}

// A contiguous tensor of `dtype` whose elements are stored as T, with its memory on the device.
template <class T>
class DeviceTensor {
 public:
  DeviceTensor(const std::vector<int64_t>& dims, aclDataType dtype, const std::vector<T>& values)
      : values_(values), dims_(dims) {
    const size_t bytes = values_.size() * sizeof(T);
    check(aclrtMalloc(&memory_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    check(aclrtMemcpy(memory_, bytes, values_.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE),
          "aclrtMemcpy");
    // Sizes and how many; the dtype; strides, null for row after row without gaps; the element of
    // the memory that comes first; the format, plain; what the memory holds in all; where it is.
    handle_ = aclCreateTensor(dims_.data(), dims_.size(), dtype, nullptr, 0, ACL_FORMAT_ND,
                              dims_.data(), dims_.size(), memory_);
  }
  // An output: `dims` elements, uninitialised as far as the operator is concerned.
  DeviceTensor(const std::vector<int64_t>& dims, aclDataType dtype)
      : DeviceTensor(dims, dtype, std::vector<T>(count(dims))) {}
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  ~DeviceTensor() {
    aclDestroyTensor(handle_);
    aclrtFree(memory_);
  }

  aclTensor* get() const { return handle_; }

  // Other elements, at the same address.
  void write(const std::vector<T>& values) {
    const size_t bytes = values_.size() * sizeof(T);
    check(aclrtMemcpy(memory_, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE),
          "aclrtMemcpy");
  }

  // The elements as they are on the device now.
  std::vector<T> read() const {
    std::vector<T> out(values_.size());
    const size_t bytes = out.size() * sizeof(T);
    check(aclrtMemcpy(out.data(), bytes, memory_, bytes, ACL_MEMCPY_DEVICE_TO_HOST), "aclrtMemcpy");
    return out;
  }

 private:
  static size_t count(const std::vector<int64_t>& dims) {
    size_t product = 1;
    for (const int64_t dim : dims) product *= static_cast<size_t>(dim);
    return product;
  }
  std::vector<T> values_;
  std::vector<int64_t> dims_;
  void* memory_ = nullptr;
  aclTensor* handle_ = nullptr;
};

// Phase two after a successful phase one: gives the operator its workspace, runs it on a stream of
// its own and waits.
inline void run(const char* name,
                aclnnStatus (*phase_two)(void*, uint64_t, aclOpExecutor*, aclrtStream),
                uint64_t workspace_size, aclOpExecutor* executor) {
  aclrtStream stream = nullptr;
  check(aclrtCreateStream(&stream), "aclrtCreateStream");
  void* workspace = nullptr;
  if (workspace_size > 0) {
    check(aclrtMalloc(&workspace, workspace_size, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  }
  check(phase_two(workspace, workspace_size, executor, stream), name);
  check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
  if (workspace != nullptr) aclrtFree(workspace);
  aclrtDestroyStream(stream);
}

// Prints values[begin, end) on one line.
inline void print(const char* label, const std::vector<float>& values, size_t begin, size_t end) {
  std::printf("%s", label);
  for (size_t i = begin; i < end; ++i) std::printf(" %g", static_cast<double>(values[i]));
  std::printf("\n");
}
inline void print(const char* label, const std::vector<float>& values) {
  print(label, values, 0, values.size());
}

// sum of a[i] * b[i]: the loss of which b is the gradient at a.
inline double weighted_sum(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Sets device 0 up, and puts it back at the end.
struct Device {
  Device() {
    check(aclInit(nullptr), "aclInit");
    check(aclrtSetDevice(0), "aclrtSetDevice");
  }
  ~Device() {
    aclrtResetDevice(0);
    aclFinalize();
  }
};

#endif  // DEVICE_TENSOR_H_

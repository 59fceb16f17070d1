// SPDX-License-Identifier: Apache-2.0
// The device and the stream that tests run on. Everything is set up at the first use and left to
// the process' end, as most programs do.
#ifndef ACLGRAD_TESTS_SUPPORT_DEVICE_H_
#define ACLGRAD_TESTS_SUPPORT_DEVICE_H_

#include <stdexcept>
#include <string>

#include "acl/acl.h"

namespace aclgrad::test {

// The newest messages of the calling thread, and none afterwards; "" when there is none.
inline std::string take_message() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? std::string() : std::string(text);
}

// For calls a test relies on without testing them: GoogleTest turns the exception into a failure.
inline void require(aclError status, const char* what) {
  if (status == ACL_SUCCESS) return;
  throw std::runtime_error(std::string(what) + " answered " + std::to_string(status) + ": " +
                           take_message());
}

// Gives the calling thread device 0; threads of a test call it once each.
inline void use_device() {
  static const bool initialised = [] {
    const aclError status = aclInit(nullptr);
    if (status != ACL_ERROR_REPEAT_INITIALIZE) require(status, "aclInit");
    return true;
  }();
  thread_local const bool ready = [] {
    require(aclrtSetDevice(0), "aclrtSetDevice");
    return true;
  }();
  static_cast<void>(initialised && ready);
}

// The stream that run() uses unless it is told another.
inline aclrtStream stream() {
  use_device();
  static const aclrtStream made = [] {
    aclrtStream result = nullptr;
    require(aclrtCreateStream(&result), "aclrtCreateStream");
    return result;
  }();
  return made;
}

// Device memory with an owner; `bytes` may be 0 (then there is none and get() is null).
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes) {
    use_device();
    if (bytes != 0) require(aclrtMalloc(&memory_, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  }
  DeviceMemory(DeviceMemory&& other) noexcept : memory_(other.memory_) { other.memory_ = nullptr; }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (memory_ != nullptr) static_cast<void>(aclrtFree(memory_));
  }
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_DEVICE_H_

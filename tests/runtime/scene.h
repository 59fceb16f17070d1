// SPDX-License-Identifier: Apache-2.0
// What the runtime's tests share: a device that is set, work made of a lambda, a gate that holds a
// stream until it is opened, and the messages of this thread.
#ifndef ACLGRAD_TESTS_RUNTIME_SCENE_H_
#define ACLGRAD_TESTS_RUNTIME_SCENE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "acl/acl.h"
#include "runtime/services.h"

namespace aclgrad::test {

template <class Body>
class LambdaWork final : public Work {
 public:
  explicit LambdaWork(Body body) : body_(std::move(body)) {}
  void run(DataErrors& errors) noexcept override {
    if constexpr (std::is_invocable_v<Body&, DataErrors&>) {
      body_(errors);
    } else {
      body_();
    }
  }

 private:
  Body body_;
};

template <class Body>
Status enqueue(aclrtStream stream, Body body) {
  return aclgrad_enqueue("aclnnTest", stream, new LambdaWork<Body>(std::move(body)), nullptr);
}

inline void enqueue_error(aclrtStream stream, const std::string& message) {
  ASSERT_EQ(enqueue(stream, [message](DataErrors& errors) { errors.report(message); }), 0);
}

// A value that a C program may pass although the enumeration has no such name.
template <class Enumeration>
Enumeration out_of_range(int value) {
  return static_cast<Enumeration>(value);
}

inline void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }
  // False when the gate stays closed for so long.
  bool wait_for(int milliseconds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

using SharedGate = std::shared_ptr<Gate>;
inline SharedGate make_gate() { return std::make_shared<Gate>(); }

// Holds the stream until the gate opens.
inline void enqueue_gate(aclrtStream stream, const SharedGate& gate) {
  ASSERT_EQ(enqueue(stream, [gate] { gate->wait(); }), 0);
}

inline std::string messages() {
  const char* text = aclGetRecentErrMsg();
  return text == nullptr ? "" : text;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The status, and a message that begins with the function's name behind the prefix.
inline void expect_refused(aclError status, aclError expected, const std::string& function) {
  EXPECT_EQ(status, expected) << function;
  const std::string text = messages();
  EXPECT_TRUE(contains(text, "): " + function + ": ")) << function << ": " << text;
}

// Resident bytes of this process.
inline size_t resident() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0;
  size_t pages = 0;
  file >> all >> pages;
  return pages * 4096;
}

inline void* make_memory(size_t size) {
  void* memory = nullptr;
  EXPECT_EQ(aclrtMalloc(&memory, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  return memory;
}

inline void* make_host_memory(size_t size) {
  void* memory = nullptr;
  EXPECT_EQ(aclrtMallocHost(&memory, size), 0);
  return memory;
}

inline aclrtStream make_stream() {
  aclrtStream stream = nullptr;
  EXPECT_EQ(aclrtCreateStream(&stream), 0);
  return stream;
}

inline aclrtEvent make_event() {
  aclrtEvent event = nullptr;
  EXPECT_EQ(aclrtCreateEvent(&event), 0);
  return event;
}

// The devices are GPUs (real or emulated): their memory and the host's are limited apart, and work
// that CUDA was given cannot be taken back.
inline bool on_cuda() { return aclgrad_has_device_queues(); }

// The device is set in this thread while a test runs, and no message is left from before.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    messages();
  }
  void TearDown() override { EXPECT_EQ(aclrtResetDevice(0), 0) << messages(); }
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_RUNTIME_SCENE_H_

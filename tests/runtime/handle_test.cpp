// SPDX-License-Identifier: Apache-2.0
// Generational handles: a million lives in one slot, stale ones refused for ever, many threads.
#include <functional>
#include <vector>

#include "base/handle_table.h"
#include "scene.h"

namespace aclgrad::test {
namespace {

using HandleTest = DeviceTest;
constexpr int kLives = kSanitized ? 20000 : 1000000;
constexpr size_t kGrowth = size_t{8} << 20;

// Returns the first handle; checks that the resident size is flat.
void* live_and_die(const char* kind, const std::function<void*()>& make,
                   const std::function<int(void*)>& destroy) {
  void* first = make();
  EXPECT_EQ(destroy(first), 0) << kind;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(destroy(make()), 0);
  const size_t before = resident();
  for (int i = 0; i < kLives; ++i) {
    void* handle = make();
    if (handle == first) ADD_FAILURE() << kind << ": the first handle came back";
    if (destroy(handle) != 0) ADD_FAILURE() << kind;
    if (testing::Test::HasFailure()) return first;
  }
  if (!kSanitized) {
    EXPECT_LT(resident(), before + kGrowth) << kind;
  }
  return first;
}

TEST_F(HandleTest, MillionEvents) {
  void* first = live_and_die(
      "event", [] { return make_event(); }, aclrtDestroyEvent);
  expect_refused(aclrtDestroyEvent(first), ACL_ERROR_RT_PARAM_INVALID, "aclrtDestroyEvent");
  EXPECT_EQ(aclrtRecordEvent(first, nullptr), ACL_ERROR_RT_PARAM_INVALID);
}

TEST_F(HandleTest, MillionStreams) {
  void* first = live_and_die(
      "stream", [] { return make_stream(); }, aclrtDestroyStream);
  expect_refused(aclrtDestroyStream(first), ACL_ERROR_RT_STREAM_CONTEXT, "aclrtDestroyStream");
  EXPECT_EQ(aclrtSynchronizeStream(first), ACL_ERROR_RT_STREAM_CONTEXT);
}

TEST_F(HandleTest, MillionContexts) {
  const auto make = [] {
    aclrtContext context = nullptr;
    EXPECT_EQ(aclrtCreateContext(&context, 0), 0);
    return context;
  };
  void* first = live_and_die("context", make, aclrtDestroyContext);
  expect_refused(aclrtDestroyContext(first), ACL_ERROR_RT_CONTEXT_NULL, "aclrtDestroyContext");
  EXPECT_EQ(aclrtSetCurrentContext(first), ACL_ERROR_RT_CONTEXT_NULL);
}

TEST_F(HandleTest, MillionDataBuffers) {
  void* first = live_and_die(
      "data buffer", [] { return static_cast<void*>(aclCreateDataBuffer(nullptr, 0)); },
      [](void* handle) { return aclDestroyDataBuffer(static_cast<aclDataBuffer*>(handle)); });
  expect_refused(aclDestroyDataBuffer(static_cast<aclDataBuffer*>(first)),
                 ACL_ERROR_RT_PARAM_INVALID, "aclDestroyDataBuffer");
}

TEST_F(HandleTest, MillionAllocations) {
  const size_t before = resident();
  for (int i = 0; i < kLives; ++i) {
    void* memory = nullptr;
    ASSERT_EQ(aclrtMalloc(&memory, static_cast<size_t>(i % 5000 + 1), ACL_MEM_MALLOC_HUGE_FIRST),
              0);
    ASSERT_EQ(aclrtFree(memory), 0);
  }
  if (!kSanitized) {
    EXPECT_LT(resident(), before + kGrowth);
  }
}

// Streams with work: their workers end and leave nothing behind.
TEST_F(HandleTest, StreamsWithWorkersLeaveNothing) {
  const auto live = [](int count) {
    for (int i = 0; i < count; ++i) {
      aclrtStream stream = make_stream();
      ASSERT_EQ(enqueue(stream, [] {}), 0);
      ASSERT_EQ(aclrtDestroyStream(stream), 0);
    }
  };
  live(200);
  sleep_ms(20);
  const size_t before = resident();
  live(2000);
  sleep_ms(50);
  if (!kSanitized) {
    EXPECT_LT(resident(), before + kGrowth);
  }
  const auto threads = [] {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
    }
    return -1;
  };
  for (int i = 0; i < 100 && threads() > 3; ++i) sleep_ms(20);
  EXPECT_LE(threads(), 3);
}

struct Counted {
  explicit Counted(std::atomic<int>* counter) : count(counter) { ++*count; }
  ~Counted() { --*count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  std::atomic<int>* count;
};

TEST(HandleTable, PinKeepsTheObjectAlive) {
  static HandleTable<Counted> table{Kind::kTensor};
  std::atomic<int> count{0};
  void* handle = table.create(&count);
  {
    auto pin = table.pin(handle);
    ASSERT_TRUE(pin);
    EXPECT_TRUE(table.destroy(handle));
    EXPECT_FALSE(table.destroy(handle));
    EXPECT_FALSE(table.pin(handle));
    EXPECT_FALSE(table.alive(handle));
    EXPECT_EQ(count, 1);
  }
  EXPECT_EQ(count, 0);
  void* next = table.create(&count);
  EXPECT_NE(next, handle);
  EXPECT_FALSE(table.pin(handle));
  EXPECT_TRUE(table.destroy(next));
}

TEST(HandleTable, KindsAndForeignPointers) {
  static HandleTable<Counted> tensors{Kind::kTensor};
  static HandleTable<Counted> events{Kind::kEvent};
  std::atomic<int> count{0};
  void* tensor = tensors.create(&count);
  EXPECT_FALSE(events.pin(tensor));
  EXPECT_FALSE(tensors.pin(nullptr));
  EXPECT_FALSE(tensors.pin(&count));
  EXPECT_FALSE(tensors.pin(reinterpret_cast<void*>(~uintptr_t{0})));
  EXPECT_STREQ(handle::describe(tensor, Kind::kEvent), "an aclTensor");
  EXPECT_STREQ(handle::describe(&count, Kind::kEvent), "not a handle of this library");
  EXPECT_STREQ(handle::describe(nullptr, Kind::kEvent), "null");
  EXPECT_TRUE(tensors.destroy(tensor));
  EXPECT_STREQ(handle::describe(tensor, Kind::kTensor), "destroyed or never made");
}

// An object that is read without a pin.
struct Numbered {
  static constexpr bool kStays = true;
  void begin(int64_t value) {
    low.store(value, std::memory_order_release);
    high.store(value, std::memory_order_release);
  }
  void end() { ++ended; }
  std::atomic<int64_t> low{0}, high{0};
  int ended = 0;
};

TEST(HandleTable, WhatStaysInItsSlotIsReadWithoutAPin) {
  static HandleTable<Numbered> table{Kind::kTensor};
  void* const first = table.create(7);
  int64_t read = 0;
  const auto look = [&](const Numbered& object) {
    read = object.low.load(std::memory_order_acquire);
  };
  EXPECT_TRUE(table.read(first, look));
  EXPECT_EQ(read, 7);
  {
    const auto pin = table.pin(first);
    EXPECT_TRUE(table.read(first, look));  // however many hold it
    EXPECT_TRUE(table.destroy(first));
    EXPECT_FALSE(table.read(first, look));
    EXPECT_EQ(pin->ended, 0);
  }
  EXPECT_FALSE(table.read(nullptr, look));
  EXPECT_FALSE(table.read(&read, look));
  void* const second = table.create(8);  // in the same slot
  EXPECT_FALSE(table.read(first, look));
  EXPECT_TRUE(table.read(second, look));
  EXPECT_EQ(read, 8);
  EXPECT_EQ(table.pin(second)->ended, 1);
  // Ended while it is read.
  EXPECT_FALSE(table.read(second, [&](const Numbered&) { EXPECT_TRUE(table.destroy(second)); }));
}

TEST(HandleTable, AReadIsOfOneObjectOrRefused) {
  static HandleTable<Numbered> table{Kind::kTensor};
  std::atomic<void*> shared{table.create(0)};
  std::atomic<bool> done{false};
  std::thread reader([&] {
    int64_t accepted = 0;
    while (!done.load() || accepted == 0) {
      int64_t low = 0, high = 0;
      const bool live = table.read(shared.load(), [&](const Numbered& object) {
        low = object.low.load(std::memory_order_acquire);
        high = object.high.load(std::memory_order_acquire);
      });
      if (!live) continue;
      ++accepted;
      ASSERT_EQ(low, high);
    }
  });
  for (int64_t i = 1; i < 50000; ++i) {
    void* const old = shared.load();
    ASSERT_TRUE(table.destroy(old));
    shared.store(table.create(i));
  }
  done = true;
  reader.join();
}

TEST(HandleTable, ManyThreads) {
  static HandleTable<Counted> table{Kind::kExecutor};
  std::atomic<int> count{0};
  std::atomic<void*> shared[4] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20000; ++i) {
        void* old = shared[t].exchange(table.create(&count));
        if (old != nullptr) {
          ASSERT_TRUE(table.destroy(old));
        }
        const auto pin = table.pin(shared[(t + i) % 4].load());
        if (pin) {
          ASSERT_EQ(pin->count, &count);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& handle : shared) EXPECT_TRUE(table.destroy(handle.load()));
  EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace aclgrad::test

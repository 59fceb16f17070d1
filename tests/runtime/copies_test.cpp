// SPDX-License-Identifier: Apache-2.0
// Copies and fills, and memory that is freed while they are queued or on their way.
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "scene.h"

namespace aclgrad::test {
namespace {

using MemoryTest = DeviceTest;
constexpr size_t kMib = size_t{1} << 20;

TEST_F(MemoryTest, CopyRulesInTheirOrder) {
  auto* memory = static_cast<char*>(make_memory(100));  // 160 bytes count
  auto* dead = static_cast<char*>(make_memory(100));
  ASSERT_EQ(aclrtFree(dead), 0);
  char local[256] = {1, 2, 3};
  constexpr int down = ACL_MEMCPY_HOST_TO_DEVICE;
  constexpr int wrong = 77;
  const aclError invalid = ACL_ERROR_INVALID_PARAM;
  const aclError range = ACL_ERROR_RT_PARAM_INVALID;
  const aclError advice = on_cuda() ? range : 0;  // on the CPU a wrong kind is
  struct Row {
    void* to;
    size_t most;
    const void* from;
    size_t count;
    int kind;
    aclError expected;
  };
  const Row rows[] = {{nullptr, 0, nullptr, 0, wrong, 0},
                      {nullptr, 8, local, 8, down, invalid},
                      {memory, 8, nullptr, 8, down, invalid},
                      {memory, 7, local, 8, wrong, range},
                      {dead, 8, dead, 8, wrong, 0},
                      {memory, 8, local, 8, wrong, invalid},
                      {memory, 8, local, 8, -1, invalid},
                      {memory, 160, local, 160, down, 0},
                      {memory, 161, local, 161, down, range},
                      {memory + 32, 128, local, 128, down, 0},
                      {memory + 32, 129, local, 129, down, range},
                      {local, 161, memory, 161, ACL_MEMCPY_DEVICE_TO_HOST, range},
                      {dead, 1, local, 1, down, range},
                      {local, 1, dead, 1, ACL_MEMCPY_DEVICE_TO_HOST, range},
                      {memory, 8, local, 8, ACL_MEMCPY_DEVICE_TO_HOST, advice},
                      {memory, 8, local, 8, ACL_MEMCPY_INTER_DEVICE_TO_DEVICE, advice},
                      {memory, 8, reinterpret_cast<const void*>(~uintptr_t{7}), 100, down, range}};
  aclrtStream stream = make_stream();
  for (const Row& row : rows) {
    const size_t index = static_cast<size_t>(&row - rows);
    SCOPED_TRACE(index);
    const aclError now =
        aclrtMemcpy(row.to, row.most, row.from, row.count, out_of_range<aclrtMemcpyKind>(row.kind));
    EXPECT_EQ(now, row.expected);
    EXPECT_EQ(contains(messages(), "aclrtMemcpy: "), row.expected != 0);
    const aclError later = aclrtMemcpyAsync(row.to, row.most, row.from, row.count,
                                            out_of_range<aclrtMemcpyKind>(row.kind), stream);
    EXPECT_EQ(later, row.expected);
    EXPECT_EQ(contains(messages(), "aclrtMemcpyAsync: "), row.expected != 0);
  }
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
}

TEST_F(MemoryTest, FillRulesInTheirOrder) {
  auto* memory = static_cast<unsigned char*>(make_memory(100));
  aclrtStream stream = make_stream();
  const aclError range = ACL_ERROR_RT_PARAM_INVALID;
  EXPECT_EQ(aclrtMemset(nullptr, 0, 1, 0), 0);
  EXPECT_EQ(aclrtMemsetAsync(nullptr, 0, 1, 0, stream), 0);
  expect_refused(aclrtMemset(nullptr, 8, 1, 8), ACL_ERROR_INVALID_PARAM, "aclrtMemset");
  expect_refused(aclrtMemset(memory, 7, 1, 8), range, "aclrtMemset");
  expect_refused(aclrtMemset(memory, 161, 1, 161), range, "aclrtMemset");
  expect_refused(aclrtMemsetAsync(nullptr, 8, 1, 8, stream), ACL_ERROR_INVALID_PARAM,
                 "aclrtMemsetAsync");
  expect_refused(aclrtMemsetAsync(memory, 7, 1, 8, stream), range, "aclrtMemsetAsync");
  EXPECT_EQ(aclrtMemset(memory, 160, 0x1FF, 160), 0);
  EXPECT_EQ(memory[159], 0xFF) << "the low byte of the value";
  EXPECT_EQ(aclrtMemsetAsync(memory, 100, 3, 50, stream), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(memory[49], 3);
  EXPECT_EQ(memory[50], 0xFF);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
  expect_refused(aclrtMemset(memory, 1, 0, 1), range, "aclrtMemset");
}

TEST_F(MemoryTest, CopiesMoveTheBytes) {
  std::mt19937 random(1);
  for (const size_t size : {size_t{1}, size_t{1000}, 5 * kMib + 3}) {
    std::vector<char> from(size), back(size);
    for (char& byte : from) byte = static_cast<char>(random());
    void* memory = make_memory(size);
    void* second = make_memory(size);
    EXPECT_EQ(aclrtMemcpy(memory, size, from.data(), size, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    EXPECT_EQ(aclrtMemcpyAsync(second, size, memory, size, ACL_MEMCPY_DEVICE_TO_DEVICE, nullptr),
              0);
    // Host memory that is not pinned: complete on return, behind what is queued.
    EXPECT_EQ(aclrtMemcpyAsync(back.data(), size, second, size, ACL_MEMCPY_DEFAULT, nullptr), 0);
    EXPECT_EQ(from, back);
    EXPECT_EQ(aclrtFree(memory), 0);
    EXPECT_EQ(aclrtFree(second), 0);
  }
}

TEST_F(MemoryTest, AsyncCopyReturnsAtOnceForPinnedMemoryOnly) {
  aclrtStream stream = make_stream();
  auto* memory = static_cast<char*>(make_memory(8));
  auto* pinned = static_cast<char*>(make_host_memory(8));
  std::memset(pinned, 1, 8);
  const SharedGate gate = make_gate();
  enqueue_gate(stream, gate);
  EXPECT_EQ(aclrtMemcpyAsync(memory, 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream), 0);
  aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
  EXPECT_EQ(aclrtStreamQuery(stream, &status), 0);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY) << "the pinned copy did not wait";
  char local[8] = {};
  std::atomic<bool> returned{false};
  std::thread copier([&] {
    EXPECT_EQ(aclrtMemcpyAsync(local, 8, memory, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream), 0);
    EXPECT_EQ(local[7], 1);
    returned = true;
  });
  sleep_ms(30);
  EXPECT_FALSE(returned);
  gate->open();
  copier.join();
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
  EXPECT_EQ(aclrtFreeHost(pinned), 0);
}

// Freed while queued work names it: dead at once, not given out again, its bytes still there.
TEST_F(MemoryTest, FreeNeverBlocksAndReleaseWaitsForQueuedWork) {
  for (const size_t size : {size_t{256}, 4 * kMib}) {
    aclrtStream stream = make_stream();
    auto* memory = static_cast<char*>(make_memory(size));
    const SharedGate gate = make_gate();
    enqueue_gate(stream, gate);
    ASSERT_EQ(aclrtMemsetAsync(memory, size, 9, size, stream), 0);
    std::atomic<int> seen{0};
    ASSERT_EQ(enqueue(stream, [&, memory] { seen = memory[size - 1]; }), 0);
    EXPECT_EQ(aclrtFree(memory), 0);
    EXPECT_EQ(aclgrad_find_allocation(memory).kind, AddressKind::kDeadDevice);
    expect_refused(aclrtFree(memory), ACL_ERROR_INVALID_PARAM, "aclrtFree");
    std::vector<void*> others;
    for (int i = 0; i < 20; ++i) {
      others.push_back(make_memory(size));
      EXPECT_NE(others.back(), memory);
      EXPECT_EQ(aclrtMemset(others.back(), size, 0, size), 0);
    }
    gate->open();
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    EXPECT_EQ(seen, 9);
    for (void* other : others) EXPECT_EQ(aclrtFree(other), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
  }
}

// Memory may be freed by another thread while a call that was given it is on its way: the call is
// refused, or the memory is released after it. What is written is each thread's own, and a half of
// it the stream's alone: a copy by the thread does not wait for what the stream was given before.
TEST_F(MemoryTest, FreeingUnderARunningCall) {
  constexpr size_t kThreads = 4;
  constexpr size_t kBytes = 4096;
  constexpr int kTurns = 5000;
  std::array<std::atomic<void*>, kThreads> slots{};
  std::vector<std::thread> threads;
  for (size_t own = 0; own < kThreads; ++own) {
    threads.emplace_back([&, own] {
      EXPECT_EQ(aclrtSetDevice(0), 0);
      aclrtStream stream = make_stream();
      const std::array<char, kBytes / 2> source{};
      for (int turn = 0; turn < kTurns; ++turn) {
        void* memory = nullptr;
        EXPECT_EQ(aclrtMalloc(&memory, kBytes, ACL_MEM_MALLOC_HUGE_FIRST), 0);
        if (void* const left = slots[own].exchange(memory)) {
          EXPECT_EQ(aclrtFree(left), 0);
        }
        constexpr size_t kHalf = kBytes / 2;
        char* const begin = static_cast<char*>(memory);
        char* const middle = begin + kHalf;
        char* const queued = turn % 2 == 0 ? begin : middle;
        char* const copied = turn % 2 == 0 ? middle : begin;
        aclrtMemsetAsync(queued, kHalf, 1, kHalf, stream);
        aclrtMemcpy(copied, kHalf, source.data(), kHalf, ACL_MEMCPY_HOST_TO_DEVICE);
        aclrtMemsetAsync(copied, kHalf, 2, kHalf, stream);
        if (void* const another = slots[(own + 1) % kThreads].exchange(nullptr)) {
          EXPECT_EQ(aclrtFree(another), 0);
        }
      }
      EXPECT_EQ(aclrtDestroyStream(stream), 0) << messages();
      messages();
      EXPECT_EQ(aclrtResetDevice(0), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::atomic<void*>& slot : slots) {
    if (void* const left = slot.load()) {
      EXPECT_EQ(aclrtFree(left), 0);
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

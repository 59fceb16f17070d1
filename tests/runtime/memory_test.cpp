// SPDX-License-Identifier: Apache-2.0
// Allocations, address knowledge, copies, deferred release, data buffers.
#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "scene.h"

namespace aclgrad::test {
namespace {

using MemoryTest = DeviceTest;
constexpr size_t kMib = size_t{1} << 20;

TEST_F(MemoryTest, SizesAndAlignment) {
  const std::pair<size_t, size_t> rows[] = {
      {1, 64},      {31, 64},     {32, 64},          {33, 96},
      {1000, 1056}, {4096, 4128}, {kMib, kMib + 32}, {3 * kMib + 1, 3 * kMib + 64}};
  for (const auto& [size, padded] : rows) {
    for (const bool host : {false, true}) {
      auto* memory = static_cast<char*>(host ? make_host_memory(size) : make_memory(size));
      ASSERT_NE(memory, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u) << size;
      std::memset(memory, 0x5A, padded);
      const Allocation found = aclgrad_find_allocation(memory + padded - 1);
      EXPECT_EQ(found.kind, host ? AddressKind::kHost : AddressKind::kDevice);
      EXPECT_EQ(found.begin, reinterpret_cast<uintptr_t>(memory));
      EXPECT_EQ(found.size, padded) << size;
      EXPECT_EQ(host ? aclrtFreeHost(memory) : aclrtFree(memory), 0);
      EXPECT_EQ(aclgrad_find_allocation(memory).kind,
                host ? AddressKind::kDeadHost : AddressKind::kDeadDevice);
    }
  }
  void* memory = nullptr;
  EXPECT_EQ(aclrtMallocAlign32(&memory, 10, ACL_MEM_MALLOC_NORMAL_ONLY), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
  EXPECT_EQ(aclrtFree(memory), 0);
}

TEST_F(MemoryTest, RefusedSizes) {
  void* memory = nullptr;
  const auto policy = ACL_MEM_MALLOC_HUGE_FIRST;
  expect_refused(aclrtMalloc(&memory, 0, policy), ACL_ERROR_INVALID_PARAM, "aclrtMalloc");
  expect_refused(aclrtMalloc(nullptr, 8, policy), ACL_ERROR_INVALID_PARAM, "aclrtMalloc");
  expect_refused(aclrtMallocAlign32(&memory, 0, policy), ACL_ERROR_INVALID_PARAM,
                 "aclrtMallocAlign32");
  expect_refused(aclrtMallocHost(&memory, 0), ACL_ERROR_INVALID_PARAM, "aclrtMallocHost");
  expect_refused(aclrtMallocHost(nullptr, 8), ACL_ERROR_INVALID_PARAM, "aclrtMallocHost");
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 0);
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  for (const size_t size : {kMost, kMost - 31, kMost - 63, kMost / 2, total + 1, total}) {
    expect_refused(aclrtMalloc(&memory, size, policy), ACL_ERROR_RT_MEMORY_ALLOCATION,
                   "aclrtMalloc");
    expect_refused(aclrtMallocHost(&memory, size), ACL_ERROR_RT_MEMORY_ALLOCATION,
                   "aclrtMallocHost");
  }
  EXPECT_EQ(memory, nullptr);
}

// Untouched memory costs nothing, so the limit can be reached: live sums count, both kinds
// together.
TEST_F(MemoryTest, SumOfLiveAllocationsIsLimited) {
  if (kSanitized) GTEST_SKIP() << "the reserved range is smaller than the machine's memory";
  if (on_cuda()) GTEST_SKIP() << "the device and the host have memory of their own";
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, &total), 0);
  const size_t third = total / 3;
  void* first = make_memory(third);
  void* second = make_host_memory(third);
  void* third_block = nullptr;
  expect_refused(aclrtMalloc(&third_block, third + kMib, ACL_MEM_MALLOC_HUGE_FIRST),
                 ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMalloc");
  EXPECT_EQ(aclrtFree(first), 0);
  EXPECT_EQ(aclrtMalloc(&third_block, third + kMib, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  EXPECT_EQ(aclrtFree(third_block), 0);
  EXPECT_EQ(aclrtFreeHost(second), 0);
}

TEST_F(MemoryTest, MemInfo) {
  size_t free_bytes = 0, total = 0;
  for (int attribute = ACL_DDR_MEM; attribute <= ACL_MEM_P2P_HUGE1G; ++attribute) {
    ASSERT_EQ(aclrtGetMemInfo(static_cast<aclrtMemAttr>(attribute), &free_bytes, &total), 0);
    EXPECT_GT(free_bytes, 0u);
    EXPECT_LE(free_bytes, total);
  }
  expect_refused(aclrtGetMemInfo(out_of_range<aclrtMemAttr>(99), &free_bytes, &total),
                 ACL_ERROR_INVALID_PARAM, "aclrtGetMemInfo");
  expect_refused(aclrtGetMemInfo(ACL_HBM_MEM, nullptr, &total), ACL_ERROR_INVALID_PARAM,
                 "aclrtGetMemInfo");
  expect_refused(aclrtGetMemInfo(ACL_HBM_MEM, &free_bytes, nullptr), ACL_ERROR_INVALID_PARAM,
                 "aclrtGetMemInfo");
}

TEST_F(MemoryTest, WrongAddressesAreNotFreed) {
  auto* memory = static_cast<char*>(make_memory(100));
  auto* host = static_cast<char*>(make_host_memory(100));
  char local[64] = {};
  for (void* wrong :
       {static_cast<void*>(nullptr), static_cast<void*>(memory + 1),
        static_cast<void*>(memory + 64), static_cast<void*>(local), static_cast<void*>(host),
        reinterpret_cast<void*>(uintptr_t{8}), reinterpret_cast<void*>(~uintptr_t{0})}) {
    expect_refused(aclrtFree(wrong), ACL_ERROR_INVALID_PARAM, "aclrtFree");
  }
  expect_refused(aclrtFreeHost(memory), ACL_ERROR_INVALID_PARAM, "aclrtFreeHost");
  expect_refused(aclrtFreeHost(nullptr), ACL_ERROR_INVALID_PARAM, "aclrtFreeHost");
  expect_refused(aclrtFreeHost(local), ACL_ERROR_INVALID_PARAM, "aclrtFreeHost");
  EXPECT_EQ(aclrtFree(memory), 0);
  EXPECT_EQ(aclrtFreeHost(host), 0);
  expect_refused(aclrtFree(memory), ACL_ERROR_INVALID_PARAM, "aclrtFree");
  expect_refused(aclrtFreeHost(host), ACL_ERROR_INVALID_PARAM, "aclrtFreeHost");
}

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

// The same size freed and allocated again and again does not grow the process.
TEST_F(MemoryTest, RepeatedAllocationIsFlat) {
  const size_t size = 16 * kMib;
  size_t after_first = 0;
  for (int i = 0; i < 200; ++i) {
    auto* memory = static_cast<char*>(make_memory(size));
    std::memset(memory, i, size);
    EXPECT_EQ(aclrtMemsetAsync(memory, size, 1, 64, nullptr), 0);
    EXPECT_EQ(aclrtFree(memory), 0);
    EXPECT_EQ(aclrtSynchronizeStream(nullptr), 0);
    if (i == 5) after_first = resident();
  }
  EXPECT_LT(resident(), after_first + 4 * size);
}

// Random sizes and lifetimes, patterns intact, from several threads; find() agrees all the time.
TEST_F(MemoryTest, ManyThreadsKeepTheirBytes) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      ASSERT_EQ(aclrtSetDevice(0), 0);
      std::mt19937 random(t + 1);
      struct Block {
        unsigned char* memory;
        size_t size;
        unsigned char pattern;
      };
      std::vector<Block> blocks;
      for (int i = 0; i < 1500; ++i) {
        if (blocks.size() < 40 && random() % 5 < 3) {
          const size_t size =
              random() % 50 == 0 ? 2 * kMib + random() % kMib : random() % 20000 + 1;
          auto* memory = static_cast<unsigned char*>(make_memory(size));
          const auto pattern = static_cast<unsigned char>(random());
          memory[0] = memory[size / 2] = memory[size - 1] = pattern;
          blocks.push_back({memory, size, pattern});
        } else if (!blocks.empty()) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          const Block block = blocks.back();
          blocks.pop_back();
          const Allocation found = aclgrad_find_allocation(block.memory + block.size / 2);
          ASSERT_EQ(found.begin, reinterpret_cast<uintptr_t>(block.memory));
          ASSERT_EQ(block.memory[0], block.pattern);
          ASSERT_EQ(block.memory[block.size / 2], block.pattern);
          ASSERT_EQ(block.memory[block.size - 1], block.pattern);
          ASSERT_EQ(aclrtFree(block.memory), 0);
        }
      }
      for (const Block& block : blocks) ASSERT_EQ(aclrtFree(block.memory), 0);
      ASSERT_EQ(aclrtResetDevice(0), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(MemoryTest, FindAmongThousands) {
  std::vector<char*> blocks;
  for (int i = 0; i < 5000; ++i) blocks.push_back(static_cast<char*>(make_memory(64)));
  for (char* block : blocks) {
    const Allocation found = aclgrad_find_allocation(block + 63);
    ASSERT_EQ(found.kind, AddressKind::kDevice);
    ASSERT_EQ(found.begin, reinterpret_cast<uintptr_t>(block));
    ASSERT_EQ(found.size, 96u);
  }
  for (size_t i = 0; i < blocks.size(); i += 2) ASSERT_EQ(aclrtFree(blocks[i]), 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    ASSERT_EQ(aclgrad_find_allocation(blocks[i]).kind,
              i % 2 == 0 ? AddressKind::kDeadDevice : AddressKind::kDevice);
  }
  for (size_t i = 1; i < blocks.size(); i += 2) ASSERT_EQ(aclrtFree(blocks[i]), 0);
  int local = 0;
  const AddressKind host = on_cuda() ? AddressKind::kPageable : AddressKind::kUnknown;
  EXPECT_EQ(aclgrad_find_allocation(&local).kind, host);
  EXPECT_EQ(aclgrad_find_allocation(nullptr).kind, host);
}

TEST(Memory, OutlivesDeviceAndFinalize) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  void* memory = make_memory(1000);
  void* host = make_host_memory(1000);
  ASSERT_EQ(aclrtResetDevice(0), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
  EXPECT_EQ(aclrtFreeHost(host), 0);
}

TEST_F(MemoryTest, Scratch) {
  if (on_cuda()) GTEST_SKIP() << "it comes out of the device's queue there";
  for (const size_t size : {size_t{1}, size_t{1000}, 10 * kMib}) {
    auto* memory = static_cast<char*>(aclgrad_allocate_scratch(size));
    ASSERT_NE(memory, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    std::memset(memory, 1, size);
    EXPECT_EQ(aclgrad_find_allocation(memory).kind, AddressKind::kDeadDevice);
    aclgrad_free_scratch(memory);
  }
  aclgrad_free_scratch(nullptr);
  EXPECT_EQ(aclgrad_allocate_scratch(std::numeric_limits<size_t>::max()), nullptr);
}

TEST(DataBuffer, HoldsWhatItWasGiven) {
  int local = 0;
  aclDataBuffer* buffer = aclCreateDataBuffer(&local, sizeof local);
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(aclGetDataBufferAddr(buffer), &local);
  EXPECT_EQ(aclGetDataBufferSizeV2(buffer), sizeof local);
  EXPECT_EQ(aclDestroyDataBuffer(buffer), 0);
  expect_refused(aclDestroyDataBuffer(buffer), ACL_ERROR_RT_PARAM_INVALID, "aclDestroyDataBuffer");
  expect_refused(aclDestroyDataBuffer(nullptr), ACL_ERROR_INVALID_PARAM, "aclDestroyDataBuffer");
  EXPECT_EQ(aclGetDataBufferAddr(buffer), nullptr);
  EXPECT_TRUE(contains(messages(), "aclGetDataBufferAddr: "));
  EXPECT_EQ(aclGetDataBufferSizeV2(buffer), 0u);
  EXPECT_TRUE(contains(messages(), "aclGetDataBufferSizeV2: "));
  aclDataBuffer* empty = aclCreateDataBuffer(nullptr, 0);
  ASSERT_NE(empty, nullptr);
  EXPECT_EQ(aclDestroyDataBuffer(empty), 0);
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

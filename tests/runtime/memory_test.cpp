// SPDX-License-Identifier: Apache-2.0
// Allocations, address knowledge, data buffers.
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

// What was found for an address holds while the count of its allocation's beginning stays.
TEST_F(MemoryTest, CountsOfChanges) {
  void* const kept = make_memory(4096);
  const auto begin = reinterpret_cast<uintptr_t>(kept);
  const uint64_t all = aclgrad_allocation_changes();
  const uint64_t before = aclgrad_allocation_changes_at(begin);
  int undisturbed = 0;
  std::vector<void*> others;
  for (int i = 0; i < 100; ++i) {
    const uint64_t last = aclgrad_allocation_changes_at(begin);
    others.push_back(make_memory(4096));
    undisturbed += aclgrad_allocation_changes_at(begin) == last ? 1 : 0;
  }
  EXPECT_GE(undisturbed, 80) << "allocations elsewhere";
  EXPECT_GT(aclgrad_allocation_changes(), all);
  for (void* const other : others) EXPECT_EQ(aclrtFree(other), 0);
  const uint64_t last = aclgrad_allocation_changes_at(begin);
  EXPECT_GE(last, before);
  EXPECT_EQ(aclrtFree(kept), 0);
  EXPECT_NE(aclgrad_allocation_changes_at(begin), last);
  EXPECT_EQ(aclgrad_find_allocation(kept).kind, AddressKind::kDeadDevice);
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

}  // namespace
}  // namespace aclgrad::test

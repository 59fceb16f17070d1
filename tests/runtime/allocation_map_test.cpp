// SPDX-License-Identifier: Apache-2.0
// The map of live allocations against std::map: many ranges, in all orders, and read while they
// change.
#include "runtime/allocation_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <iterator>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace aclgrad::test {
namespace {

using Ranges = std::map<uintptr_t, size_t>;

// Ranges lie in cells of this size and fill at most half of theirs.
constexpr uintptr_t kCell = 256;

void expect_found(const AllocationMap& map, const Ranges& ranges, uintptr_t address) {
  const AllocationMap::Range found = map.find(address);
  const auto above = ranges.upper_bound(address);
  const bool inside =
      above != ranges.begin() && address - std::prev(above)->first < std::prev(above)->second;
  ASSERT_EQ(found.size != 0, inside) << address;
  if (!inside) return;
  ASSERT_EQ(found.begin, std::prev(above)->first);
  ASSERT_EQ(found.size, std::prev(above)->second);
}

void expect_same(const AllocationMap& map, const Ranges& ranges, uintptr_t cells) {
  for (uintptr_t cell = 0; cell <= cells + 1; ++cell) {
    const uintptr_t begin = (cell + 1) * kCell;
    for (const uintptr_t address : {begin - 1, begin, begin + kCell / 4, begin + kCell / 2}) {
      expect_found(map, ranges, address);
    }
  }
}

// Like the library's own maps it is never destroyed: readers may look at any time.
AllocationMap& make_map() {
  static auto& made = *new std::vector<AllocationMap*>;
  made.push_back(new AllocationMap);
  return *made.back();
}

struct Both {
  AllocationMap& map = make_map();
  Ranges ranges;

  void insert(uintptr_t cell) {
    const uintptr_t begin = (cell + 1) * kCell;
    const size_t size = 1 + cell % (kCell / 2);
    if (ranges.emplace(begin, size).second) map.insert(begin, size);
  }
  void erase(uintptr_t begin) {
    const auto found = ranges.find(begin);
    ASSERT_EQ(map.erase(begin), found == ranges.end() ? 0 : found->second);
    if (found != ranges.end()) ranges.erase(found);
  }
};

TEST(AllocationMap, RangesInAnyOrder) {
  constexpr uintptr_t kCells = 20000;
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Both both;
  expect_same(both.map, both.ranges, 10);
  both.erase(kCell);
  for (uintptr_t cell = 0; cell < kCells / 4; ++cell) both.insert(cell);           // upwards
  for (uintptr_t cell = kCells; cell > 3 * kCells / 4; --cell) both.insert(cell);  // downwards
  expect_same(both.map, both.ranges, kCells);
  for (const uintptr_t limit : {kCells, kCells / 10, uintptr_t{3}}) {  // grows, shrinks, shrinks
    for (uintptr_t i = 0; i < 3 * kCells; ++i) {
      const uintptr_t cell = random() % (kCells + 1);
      if (both.ranges.size() < limit && random() % 2 == 0) {
        both.insert(cell);
      } else {
        auto next = both.ranges.lower_bound((cell + 1) * kCell);
        if (next == both.ranges.end()) next = both.ranges.begin();
        if (next != both.ranges.end()) both.erase(next->first);
      }
      expect_found(both.map, both.ranges, random() % ((kCells + 2) * kCell));
    }
    expect_same(both.map, both.ranges, kCells);
  }
  both.erase(kCells * kCell + 1);  // the beginning of none
  while (!both.ranges.empty()) both.erase(both.ranges.begin()->first);
  expect_same(both.map, both.ranges, kCells);
  both.insert(7);
  expect_same(both.map, both.ranges, 10);
}

TEST(AllocationMap, WhatStaysIsFoundWhileOthersComeAndGo) {
  constexpr uintptr_t kCells = 3000;
  AllocationMap& map = make_map();
  for (uintptr_t cell = 1; cell <= kCells; cell += 2) map.insert(cell * kCell, 100);
  std::atomic<bool> done{false};
  std::atomic<int64_t> looks{0};
  std::vector<std::thread> readers;
  for (uintptr_t first : {uintptr_t{1}, uintptr_t{501}}) {
    readers.emplace_back([&, first] {
      for (uintptr_t cell = first; !done.load(); cell = cell + 2 > kCells ? 1 : cell + 2) {
        const AllocationMap::Range inside = map.find(cell * kCell + 99);
        ASSERT_EQ(inside.begin, cell * kCell);
        ASSERT_EQ(inside.size, 100u);
        ASSERT_EQ(map.find(cell * kCell + 100).size, 0u);
        looks.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  // Leaves are split and joined.
  for (int turn = 0; turn < 5 || looks.load() < 1000; ++turn) {
    for (uintptr_t cell = 2; cell <= kCells; cell += 2) map.insert(cell * kCell, 50);
    for (uintptr_t cell = 2; cell <= kCells; cell += 2) {
      ASSERT_EQ(map.erase(cell * kCell), 50u);
    }
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace aclgrad::test

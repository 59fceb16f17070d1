// SPDX-License-Identifier: Apache-2.0
#include "runtime/allocation_map.h"

#include <algorithm>
#include <memory>

#include "runtime/services.h"

namespace aclgrad {
namespace {

constexpr size_t kFirstCapacity = 1024;
// A reader that met writers this often takes their lock.
constexpr int kTries = 64;

// Of all maps. Counts the begin and the end of a change, so that what was read between the two is
// not taken for settled.
constinit std::atomic<uint64_t> changes{0};

void move_entry(auto& to, const auto& from) noexcept {
  to.begin.store(from.begin.load(std::memory_order_relaxed), std::memory_order_release);
  to.size.store(from.size.load(std::memory_order_relaxed), std::memory_order_release);
}

}  // namespace

// Every store between begin and end is a release and every load of a reader an acquire: a reader
// that saw one of the stores also sees the odd version, and rejects what it read.
void AllocationMap::begin_change() noexcept {
  changes.fetch_add(1, std::memory_order_relaxed);
  version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}
void AllocationMap::end_change() noexcept {
  version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  changes.fetch_add(1, std::memory_order_release);
}

extern "C" uint64_t aclgrad_allocation_changes() noexcept {
  return changes.load(std::memory_order_acquire);
}

// The first entry that begins above the address.
size_t AllocationMap::upper_bound(const Table& table, size_t count, uintptr_t address) noexcept {
  size_t low = 0;
  while (count > 0) {
    const size_t half = count / 2;
    const bool above = table.entries[low + half].begin.load(std::memory_order_acquire) > address;
    low = above ? low : low + half + 1;
    count = above ? half : count - half - 1;
  }
  return low;
}

AllocationMap::Range AllocationMap::search(uintptr_t address) const noexcept {
  const Table* const table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return {};
  const size_t count = std::min(count_.load(std::memory_order_acquire), table->capacity);
  const size_t index = upper_bound(*table, count, address);
  if (index == 0) return {};
  const Entry& entry = table->entries[index - 1];
  const uintptr_t begin = entry.begin.load(std::memory_order_acquire);
  const size_t size = entry.size.load(std::memory_order_acquire);
  return address - begin < size ? Range{begin, size} : Range{};
}

AllocationMap::Range AllocationMap::find(uintptr_t address) const noexcept {
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = version_.load(std::memory_order_acquire);
    if ((before & 1) != 0) continue;
    const Range range = search(address);
    if (version_.load(std::memory_order_relaxed) == before) return range;
  }
  const std::lock_guard lock(writers_);
  return search(address);
}

void AllocationMap::grow() {
  Table* const old = table_.load(std::memory_order_relaxed);
  const size_t count = count_.load(std::memory_order_relaxed);
  auto table = std::make_unique<Table>();
  table->older = old;
  table->capacity = old == nullptr ? kFirstCapacity : 2 * old->capacity;
  table->entries = new Entry[table->capacity];
  for (size_t i = 0; i < count; ++i) move_entry(table->entries[i], old->entries[i]);
  table_.store(table.release(), std::memory_order_release);
}

void AllocationMap::insert(uintptr_t begin, size_t size) {
  const std::lock_guard lock(writers_);
  const size_t count = count_.load(std::memory_order_relaxed);
  const Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr || count == table->capacity) {
    grow();
    table = table_.load(std::memory_order_relaxed);
  }
  const size_t place = upper_bound(*table, count, begin);
  begin_change();
  for (size_t i = count; i > place; --i) move_entry(table->entries[i], table->entries[i - 1]);
  table->entries[place].begin.store(begin, std::memory_order_release);
  table->entries[place].size.store(size, std::memory_order_release);
  count_.store(count + 1, std::memory_order_release);
  end_change();
}

size_t AllocationMap::erase(uintptr_t begin) noexcept {
  const std::lock_guard lock(writers_);
  const size_t count = count_.load(std::memory_order_relaxed);
  const Table* const table = table_.load(std::memory_order_relaxed);
  if (table == nullptr) return 0;
  const size_t above = upper_bound(*table, count, begin);
  if (above == 0) return 0;
  const Entry& entry = table->entries[above - 1];
  if (entry.begin.load(std::memory_order_relaxed) != begin) return 0;
  const size_t size = entry.size.load(std::memory_order_relaxed);
  begin_change();
  for (size_t i = above; i < count; ++i) move_entry(table->entries[i - 1], table->entries[i]);
  count_.store(count - 1, std::memory_order_release);
  end_change();
  return size;
}

}  // namespace aclgrad

// SPDX-License-Identifier: Apache-2.0
#include "runtime/allocation_map.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "runtime/services.h"

namespace aclgrad {
namespace {

constexpr size_t kFirstCapacity = 64;
// A reader that met writers this often takes their lock.
constexpr int kTries = 64;

// Of all maps. Both count the begin and the end of a change, so that what was read between the two
// is not taken for settled.
constinit std::atomic<uint64_t> changes{0};
// The same for the ranges that begin at some of the addresses: whoever knows a live range is not
// disturbed by allocations elsewhere. A line each, because one thread counts while others look.
constexpr size_t kChangesBits = 8;
struct alignas(64) Changes {
  std::atomic<uint64_t> count{0};
};
constinit std::array<Changes, size_t{1} << kChangesBits> changes_at{};

// Fibonacci hashing: allocations often differ in a few middle bits only.
std::atomic<uint64_t>& changes_of(uintptr_t begin) noexcept {
  return changes_at[(uint64_t{begin} * 0x9E3779B97F4A7C15u) >> (64 - kChangesBits)].count;
}

void copy(auto& to, const auto& from) noexcept {
  to.store(from.load(std::memory_order_relaxed), std::memory_order_release);
}
void move_item(auto& to, const auto& from) noexcept {
  copy(to.begin, from.begin);
  if constexpr (requires { to.size; }) {
    copy(to.size, from.size);
  } else {
    copy(to.leaf, from.leaf);
  }
}

// Opens a gap at `place`, or closes the one there.
void move_up(auto* items, size_t place, size_t count) noexcept {
  for (size_t i = count; i > place; --i) move_item(items[i], items[i - 1]);
}
void move_down(auto* items, size_t place, size_t count) noexcept {
  for (size_t i = place + 1; i < count; ++i) move_item(items[i - 1], items[i]);
}

// The first item that begins above the address.
size_t upper_bound(const auto* items, size_t count, uintptr_t address) noexcept {
  size_t low = 0;
  while (count > 0) {
    const size_t half = count / 2;
    const bool above = items[low + half].begin.load(std::memory_order_acquire) > address;
    low = above ? low : low + half + 1;
    count = above ? half : count - half - 1;
  }
  return low;
}

size_t count_of(const auto& leaf) noexcept { return leaf.count.load(std::memory_order_relaxed); }

}  // namespace

// Every store between begin and end is a release and every load of a reader an acquire: a reader
// that saw one of the stores also sees the odd version, and rejects what it read.
void AllocationMap::begin_change(uintptr_t begin) noexcept {
  changes.fetch_add(1, std::memory_order_relaxed);
  changes_of(begin).fetch_add(1, std::memory_order_relaxed);
  version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}
void AllocationMap::end_change(uintptr_t begin) noexcept {
  version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  changes_of(begin).fetch_add(1, std::memory_order_release);
  changes.fetch_add(1, std::memory_order_release);
}

extern "C" uint64_t aclgrad_allocation_changes() noexcept {
  return changes.load(std::memory_order_acquire);
}
extern "C" uint64_t aclgrad_allocation_changes_at(uintptr_t begin) noexcept {
  return changes_of(begin).load(std::memory_order_acquire);
}

AllocationMap::Range AllocationMap::search(uintptr_t address) const noexcept {
  const Table* const table = table_.load(std::memory_order_acquire);
  if (table == nullptr) return {};
  const size_t leaves = std::min(count_.load(std::memory_order_acquire), table->capacity);
  const size_t branch = upper_bound(table->branches, leaves, address);
  if (branch == 0) return {};
  const Leaf* const leaf = table->branches[branch - 1].leaf.load(std::memory_order_acquire);
  if (leaf == nullptr) return {};
  const size_t count = leaf->count.load(std::memory_order_acquire);
  const size_t index = upper_bound(leaf->entries.data(), count, address);
  if (index == 0) return {};
  const Entry& entry = leaf->entries[index - 1];
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

// For one more leaf in the table.
void AllocationMap::make_room() {
  if (unused_ == nullptr) unused_ = new Leaf;
  Table* const old = table_.load(std::memory_order_relaxed);
  const size_t count = count_.load(std::memory_order_relaxed);
  if (old != nullptr && count < old->capacity) return;
  auto table = std::make_unique<Table>();
  table->older = old;
  table->capacity = old == nullptr ? kFirstCapacity : 2 * old->capacity;
  table->branches = new Branch[table->capacity];
  if (old != nullptr) {
    for (size_t i = 0; i < count; ++i) move_item(table->branches[i], old->branches[i]);
  }
  table_.store(table.release(), std::memory_order_release);
}

// The leaf where an entry that begins there belongs. There is at least one.
size_t AllocationMap::leaf_of(uintptr_t begin) const noexcept {
  const Table* const table = table_.load(std::memory_order_relaxed);
  const size_t above = upper_bound(table->branches, count_.load(std::memory_order_relaxed), begin);
  return above == 0 ? 0 : above - 1;
}

void AllocationMap::insert_leaf_locked(size_t index, Leaf* leaf) noexcept {
  Branch* const branches = table_.load(std::memory_order_relaxed)->branches;
  const size_t count = count_.load(std::memory_order_relaxed);
  move_up(branches, index, count);
  copy(branches[index].begin, leaf->entries[0].begin);
  branches[index].leaf.store(leaf, std::memory_order_release);
  count_.store(count + 1, std::memory_order_release);
}

void AllocationMap::erase_leaf_locked(size_t index) noexcept {
  Branch* const branches = table_.load(std::memory_order_relaxed)->branches;
  const size_t count = count_.load(std::memory_order_relaxed);
  Leaf* const leaf = branches[index].leaf.load(std::memory_order_relaxed);
  move_down(branches, index, count);
  count_.store(count - 1, std::memory_order_release);
  leaf->count.store(0, std::memory_order_release);
  leaf->next_unused = unused_;
  unused_ = leaf;
}

// The upper half of a full leaf moves to an unused one.
void AllocationMap::split_locked(size_t index) noexcept {
  Leaf* const leaf = table_.load(std::memory_order_relaxed)->branches[index].leaf;
  Leaf* const upper = unused_;
  unused_ = upper->next_unused;
  constexpr size_t kHalf = kLeafEntries / 2;
  for (size_t i = 0; i < kHalf; ++i) move_item(upper->entries[i], leaf->entries[kHalf + i]);
  upper->count.store(kHalf, std::memory_order_release);
  leaf->count.store(kHalf, std::memory_order_release);
  insert_leaf_locked(index + 1, upper);
}

// A leaf takes over the next one's entries where both together are far from full: so there are
// never more than a few leaves for what lives.
void AllocationMap::join_locked(size_t index) noexcept {
  if (index + 1 >= count_.load(std::memory_order_relaxed)) return;
  Branch* const branches = table_.load(std::memory_order_relaxed)->branches;
  Leaf* const leaf = branches[index].leaf.load(std::memory_order_relaxed);
  const Leaf* const next = branches[index + 1].leaf.load(std::memory_order_relaxed);
  const size_t count = count_of(*leaf);
  const size_t more = count_of(*next);
  if (count + more > kLeafEntries / 2) return;
  for (size_t i = 0; i < more; ++i) move_item(leaf->entries[count + i], next->entries[i]);
  leaf->count.store(count + more, std::memory_order_release);
  erase_leaf_locked(index + 1);
}

void AllocationMap::insert(uintptr_t begin, size_t size) {
  const std::lock_guard lock(writers_);
  make_room();
  const bool first = count_.load(std::memory_order_relaxed) == 0;
  size_t index = first ? 0 : leaf_of(begin);
  Branch* const branches = table_.load(std::memory_order_relaxed)->branches;
  begin_change(begin);
  if (first) {
    Leaf* const leaf = std::exchange(unused_, unused_->next_unused);
    insert_leaf_locked(0, leaf);
  } else if (count_of(*branches[index].leaf.load(std::memory_order_relaxed)) == kLeafEntries) {
    split_locked(index);
    index = leaf_of(begin);
  }
  Leaf* const leaf = branches[index].leaf.load(std::memory_order_relaxed);
  Entry* const entries = leaf->entries.data();
  const size_t count = count_of(*leaf);
  const size_t place = upper_bound(entries, count, begin);
  move_up(entries, place, count);
  entries[place].begin.store(begin, std::memory_order_release);
  entries[place].size.store(size, std::memory_order_release);
  leaf->count.store(count + 1, std::memory_order_release);
  copy(branches[index].begin, entries[0].begin);
  end_change(begin);
}

size_t AllocationMap::erase(uintptr_t begin) noexcept {
  const std::lock_guard lock(writers_);
  if (count_.load(std::memory_order_relaxed) == 0) return 0;
  const size_t index = leaf_of(begin);
  Branch& branch = table_.load(std::memory_order_relaxed)->branches[index];
  Leaf* const leaf = branch.leaf.load(std::memory_order_relaxed);
  Entry* const entries = leaf->entries.data();
  const size_t count = count_of(*leaf);
  const size_t above = upper_bound(entries, count, begin);
  if (above == 0 || entries[above - 1].begin.load(std::memory_order_relaxed) != begin) return 0;
  const size_t size = entries[above - 1].size.load(std::memory_order_relaxed);
  begin_change(begin);
  move_down(entries, above - 1, count);
  leaf->count.store(count - 1, std::memory_order_release);
  if (count == 1) {
    erase_leaf_locked(index);
  } else {
    copy(branch.begin, entries[0].begin);
    join_locked(index);
    if (index > 0) join_locked(index - 1);
  }
  end_change(begin);
  return size;
}

}  // namespace aclgrad

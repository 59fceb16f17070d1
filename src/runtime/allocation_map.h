// SPDX-License-Identifier: Apache-2.0
// The live allocations of one memory space: sorted leaves of a fixed size, and a sorted array of
// the leaves, under a sequence lock. Every phase two reads it, without a lock; a change moves part
// of one leaf, however many allocations there are. All shared words are atomic, so a reader that
// races with a writer reads stale numbers, notices, and tries again.
#ifndef ACLGRAD_RUNTIME_ALLOCATION_MAP_H_
#define ACLGRAD_RUNTIME_ALLOCATION_MAP_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace aclgrad {

class AllocationMap {
 public:
  struct Range {
    uintptr_t begin = 0;
    size_t size = 0;  // 0: no live allocation
  };

  constexpr AllocationMap() = default;
  AllocationMap(const AllocationMap&) = delete;
  AllocationMap& operator=(const AllocationMap&) = delete;

  // The new range overlaps none that is in the map. Throws std::bad_alloc, changing nothing.
  void insert(uintptr_t begin, size_t size);
  // The size of the range that starts at `begin`, 0 when there is none.
  size_t erase(uintptr_t begin) noexcept;
  // The range that contains the address.
  Range find(uintptr_t address) const noexcept;

 private:
  // Two pages: a change moves half of a leaf at most, and splits one every hundred insertions.
  static constexpr size_t kLeafEntries = 256;

  struct Entry {
    std::atomic<uintptr_t> begin{0};
    std::atomic<size_t> size{0};
  };
  struct Leaf {
    std::atomic<size_t> count{0};
    std::array<Entry, kLeafEntries> entries;
    Leaf* next_unused = nullptr;
  };
  struct Branch {
    std::atomic<uintptr_t> begin{0};  // of the leaf's first entry
    std::atomic<Leaf*> leaf{nullptr};
  };
  // Old tables are kept: a reader may still be in one. Together they are smaller than the newest.
  // Leaves are kept too, for later use.
  struct Table {
    Table* older = nullptr;
    size_t capacity = 0;
    Branch* branches = nullptr;
  };

  Range search(uintptr_t address) const noexcept;
  // All of these hold the writers' lock; those that end in _locked change what readers see.
  void make_room();
  size_t leaf_of(uintptr_t begin) const noexcept;
  void insert_leaf_locked(size_t index, Leaf* leaf) noexcept;
  void erase_leaf_locked(size_t index) noexcept;
  void split_locked(size_t index) noexcept;
  void join_locked(size_t index) noexcept;
  void begin_change(uintptr_t begin) noexcept;
  void end_change(uintptr_t begin) noexcept;

  mutable std::mutex writers_;
  std::atomic<uint64_t> version_{0};  // odd while a writer is at work
  std::atomic<Table*> table_{nullptr};
  std::atomic<size_t> count_{0};  // leaves
  Leaf* unused_ = nullptr;        // leaves without entries
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_ALLOCATION_MAP_H_

// SPDX-License-Identifier: Apache-2.0
// The live allocations of one memory space: a flat sorted array under a sequence lock. Every phase
// two reads it, without a lock; changes are rare. All shared words are atomic, so a reader that
// races with a writer reads stale numbers, notices, and tries again.
#ifndef ACLGRAD_RUNTIME_ALLOCATION_MAP_H_
#define ACLGRAD_RUNTIME_ALLOCATION_MAP_H_

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
  struct Entry {
    std::atomic<uintptr_t> begin{0};
    std::atomic<size_t> size{0};
  };
  // Old tables are kept: a reader may still be in one. Together they are smaller than the newest.
  struct Table {
    Table* older = nullptr;
    size_t capacity = 0;
    Entry* entries = nullptr;
  };

  Range search(uintptr_t address) const noexcept;
  static size_t upper_bound(const Table& table, size_t count, uintptr_t address) noexcept;
  void grow();
  void begin_change() noexcept;
  void end_change() noexcept;

  mutable std::mutex writers_;
  std::atomic<uint64_t> version_{0};  // odd while a writer is at work
  std::atomic<Table*> table_{nullptr};
  std::atomic<size_t> count_{0};
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_ALLOCATION_MAP_H_

// SPDX-License-Identifier: Apache-2.0
// A reserved range of addresses that gives out runs of pages. An address inside that belongs to no
// live allocation is known to be dead, which no allocator of the system can tell.
#ifndef ACLGRAD_RUNTIME_CPU_ADDRESS_RANGE_H_
#define ACLGRAD_RUNTIME_CPU_ADDRESS_RANGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace aclgrad {

class AddressRange {
 public:
  static constexpr size_t kRunGranule = size_t{64} << 10;
  static constexpr size_t kHugePage = size_t{2} << 20;

  AddressRange() = default;
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  // Reserves addresses (no memory) at the first call; false when the system gives none.
  bool reserve() noexcept;
  bool contains(uintptr_t address) const noexcept {
    const size_t size = size_.load(std::memory_order_acquire);  // 0 until begin_ is set
    return address - begin_.load(std::memory_order_relaxed) < size;
  }

  // A run of at least `bytes`, readable and writable, or null; `bytes` becomes the run's size. Runs
  // of 2 MiB and more start at a multiple of it, so that they can be huge pages.
  void* take_run(size_t& bytes) noexcept;
  // The pages go back to the system, the addresses are used again.
  void give_back_run(void* run, size_t bytes) noexcept;

 private:
  void* take_free_run(size_t bytes, size_t alignment);
  void* extend(size_t bytes, size_t alignment);
  void add_free_run(uintptr_t begin, size_t bytes);

  std::atomic<uintptr_t> begin_{0};
  std::atomic<size_t> size_{0};
  std::mutex mutex_;
  uintptr_t frontier_ = 0;  // addresses above were never given out and cannot be touched
  std::map<uintptr_t, size_t> free_runs_;
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_CPU_ADDRESS_RANGE_H_

// SPDX-License-Identifier: Apache-2.0
#include "device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace emulated {
namespace {

// Addresses are given again to allocations of the same size only: room for the tests that have
// hundreds of GiB between the rows of a tensor, one after the other.
constexpr size_t kRange = size_t{1} << 44;
constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 256;
// Fresh memory holds this pattern, as a GPU's holds anything; of large runs the ends, which keeps
// untouched memory free.
constexpr int kFresh = 0xCB;
constexpr size_t kFilled = size_t{16} << 20;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

size_t DeviceMemory::total() {
  static const size_t kTotal = [] {
    const char* const value = std::getenv("ACLGRAD_EMULATED_GIB");
    return (value == nullptr ? size_t{2} : std::strtoul(value, nullptr, 10)) << 30;
  }();
  return kTotal;
}

bool DeviceMemory::reserve() {
  if (begin_ != 0) return true;
  void* const range =
      mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return false;
  begin_ = frontier_ = reinterpret_cast<uintptr_t>(range);
  return true;
}

bool DeviceMemory::contains(const void* address) const {
  return begin_ != 0 && reinterpret_cast<uintptr_t>(address) - begin_ < kRange;
}

uintptr_t DeviceMemory::take_run(size_t bytes) {
  const auto found = free_runs_.find(bytes);
  if (found != free_runs_.end()) {
    const uintptr_t run = found->second;
    free_runs_.erase(found);
    return run;
  }
  if (frontier_ + bytes + kPage > begin_ + kRange) return 0;
  const uintptr_t run = frontier_ + kPage;
  frontier_ = run + bytes;
  return run;
}

void* DeviceMemory::allocate(size_t bytes, cudaMemoryType type, int device) {
  const std::lock_guard lock(mutex_);
  if (!reserve()) return nullptr;
  const bool counts = type == cudaMemoryTypeDevice;
  if (bytes == 0 || bytes > total() || (counts && used_[device] + bytes > total())) return nullptr;
  const size_t run_bytes = round_up(bytes, kPage);
  const uintptr_t run = take_run(run_bytes);
  if (run == 0) return nullptr;
  void* const pages = reinterpret_cast<void*>(run);
  if (mprotect(pages, run_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(pages, kFresh, std::min(run_bytes, kFilled));
  // Behind it the page without rights begins as soon as its alignment allows.
  const uintptr_t begin = run + (run_bytes - round_up(bytes, kAlignment));
  live_[begin] = {{bytes, type, device}, run, run_bytes};
  if (counts) used_[device] += bytes;
  return reinterpret_cast<void*>(begin);
}

void DeviceMemory::give_back(const Entry& entry) {
  void* const pages = reinterpret_cast<void*>(entry.run);
  madvise(pages, entry.run_bytes, MADV_DONTNEED);
  mprotect(pages, entry.run_bytes, PROT_NONE);
  free_runs_.emplace(entry.run_bytes, entry.run);
  if (entry.allocation.type == cudaMemoryTypeDevice) {
    used_[entry.allocation.device] -= entry.allocation.bytes;
  }
}

bool DeviceMemory::release(void* memory, cudaMemoryType type) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == live_.end() || found->second.allocation.type != type) return false;
  give_back(found->second);
  live_.erase(found);
  return true;
}

void DeviceMemory::release_all(int device) {
  const std::lock_guard lock(mutex_);
  for (auto entry = live_.begin(); entry != live_.end();) {
    const Allocation& allocation = entry->second.allocation;
    const bool gone = allocation.device == device;
    if (gone) give_back(entry->second);
    entry = gone ? live_.erase(entry) : std::next(entry);
  }
}

Allocation DeviceMemory::find(const void* address, size_t* left) {
  const std::lock_guard lock(mutex_);
  return find_locked(address, left);
}

Allocation DeviceMemory::find_locked(const void* address, size_t* left) const {
  const auto number = reinterpret_cast<uintptr_t>(address);
  const auto above = live_.upper_bound(number);
  if (above == live_.begin()) return {};
  const auto& [begin, entry] = *std::prev(above);
  if (number - begin >= entry.allocation.bytes) return {};
  if (left != nullptr) *left = entry.allocation.bytes - (number - begin);
  return entry.allocation;
}

bool DeviceMemory::read(const void* address, uint32_t& word) {
  const std::lock_guard lock(mutex_);
  if (find_locked(address, nullptr).type == cudaMemoryTypeUnregistered) return false;
  word = __atomic_load_n(static_cast<const uint32_t*>(address), __ATOMIC_ACQUIRE);
  return true;
}

size_t DeviceMemory::free_bytes(int device) {
  const std::lock_guard lock(mutex_);
  return total() - used_[device];
}

DeviceMemory& device_memory() {
  static auto* const kMemory = new DeviceMemory;
  return *kMemory;
}

}  // namespace emulated

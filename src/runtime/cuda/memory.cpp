// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/memory.h"

#include <iterator>
#include <new>

namespace aclgrad::cuda {
namespace {

// A kept block may be this much larger than what is asked for.
constexpr size_t kSlackDivisor = 8;

}  // namespace

void Memory::free_block(Device& device, MemorySpace space, void* memory, uint64_t age) noexcept {
  addresses_.erase(reinterpret_cast<uintptr_t>(memory));
  if (age != device.age()) return;  // went with a reset
  const DeviceScope scope(device.number());
  device.note(space == MemorySpace::kDevice ? cudaFree(memory) : cudaFreeHost(memory));
}

void* Memory::allocate(Device& device, MemorySpace space, size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (void* const kept = take_kept(device, space, bytes)) return kept;
    evict(most_kept_);
    const DeviceScope scope(device.number());
    void* memory = nullptr;
    const cudaError_t error =
        space == MemorySpace::kDevice
            ? cudaMalloc(&memory, bytes)
            : cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess) {
      device.note(error);
      return nullptr;
    }
    try {
      addresses_.insert_or_assign(reinterpret_cast<uintptr_t>(memory), std::pair{bytes, space});
      live_.insert_or_assign(memory, Block{&device, space, bytes, device.age()});
    } catch (...) {
      free_block(device, space, memory, device.age());
      throw;
    }
    return memory;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* Memory::take_kept(Device& device, MemorySpace space, size_t bytes) {
  const auto found = kept_.find(Key{&device, space});
  if (found == kept_.end()) return nullptr;
  Kept& blocks = found->second;
  while (true) {
    const auto block = blocks.lower_bound(bytes);
    if (block == blocks.end() || block->first - bytes > bytes / kSlackDivisor) return nullptr;
    const auto [memory, age] = block->second;
    const size_t size = block->first;
    if (age == device.age()) live_.emplace(memory, Block{&device, space, size, age});
    if (age != device.age()) free_block(device, space, memory, age);
    blocks.erase(block);
    kept_bytes_ -= size;
    if (live_.contains(memory)) return memory;
  }
}

void Memory::release(void* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(memory);
  if (found == live_.end()) return;
  const Block block = found->second;
  live_.erase(found);
  bool keep = block.age == block.device->age();
  if (keep) {
    try {
      kept_[Key{block.device, block.space}].emplace(block.bytes, std::pair{memory, block.age});
      kept_bytes_ += block.bytes;
    } catch (const std::bad_alloc&) {
      keep = false;
    }
  }
  if (!keep) free_block(*block.device, block.space, memory, block.age);
}

void* Memory::take_lost(const Device& device, MemorySpace& space) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [key, blocks] : kept_) {
    if (key.first != &device) continue;
    for (auto block = blocks.begin(); block != blocks.end();) {
      const auto [memory, age] = block->second;
      if (age == device.age()) {
        ++block;
        continue;
      }
      addresses_.erase(reinterpret_cast<uintptr_t>(memory));
      kept_bytes_ -= block->first;
      block = blocks.erase(block);
    }
  }
  for (auto block = live_.begin(); block != live_.end(); ++block) {
    if (block->second.device != &device || block->second.age == device.age()) continue;
    void* const memory = block->first;
    space = block->second.space;
    addresses_.erase(reinterpret_cast<uintptr_t>(memory));
    live_.erase(block);
    return memory;
  }
  return nullptr;
}

size_t Memory::kept_bytes(Device& device) noexcept {
  const std::lock_guard lock(mutex_);
  size_t bytes = 0;
  const auto found = kept_.find(Key{&device, MemorySpace::kDevice});
  if (found == kept_.end()) return 0;
  for (const auto& [size, block] : found->second) {
    if (block.second == device.age()) bytes += size;
  }
  return bytes;
}

bool Memory::owns(const void* address, MemorySpace& space) noexcept {
  const auto number = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  const auto above = addresses_.upper_bound(number);
  if (above == addresses_.begin()) return false;
  const auto& [begin, block] = *std::prev(above);
  space = block.second;
  return number - begin < block.first;
}

// The largest first.
void Memory::evict(size_t most) {
  for (auto& [key, blocks] : kept_) {
    while (kept_bytes_ > most && !blocks.empty()) {
      const auto last = std::prev(blocks.end());
      free_block(*key.first, key.second, last->second.first, last->second.second);
      kept_bytes_ -= last->first;
      blocks.erase(last);
    }
  }
}

void Memory::trim() noexcept {
  const std::lock_guard lock(mutex_);
  evict(0);
}

}  // namespace aclgrad::cuda

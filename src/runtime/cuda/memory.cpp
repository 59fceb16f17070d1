// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/memory.h"

#include <iterator>
#include <new>

namespace aclgrad::cuda {
namespace {

// A kept block may be this much larger than what is asked for.
constexpr size_t kSlackDivisor = 8;

}  // namespace

// Waits for the device where CUDA is asked.
void Memory::free_block(const Victim& victim) noexcept {
  const auto& [device, space, memory, age] = victim;
  if (age != device->age()) return;  // went with a reset
  const DeviceScope scope(device->number());
  device->note(space == MemorySpace::kDevice ? cudaFree(memory) : cudaFreeHost(memory));
}

void* Memory::allocate(Device& device, MemorySpace space, size_t bytes,
                       cudaError_t& error) noexcept {
  {
    const std::lock_guard lock(mutex_);
    try {
      if (void* const kept = take_kept(device, space, bytes)) return kept;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  evict(most_kept_);
  const DeviceScope scope(device.number());
  const uint64_t age = device.age();
  void* memory = nullptr;
  error = space == MemorySpace::kDevice
              ? cudaMalloc(&memory, bytes)
              : cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  if (error != cudaSuccess) {
    device.note(error);
    return nullptr;
  }
  if (list(memory, {&device, space, bytes, age})) return memory;
  free_block({&device, space, memory, age});
  return nullptr;
}

bool Memory::list(void* memory, const Block& block) noexcept {
  const auto number = reinterpret_cast<uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  try {
    addresses_.insert_or_assign(number, std::pair{block.bytes, block.space});
    live_.insert_or_assign(memory, block);
    return true;
  } catch (const std::bad_alloc&) {
    addresses_.erase(number);
    return false;
  }
}

// With mutex_ held.
void* Memory::take_kept(Device& device, MemorySpace space, size_t bytes) {
  const auto found = kept_.find(Key{&device, space});
  if (found == kept_.end()) return nullptr;
  Kept& blocks = found->second;
  while (true) {
    const auto block = blocks.lower_bound(bytes);
    if (block == blocks.end() || block->first - bytes > bytes / kSlackDivisor) return nullptr;
    const auto [memory, age] = block->second;
    const size_t size = block->first;
    const bool alive = age == device.age();  // else it went with a reset
    if (alive) {
      live_.insert_or_assign(memory, Block{&device, space, size, age});
    } else {
      addresses_.erase(reinterpret_cast<uintptr_t>(memory));
    }
    blocks.erase(block);
    kept_bytes_ -= size;
    if (alive) return memory;
  }
}

void Memory::release(void* memory) noexcept {
  Victim victim{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(memory);
    if (found == live_.end()) return;
    const Block block = found->second;
    live_.erase(found);
    if (block.age == block.device->age()) {
      try {
        kept_[Key{block.device, block.space}].emplace(block.bytes, std::pair{memory, block.age});
        kept_bytes_ += block.bytes;
        return;
      } catch (const std::bad_alloc&) {
        // It goes back to CUDA.
      }
    }
    addresses_.erase(reinterpret_cast<uintptr_t>(memory));
    victim = {block.device, block.space, memory, block.age};
  }
  free_block(victim);
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

Device* Memory::holder(const void* address) noexcept {
  const auto number = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  const auto above = addresses_.upper_bound(number);
  if (above == addresses_.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(above);
  if (number - begin >= block.first || block.second != MemorySpace::kDevice) return nullptr;
  const auto found = live_.find(reinterpret_cast<void*>(begin));
  return found == live_.end() ? nullptr : found->second.device;
}

// The largest first.
bool Memory::take_victim(size_t most, Victim& victim) noexcept {
  const std::lock_guard lock(mutex_);
  if (kept_bytes_ <= most) return false;
  for (auto& [key, blocks] : kept_) {
    if (blocks.empty() || key.first->is_held()) continue;
    const auto last = std::prev(blocks.end());
    const auto [memory, age] = last->second;
    victim = {key.first, key.second, memory, age};
    kept_bytes_ -= last->first;
    addresses_.erase(reinterpret_cast<uintptr_t>(memory));
    blocks.erase(last);
    return true;
  }
  return false;
}

// CUDA waits for the device, and what that waits for may need the lists.
bool Memory::evict(size_t most) noexcept {
  for (Victim victim{}; take_victim(most, victim);) free_block(victim);
  const std::lock_guard lock(mutex_);
  return kept_bytes_ <= most;
}

}  // namespace aclgrad::cuda

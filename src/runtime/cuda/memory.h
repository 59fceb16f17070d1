// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs and pinned memory of the host. Freed blocks are kept for a while, because CUDA
// waits for the whole device when it frees one; CUDA is never called with the lists locked.
#ifndef ACLGRAD_RUNTIME_CUDA_MEMORY_H_
#define ACLGRAD_RUNTIME_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "runtime/backend.h"
#include "runtime/cuda/device.h"

namespace aclgrad::cuda {

class Memory {
 public:
  // Bytes of freed blocks that are kept.
  explicit Memory(size_t most_kept) : most_kept_(most_kept) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Null when there is none; `error` is then what CUDA answered, if it was asked.
  void* allocate(Device& device, MemorySpace space, size_t bytes, cudaError_t& error) noexcept;
  void release(void* memory) noexcept;
  // False where it cannot free everything now, because a stream is held.
  bool trim() noexcept { return evict(0); }
  // Forgets a live block that a reset of the device took away, and tells which; null when there is
  // none. CUDA may give its address to the next one.
  void* take_lost(const Device& device, MemorySpace& space) noexcept;
  // Bytes of the device that are kept.
  size_t kept_bytes(Device& device) noexcept;
  // Whose live memory an address lies in; null where it is in none of a device.
  Device* holder(const void* address) noexcept;
  // The address lies in memory that came from here, released or not; which space it is of.
  bool owns(const void* address, MemorySpace& space) noexcept;

 private:
  struct Block {
    Device* device;
    MemorySpace space;
    size_t bytes;
    uint64_t age;  // of the device
  };
  // Kept blocks of one device and space, by their sizes.
  using Key = std::pair<Device*, MemorySpace>;
  using Kept = std::multimap<size_t, std::pair<void*, uint64_t>>;

  // A block that is on no list any more.
  struct Victim {
    Device* device;
    MemorySpace space;
    void* memory;
    uint64_t age;
  };

  void* take_kept(Device& device, MemorySpace space, size_t bytes);
  bool list(void* memory, const Block& block) noexcept;
  bool take_victim(size_t most, Victim& victim) noexcept;
  bool evict(size_t most) noexcept;
  static void free_block(const Victim& victim) noexcept;

  const size_t most_kept_;
  std::mutex mutex_;
  std::unordered_map<void*, Block> live_;
  std::map<Key, Kept> kept_;
  std::map<uintptr_t, std::pair<size_t, MemorySpace>> addresses_;  // live and kept ones
  size_t kept_bytes_ = 0;
};

}  // namespace aclgrad::cuda

#endif  // ACLGRAD_RUNTIME_CUDA_MEMORY_H_

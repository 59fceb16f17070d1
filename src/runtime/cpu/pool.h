// SPDX-License-Identifier: Apache-2.0
// The allocator of one memory space: oneTBB's memory pool for small blocks, whole runs of pages for
// large ones, both out of the space's reserved addresses. Freed large blocks are kept for a while,
// because touching fresh pages costs more than most kernels do.
#ifndef ACLGRAD_RUNTIME_CPU_POOL_H_
#define ACLGRAD_RUNTIME_CPU_POOL_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/cpu/address_range.h"

namespace rml {
class MemoryPool;
}

namespace aclgrad {

class Pool {
 public:
  // `most_kept`: bytes of freed large blocks that stay mapped.
  explicit Pool(size_t most_kept) : most_kept_(most_kept) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // 64-byte aligned; null when there is no memory.
  void* allocate(size_t bytes) noexcept;
  void release(void* memory, size_t bytes) noexcept;
  // Gives all kept blocks back to the system.
  void trim() noexcept;
  bool contains(uintptr_t address) const noexcept { return range_.contains(address); }

 private:
  struct Kept {
    void* run = nullptr;
    size_t bytes = 0;
  };

  void* allocate_large(size_t bytes);
  void* take_kept(size_t bytes);
  void release_large(void* memory);
  void evict(size_t most);
  static void* take_chunk(intptr_t pool, size_t& bytes);
  static int give_back_chunk(intptr_t pool, void* chunk, size_t bytes);

  const size_t most_kept_;
  AddressRange range_;
  std::mutex mutex_;
  rml::MemoryPool* small_ = nullptr;
  std::unordered_map<void*, size_t> large_;  // live runs and their sizes
  std::vector<Kept> kept_;                   // oldest first
  size_t kept_bytes_ = 0;
};

}  // namespace aclgrad

#endif  // ACLGRAD_RUNTIME_CPU_POOL_H_

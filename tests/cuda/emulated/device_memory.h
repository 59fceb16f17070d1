// SPDX-License-Identifier: Apache-2.0
// The memory of the emulated devices: runs of pages in a reserved range of addresses, pages without
// rights between them, freed ones without rights too.
#ifndef ACLGRAD_TESTS_CUDA_EMULATED_DEVICE_MEMORY_H_
#define ACLGRAD_TESTS_CUDA_EMULATED_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "cuda_runtime.h"

namespace emulated {

struct Allocation {
  size_t bytes = 0;  // as asked for
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = 0;
};

class DeviceMemory {
 public:
  // Of one device: 2 GiB, or ACLGRAD_EMULATED_GIB of them. Untouched pages take no memory.
  static size_t total();

  void* allocate(size_t bytes, cudaMemoryType type, int device);
  bool release(void* memory, cudaMemoryType type);
  // Everything a device has, pinned memory of the host too, at a reset.
  void release_all(int device);
  // The allocation an address lies in; type unregistered when it is in none.
  Allocation find(const void* address, size_t* left = nullptr);
  // The word at a live address; false where there is none.
  bool read(const void* address, uint32_t& word);
  // Inside the reserved addresses.
  bool contains(const void* address) const;
  size_t free_bytes(int device);

 private:
  struct Entry {
    Allocation allocation;
    uintptr_t run;  // its pages
    size_t run_bytes;
  };
  bool reserve();
  uintptr_t take_run(size_t bytes);
  Allocation find_locked(const void* address, size_t* left) const;
  void give_back(const Entry& entry);

  std::mutex mutex_;
  uintptr_t begin_ = 0;
  uintptr_t frontier_ = 0;
  std::map<uintptr_t, Entry> live_;
  std::multimap<size_t, uintptr_t> free_runs_;
  std::map<int, size_t> used_;
};

DeviceMemory& device_memory();

}  // namespace emulated

#endif  // ACLGRAD_TESTS_CUDA_EMULATED_DEVICE_MEMORY_H_

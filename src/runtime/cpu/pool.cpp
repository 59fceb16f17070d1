// SPDX-License-Identifier: Apache-2.0
#include "runtime/cpu/pool.h"

#include <oneapi/tbb/scalable_allocator.h>

#include <new>

#include "runtime/cpu/poison.h"

namespace aclgrad {
namespace {

constexpr size_t kAlignment = 64;
// From here on a block is a run of its own: the run granule then wastes 6 % at most.
constexpr size_t kLarge = size_t{1} << 20;
// A kept block may be this much larger than what is asked for.
constexpr size_t kSlackDivisor = 8;

}  // namespace

void* Pool::take_chunk(intptr_t pool, size_t& bytes) {
  return reinterpret_cast<Pool*>(pool)->range_.take_run(bytes);
}

int Pool::give_back_chunk(intptr_t pool, void* chunk, size_t bytes) {
  reinterpret_cast<Pool*>(pool)->range_.give_back_run(chunk, bytes);
  return 0;
}

void* Pool::allocate(size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  void* memory = nullptr;
  if (bytes >= kLarge) {
    try {
      memory = allocate_large(bytes);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  } else {
    if (small_ == nullptr) {
      const rml::MemPoolPolicy policy(&Pool::take_chunk, &Pool::give_back_chunk,
                                      AddressRange::kHugePage, /*fixedPool=*/false,
                                      /*keepAllMemory=*/false);
      if (!range_.reserve() ||
          rml::pool_create_v1(reinterpret_cast<intptr_t>(this), &policy, &small_) != rml::POOL_OK) {
        small_ = nullptr;
        return nullptr;
      }
    }
    memory = rml::pool_aligned_malloc(small_, bytes, kAlignment);
  }
  if (memory != nullptr) unpoison(memory, bytes);
  return memory;
}

void Pool::release(void* memory, size_t bytes) noexcept {
  poison(memory, bytes);
  const std::lock_guard lock(mutex_);
  if (bytes >= kLarge) {
    release_large(memory);
  } else {
    rml::pool_free(small_, memory);
  }
}

void* Pool::allocate_large(size_t bytes) {
  if (void* const run = take_kept(bytes)) return run;
  size_t run_bytes = bytes;
  void* run = range_.take_run(run_bytes);
  if (run == nullptr) return nullptr;
  try {
    large_.emplace(run, run_bytes);
  } catch (...) {
    range_.give_back_run(run, run_bytes);
    throw;
  }
  return run;
}

// The newest block that fits well.
void* Pool::take_kept(size_t bytes) {
  for (size_t i = kept_.size(); i > 0; --i) {
    const Kept block = kept_[i - 1];
    if (block.bytes < bytes || block.bytes - bytes > bytes / kSlackDivisor) continue;
    large_.emplace(block.run, block.bytes);
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i - 1));
    kept_bytes_ -= block.bytes;
    return block.run;
  }
  return nullptr;
}

void Pool::release_large(void* memory) {
  const auto found = large_.find(memory);
  if (found == large_.end()) return;
  const Kept block{memory, found->second};
  large_.erase(found);
  bool keep = block.bytes <= most_kept_;
  if (keep) {
    try {
      kept_.push_back(block);
      kept_bytes_ += block.bytes;
    } catch (const std::bad_alloc&) {
      keep = false;
    }
  }
  if (!keep) range_.give_back_run(block.run, block.bytes);
  evict(most_kept_);
}

void Pool::evict(size_t most) {
  size_t gone = 0;
  for (; kept_bytes_ > most; ++gone) {
    range_.give_back_run(kept_[gone].run, kept_[gone].bytes);
    kept_bytes_ -= kept_[gone].bytes;
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(gone));
}

void Pool::trim() noexcept {
  const std::lock_guard lock(mutex_);
  evict(0);
}

}  // namespace aclgrad

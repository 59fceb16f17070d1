// SPDX-License-Identifier: Apache-2.0
#include "runtime/cpu/address_range.h"

#include <sys/mman.h>

#include <iterator>
#include <new>

#include "runtime/cpu/poison.h"

namespace aclgrad {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr size_t kWished = size_t{256} << 30;  // each reserved byte has shadow bytes
#else
constexpr size_t kWished = size_t{4} << 40;
#endif
constexpr size_t kLeast = size_t{64} << 20;

uintptr_t round_up_to(uintptr_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

bool AddressRange::reserve() noexcept {
  if (size_.load(std::memory_order_acquire) != 0) return true;
  const std::lock_guard lock(mutex_);
  if (size_.load(std::memory_order_relaxed) != 0) return true;
  // Less where the address space is limited (ulimit -v).
  for (size_t size = kWished; size >= kLeast; size /= 2) {
    void* const memory =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    frontier_ = round_up_to(begin, kHugePage);
    begin_.store(begin, std::memory_order_relaxed);
    size_.store(size, std::memory_order_release);
    return true;
  }
  return false;
}

void* AddressRange::take_run(size_t& bytes) noexcept {
  if (!reserve() || bytes > size_.load(std::memory_order_relaxed)) return nullptr;
  const size_t rounded = round_up_to(bytes, kRunGranule);
  const size_t alignment = rounded >= kHugePage ? kHugePage : kRunGranule;
  const std::lock_guard lock(mutex_);
  try {
    void* run = take_free_run(rounded, alignment);
    if (run == nullptr) run = extend(rounded, alignment);
    if (run != nullptr) bytes = rounded;
    return run;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// The tightest fit.
void* AddressRange::take_free_run(size_t bytes, size_t alignment) {
  auto best = free_runs_.end();
  for (auto run = free_runs_.begin(); run != free_runs_.end(); ++run) {
    const size_t padding = round_up_to(run->first, alignment) - run->first;
    if (run->second < padding + bytes) continue;
    if (best == free_runs_.end() || run->second < best->second) best = run;
  }
  if (best == free_runs_.end()) return nullptr;
  const uintptr_t begin = best->first;
  const size_t size = best->second;
  const uintptr_t taken = round_up_to(begin, alignment);
  const uintptr_t after = taken + bytes;
  // The new entry first: without memory for it nothing has changed.
  if (after < begin + size) free_runs_.emplace(after, begin + size - after);
  if (taken == begin) {
    free_runs_.erase(best);
  } else {
    best->second = taken - begin;
  }
  return reinterpret_cast<void*>(taken);
}

void* AddressRange::extend(size_t bytes, size_t alignment) {
  const uintptr_t end =
      begin_.load(std::memory_order_relaxed) + size_.load(std::memory_order_relaxed);
  const uintptr_t taken = round_up_to(frontier_, alignment);
  if (taken > end || bytes > end - taken) return nullptr;
  const size_t grown = taken + bytes - frontier_;
  void* const start = reinterpret_cast<void*>(frontier_);
  if (mprotect(start, grown, PROT_READ | PROT_WRITE) != 0) return nullptr;
  // Advice only: without huge pages everything works, slower.
  madvise(start, grown, MADV_HUGEPAGE);
  poison(start, grown);
  const uintptr_t old_frontier = frontier_;
  frontier_ = taken + bytes;
  if (taken > old_frontier) add_free_run(old_frontier, taken - old_frontier);
  return reinterpret_cast<void*>(taken);
}

// Joins the run with its free neighbours.
void AddressRange::add_free_run(uintptr_t begin, size_t bytes) {
  auto next = free_runs_.lower_bound(begin);
  if (next != free_runs_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      previous->second += bytes;
      if (next != free_runs_.end() && previous->first + previous->second == next->first) {
        previous->second += next->second;
        free_runs_.erase(next);
      }
      return;
    }
  }
  size_t size = bytes;
  if (next != free_runs_.end() && begin + bytes == next->first) {
    size += next->second;
    next = free_runs_.erase(next);
  }
  free_runs_.emplace_hint(next, begin, size);
}

void AddressRange::give_back_run(void* run, size_t bytes) noexcept {
  madvise(run, bytes, MADV_DONTNEED);
  poison(run, bytes);
  const std::lock_guard lock(mutex_);
  try {
    add_free_run(reinterpret_cast<uintptr_t>(run), bytes);
  } catch (const std::bad_alloc&) {
    // The addresses are lost, their memory is not.
  }
}

}  // namespace aclgrad

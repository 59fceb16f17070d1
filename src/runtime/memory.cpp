// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/allocation_map.h"
#include "runtime/process.h"
#include "runtime/stream_registry.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace aclgrad::memory {
namespace {

constexpr size_t kGranule = 32;
// The backend keeps at most this part of all memory in freed blocks.
constexpr size_t kKeptShare = 4;
// How long an allocation that finds no memory waits for work that holds freed memory.
constexpr int32_t kPatienceMilliseconds = 5000;
// Tries to take a lock that another thread holds, a few microseconds.
constexpr int kLockTries = 100;

struct Freed {
  uint64_t stamp = 0;
  MemorySpace space = MemorySpace::kDevice;
  void* address = nullptr;
  size_t size = 0;
};

constinit std::array<AllocationMap, 2> maps;
// What several threads write and read has a line of its own.
alignas(64) constinit std::atomic<uint64_t> ticket{1};

// Uses in progress: a thread that finds all slots taken waits for one.
constexpr uint64_t kUnused = UINT64_MAX;
struct alignas(64) UseSlot {
  std::atomic<uint64_t> since{kUnused};
};
constinit std::array<UseSlot, 64> use_slots;
constinit thread_local size_t last_slot = use_slots.size();  // none yet
constinit thread_local uint64_t own_ticket = kUnused;

// Live and freed but not yet released; of both spaces in the first where they share memory.
alignas(64) constinit std::array<std::atomic<size_t>, 2> bytes_held{};
// Of what had to stay in the list `freed`: every thread that ran work looks at it.
alignas(64) constinit std::atomic<size_t> deferred_bytes{0};
// So much may stay until somebody allocates or frees. A thread that ran work and gave back the last
// few bytes that another one freed would wait for that one's lock and lines: 2 us for a small call
// beside a thread that allocates and frees without pause, 1 without.
constexpr size_t kWorthTheLock = size_t{1} << 20;

// Guards what is below. `freed` is in the order of stamps; both lists always have room for all live
// allocations, so that freeing and losing them needs no memory.
alignas(64) constinit std::mutex freed_mutex;
constinit size_t live_count = 0;
constinit size_t freed_bytes = 0;  // in the list `freed`
constinit std::atomic<size_t> lost_count{0};

// It is held for less than going to sleep and being woken takes.
std::unique_lock<std::mutex> lock_freed() {
  std::unique_lock lock(freed_mutex, std::try_to_lock);
  for (int i = 0; i < kLockTries && !lock.owns_lock(); ++i) {
#if defined(__x86_64__)
    _mm_pause();
#endif
    lock.try_lock();
  }
  if (!lock.owns_lock()) lock.lock();
  return lock;
}

std::vector<Freed>& freed() {
  static auto* const kList = new std::vector<Freed>;
  return *kList;
}

// Not released by the program yet.
std::vector<Freed>& lost() {
  static auto* const kList = new std::vector<Freed>;
  return *kList;
}

AllocationMap& map_of(MemorySpace space) { return maps[static_cast<size_t>(space)]; }

std::atomic<size_t>& held_of(MemorySpace space) noexcept {
  return bytes_held[backend().spaces_share_memory() ? 0 : static_cast<size_t>(space)];
}

bool hold(MemorySpace space, size_t bytes) noexcept {
  const size_t total = backend().total_memory(space);
  std::atomic<size_t>& all = held_of(space);
  size_t held = all.load(std::memory_order_relaxed);
  do {
    if (bytes > total || held > total - bytes) return false;
  } while (!all.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  return true;
}

// `more`: there may be some when queued work is done.
void* take(int32_t device, MemorySpace space, size_t bytes, bool& more,
           Shortage& shortage) noexcept {
  shortage = {};
  if (!hold(space, bytes)) return nullptr;
  const size_t total = backend().total_memory(space);
  // What is kept for later must not push the process over the limit.
  const bool scarce = held_of(space).load(std::memory_order_relaxed) > total - total / kKeptShare;
  if (scarce) backend().trim();
  void* address = backend().allocate(device, space, bytes, shortage);
  if (address == nullptr) {
    more |= !backend().trim();
    address = backend().allocate(device, space, bytes, shortage);
  }
  if (address == nullptr) held_of(space).fetch_sub(bytes, std::memory_order_relaxed);
  return address;
}

void give_back(MemorySpace space, void* address, size_t bytes) noexcept {
  backend().release(space, address, bytes);
  held_of(space).fetch_sub(bytes, std::memory_order_relaxed);
}

void wait_for_queued_work() {
  const Deadline deadline = Deadline::in_milliseconds(kPatienceMilliseconds);
  for (const streams::Listed& listed : streams::all()) {
    listed.stream->wait(listed.stream->enqueued(), deadline, false);
  }
}

void* take_patiently(int32_t device, MemorySpace space, size_t bytes, Shortage& shortage) {
  bool more = deferred_bytes.load(std::memory_order_relaxed) != 0;
  void* address = take(device, space, bytes, more, shortage);
  if (address != nullptr || !more) return address;
  wait_for_queued_work();
  reclaim();
  return take(device, space, bytes, more, shortage);
}

void reserve_room_to_free() {
  const auto lock = lock_freed();
  const size_t needed = freed().size() + live_count + 1;
  if (freed().capacity() < needed) freed().reserve(2 * needed);
  const size_t to_lose = lost().size() + live_count + 1;
  if (lost().capacity() < to_lose) lost().reserve(2 * to_lose);
  ++live_count;
}

// What is in the list and matches is taken out of it. False when nothing is.
bool forget_lost(const auto& matches) noexcept {
  if (lost_count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(freed_mutex);
  const size_t forgotten = std::erase_if(lost(), matches);
  lost_count.store(lost().size(), std::memory_order_release);
  return forgotten != 0;
}
bool is_lost(MemorySpace space, uintptr_t address) noexcept {
  if (lost_count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(freed_mutex);
  return std::any_of(lost().begin(), lost().end(), [&](const Freed& entry) {
    return entry.space == space &&
           address - reinterpret_cast<uintptr_t>(entry.address) < entry.size;
  });
}

// Gives back what neither a use nor queued work names. False when some of it is left.
bool give_back_unnamed_locked() noexcept {
  // The uses first: one that ends meanwhile has left its work in a stream.
  uint64_t oldest = kUnused;
  for (const UseSlot& slot : use_slots) {
    oldest = std::min(oldest, slot.since.load(std::memory_order_seq_cst));
  }
  oldest = std::min(oldest, streams::oldest_ticket());
  std::vector<Freed>& list = freed();
  const auto end = std::find_if(list.begin(), list.end(),
                                [&](const Freed& entry) { return entry.stamp >= oldest; });
  for (auto entry = list.begin(); entry != end; ++entry) {
    give_back(entry->space, entry->address, entry->size);
    freed_bytes -= entry->size;
  }
  list.erase(list.begin(), end);
  return list.empty();
}

void reclaim_locked() noexcept {
  if (give_back_unnamed_locked()) {
    // Mostly none was there before: the line stays with those who read it.
    if (deferred_bytes.load(std::memory_order_relaxed) != 0) {
      deferred_bytes.store(0, std::memory_order_relaxed);
    }
    return;
  }
  // Work that has ended since may have found the old number: it is looked for again.
  deferred_bytes.store(freed_bytes, std::memory_order_seq_cst);
  give_back_unnamed_locked();
  deferred_bytes.store(freed_bytes, std::memory_order_relaxed);
}

}  // namespace

size_t padded_size(size_t size) noexcept {
  size_t padded = 0;
  if (__builtin_add_overflow(size, 2 * kGranule - 1, &padded)) return 0;
  return padded / kGranule * kGranule;
}

Status allocate(const char* function, int32_t device, MemorySpace space, size_t size, void** out) {
  reclaim_if_deferred();
  const size_t padded = padded_size(size);
  const size_t total = backend().total_memory(space);
  const size_t most = backend().most_memory(device, space);
  if (padded == 0 || padded > most) {
    const bool of_device = backend().has_queues() && space == MemorySpace::kDevice;
    return fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                "%s: size is %zu bytes, expected at most the %s's %zu", function, size,
                of_device ? "device" : "machine", most);
  }
  Shortage shortage;
  void* const address = take_patiently(device, space, padded, shortage);
  if (address == nullptr) {
    const bool words = shortage.name != nullptr;
    return fail(shortage.status,
                "%s: no memory for size %zu; %zu of %zu bytes are allocated%s%s%s%s", function,
                size, held_of(space).load(std::memory_order_relaxed), total,
                words ? "; the device answered " : "", words ? shortage.name : "",
                words ? ": " : "", words ? shortage.words : "");
  }
  // Its address may be that of something lost.
  forget_lost([&](const Freed& entry) {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    const auto other = reinterpret_cast<uintptr_t>(entry.address);
    return begin < other + entry.size && other < begin + padded;
  });
  try {
    reserve_room_to_free();
    try {
      map_of(space).insert(reinterpret_cast<uintptr_t>(address), padded);
    } catch (...) {
      const auto lock = lock_freed();
      --live_count;
      throw;
    }
  } catch (...) {
    give_back(space, address, padded);
    throw;
  }
  *out = address;
  return kOk;
}

Status release(const char* function, MemorySpace space, void* address) noexcept {
  const size_t size = map_of(space).erase(reinterpret_cast<uintptr_t>(address));
  if (size == 0) {
    const bool was_lost = forget_lost(
        [&](const Freed& entry) { return entry.space == space && entry.address == address; });
    if (was_lost) return kOk;
    return fail(ACL_ERROR_INVALID_PARAM,
                "%s: %s is %p, expected the start of a live allocation of this kind", function,
                space == MemorySpace::kDevice ? "devPtr" : "hostPtr", address);
  }
  // Near the end of the process abandoned work may still name it: the system takes it back.
  if (process::exiting()) return kOk;
  {
    const auto lock = lock_freed();
    const uint64_t stamp = ticket.fetch_add(1, std::memory_order_seq_cst);
    freed().push_back({stamp, space, address, size});
    freed_bytes += size;
    --live_count;
    reclaim_locked();
  }
  return kOk;
}

void lose(MemorySpace space, void* address) noexcept {
  const size_t size = map_of(space).erase(reinterpret_cast<uintptr_t>(address));
  if (size == 0) return;  // released, but not given back yet
  const std::lock_guard lock(freed_mutex);
  lost().push_back({0, space, address, size});
  --live_count;
  held_of(space).fetch_sub(size, std::memory_order_relaxed);
  lost_count.store(lost().size(), std::memory_order_release);
}

Allocation find(const void* pointer) noexcept {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  for (const MemorySpace space : {MemorySpace::kDevice, MemorySpace::kHost}) {
    if (!backend().may_hold(space, address)) continue;
    const AllocationMap::Range range = map_of(space).find(address);
    if (range.size == 0) continue;
    const bool device = space == MemorySpace::kDevice;
    return {device ? AddressKind::kDevice : AddressKind::kHost, range.begin, range.size};
  }
  if (is_lost(MemorySpace::kDevice, address)) return {AddressKind::kDeadDevice, 0, 0};
  if (is_lost(MemorySpace::kHost, address)) return {AddressKind::kDeadHost, 0, 0};
  return {backend().foreign_kind(pointer), 0, 0};
}

uint64_t current_ticket() noexcept {
  return own_ticket != kUnused ? own_ticket : ticket.load(std::memory_order_acquire);
}

size_t begin_use() noexcept {
  if (last_slot == use_slots.size()) {
    last_slot = std::hash<std::thread::id>()(std::this_thread::get_id()) % use_slots.size();
  }
  const uint64_t since = ticket.load(std::memory_order_acquire);
  for (size_t tried = 0;; ++tried) {
    uint64_t expected = kUnused;
    // The exchange comes before the checks that follow, and release() takes the allocation off the
    // map before it looks at the slots: one of the two sees the other.
    if (use_slots[last_slot].since.compare_exchange_strong(expected, since,
                                                           std::memory_order_seq_cst)) {
      own_ticket = since;
      return last_slot;
    }
    last_slot = (last_slot + 1) % use_slots.size();
    if (tried % use_slots.size() == use_slots.size() - 1) std::this_thread::yield();
  }
}

void end_use(size_t slot) noexcept {
  own_ticket = kUnused;
  use_slots[slot].since.store(kUnused, std::memory_order_release);
}

void reclaim_if_deferred() noexcept {
  if (deferred_bytes.load(std::memory_order_relaxed) != 0) reclaim();
}

void reclaim_if_much() noexcept {
  if (deferred_bytes.load(std::memory_order_relaxed) >= kWorthTheLock) reclaim();
}

void reclaim() noexcept {
  if (process::exiting()) return;
  const auto lock = lock_freed();
  reclaim_locked();
}

}  // namespace aclgrad::memory

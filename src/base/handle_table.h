// SPDX-License-Identifier: Apache-2.0
// Opaque generational handles: every object the interface hands out is a number, not an address.
//
// A handle packs a tag (kind of object), a generation and a slot number in a pointer-sized value:
//   bits 63..56 tag   55..24 generation   23..0 slot
// The tag makes it a non-canonical address, so it never equals a real pointer. Looking one up reads
// slots that are never given back to the system, hence a stale handle is refused without touching
// freed memory. Look-ups take no lock: they pin the slot with one compare-and-swap.
//
// Objects that say `kStays` are made with their slots and never destroyed; begin(...) and end()
// stand for construction and destruction then. They can also be read without a pin, which is two
// locked instructions less, where all that is read is atomic.
#ifndef ACLGRAD_BASE_HANDLE_TABLE_H_
#define ACLGRAD_BASE_HANDLE_TABLE_H_

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

namespace aclgrad {

enum class Kind : uint8_t {
  kTensor = 1,
  kScalar,
  kIntArray,
  kFloatArray,
  kBoolArray,
  kTensorList,
  kScalarList,
  kExecutor,
  kContext,
  kStream,
  kEvent,
  kDataBuffer,
};

// See above.
template <class T>
concept Stays = requires {
  T::kStays;
};

namespace handle {

inline constexpr uint64_t kSlotBits = 24;
inline constexpr uint64_t kMaxSlots = uint64_t{1} << kSlotBits;
inline constexpr uint64_t kTagShift = 56;

constexpr uint64_t tag(Kind kind) { return uint64_t{0x90} + static_cast<uint64_t>(kind); }
constexpr uint64_t pack(Kind kind, uint32_t generation, uint32_t slot) {
  return (tag(kind) << kTagShift) | (uint64_t{generation} << kSlotBits) | slot;
}
inline uint64_t bits(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

constexpr const char* kind_name(uint64_t tag_value) {
  constexpr const char* kNames[] = {"an aclTensor",     "an aclScalar",     "an aclIntArray",
                                    "an aclFloatArray", "an aclBoolArray",  "an aclTensorList",
                                    "an aclScalarList", "an aclOpExecutor", "a context",
                                    "a stream",         "an event",         "an aclDataBuffer"};
  const uint64_t index = tag_value - tag(Kind::kTensor);
  return index < std::size(kNames) ? kNames[index] : nullptr;
}

// What a refused handle is, for messages: "null", "an aclIntArray handle"-like text for another
// kind, "a destroyed handle" for the right one.
constexpr const char* describe(uint64_t bits_value, Kind expected) {
  if (bits_value == 0) return "null";
  const char* name = kind_name(bits_value >> kTagShift);
  if (name == nullptr) return "not a handle of this library";
  return (bits_value >> kTagShift) == tag(expected) ? "destroyed or never made" : name;
}
inline const char* describe(const void* handle, Kind expected) {
  return describe(bits(handle), expected);
}

}  // namespace handle

// Holds all live objects of one kind. Constant-initialised and never destroyed, so handles stay
// refusable in static destructors of the program.
template <class T>
class HandleTable {
  struct Slot;

 public:
  // Keeps one object alive while it is used; empty when the handle was refused.
  class Pin {
   public:
    Pin() = default;
    Pin(HandleTable* table, Slot* slot, uint32_t index)
        : table_(table), slot_(slot), index_(index) {}
    Pin(Pin&& other) noexcept
        : table_(other.table_), slot_(std::exchange(other.slot_, nullptr)), index_(other.index_) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(slot_, other.slot_);
      std::swap(index_, other.index_);
      return *this;
    }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() {
      if (slot_ != nullptr) table_->unpin(*slot_, index_);
    }
    explicit operator bool() const { return slot_ != nullptr; }
    T* get() const { return slot_ == nullptr ? nullptr : slot_->object(); }
    T* operator->() const { return slot_->object(); }
    T& operator*() const { return *slot_->object(); }

   private:
    HandleTable* table_ = nullptr;
    Slot* slot_ = nullptr;
    uint32_t index_ = 0;
  };

  constexpr explicit HandleTable(Kind kind) : kind_(kind) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // Makes an object and returns its handle. Throws std::bad_alloc when memory or slots are out.
  template <class... Args>
  void* create(Args&&... args) {
    const uint32_t index = take_slot();
    Slot& slot = at(index);
    try {
      if constexpr (Stays<T>) {
        slot.object()->begin(std::forward<Args>(args)...);
      } else {
        std::construct_at(slot.object(), std::forward<Args>(args)...);
      }
    } catch (...) {
      give_back(slot, index);
      throw;
    }
    const uint64_t generation = slot.state.load(std::memory_order_relaxed) >> kGenerationShift;
    slot.state.store((generation << kGenerationShift) | kAlive, std::memory_order_release);
    return reinterpret_cast<void*>(
        static_cast<uintptr_t>(handle::pack(kind_, static_cast<uint32_t>(generation), index)));
  }

  // The object behind a live handle of this kind, else an empty pin.
  Pin pin(const void* handle) noexcept {
    uint32_t index = 0;
    Slot* slot = find(handle, index);
    if (slot == nullptr) return {};
    uint64_t state = slot->state.load(std::memory_order_acquire);
    do {
      if (!is_live(state, handle)) return {};
    } while (!slot->state.compare_exchange_weak(state, state + 1, std::memory_order_acquire));
    return Pin(this, slot, index);
  }

  bool alive(const void* handle) noexcept {
    uint32_t index = 0;
    Slot* slot = find(handle, index);
    return slot != nullptr && is_live(slot->state.load(std::memory_order_acquire), handle);
  }

  // Calls read(object) without a pin. The object may end, or be another one's by then: false when
  // the handle was not that of a live object all the while, and what was read means nothing. Every
  // load of `read` must be an acquire, and every store of begin() a release.
  template <class Read>
  bool read(const void* handle, Read&& read) noexcept requires Stays<T> {
    return read_at(place_of(handle), handle, read);
  }

  // Where a handle of this kind leads, live or not; null for others. To find it takes as long as
  // the rest of read().
  using Place = const Slot*;
  Place place_of(const void* handle) noexcept {
    uint32_t index = 0;
    return find(handle, index);
  }
  template <class Read>
  static bool read_at(Place place, const void* handle, Read&& read) noexcept requires Stays<T> {
    if (place == nullptr || !is_live(place->state.load(std::memory_order_acquire), handle)) {
      return false;
    }
    read(*place->object());
    return is_live(place->state.load(std::memory_order_relaxed), handle);
  }

  // Ends a handle; the object goes when the last pin does. False when there was no such handle.
  bool destroy(const void* handle) noexcept {
    uint32_t index = 0;
    Slot* slot = find(handle, index);
    if (slot == nullptr) return false;
    uint64_t state = slot->state.load(std::memory_order_acquire);
    do {
      if (!is_live(state, handle)) return false;
    } while (!slot->state.compare_exchange_weak(state, state & ~kAlive, std::memory_order_acq_rel));
    if ((state & kPins) == 0) finish(*slot, index);
    return true;
  }

 private:
  // state = generation (32 bits) | alive (1 bit) | number of pins (31 bits)
  static constexpr uint64_t kGenerationShift = 32;
  static constexpr uint64_t kAlive = uint64_t{1} << 31;
  static constexpr uint64_t kPins = kAlive - 1;
  static constexpr uint64_t kFirstSegmentBits = 6;
  static constexpr size_t kSegments = handle::kSlotBits - kFirstSegmentBits + 1;

  struct Slot {
    std::atomic<uint64_t> state{0};
    std::atomic<uint32_t> next{0};
    alignas(T) std::byte storage[sizeof(T)];
    T* object() { return std::launder(reinterpret_cast<T*>(storage)); }
    const T* object() const { return std::launder(reinterpret_cast<const T*>(storage)); }
  };

  static bool is_live(uint64_t state, const void* handle) {
    const auto generation = static_cast<uint32_t>(handle::bits(handle) >> handle::kSlotBits);
    return (state & kAlive) != 0 && (state >> kGenerationShift) == generation;
  }

  // Segment k holds 64 << k slots, so slots never move and the table needs no lock to be read.
  static std::pair<size_t, size_t> position(uint32_t index) {
    const uint64_t shifted = uint64_t{index} + (uint64_t{1} << kFirstSegmentBits);
    const auto top = static_cast<size_t>(std::bit_width(shifted) - 1);
    return {top - kFirstSegmentBits, static_cast<size_t>(shifted - (uint64_t{1} << top))};
  }

  Slot& at(uint32_t index) {
    const auto [segment, offset] = position(index);
    return segments_[segment].load(std::memory_order_acquire)[offset];
  }

  Slot* find(const void* handle, uint32_t& index) noexcept {
    const uint64_t bits = handle::bits(handle);
    if ((bits >> handle::kTagShift) != handle::tag(kind_)) return nullptr;
    index = static_cast<uint32_t>(bits & (handle::kMaxSlots - 1));
    const auto [segment, offset] = position(index);
    if (segment >= kSegments) return nullptr;
    Slot* slots = segments_[segment].load(std::memory_order_acquire);
    return slots == nullptr ? nullptr : slots + offset;
  }

  void unpin(Slot& slot, uint32_t index) noexcept {
    const uint64_t before = slot.state.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kAlive) == 0 && (before & kPins) == 1) finish(slot, index);
  }

  void finish(Slot& slot, uint32_t index) noexcept {
    if constexpr (Stays<T>) {
      slot.object()->end();
    } else {
      std::destroy_at(slot.object());
    }
    give_back(slot, index);
  }

  // A slot whose 2^32 generations are used up is retired: no old handle may come alive again.
  void give_back(Slot& slot, uint32_t index) noexcept {
    const uint64_t generation =
        (slot.state.load(std::memory_order_relaxed) >> kGenerationShift) + 1;
    if ((generation >> 32) != 0) return;
    slot.state.store(generation << kGenerationShift, std::memory_order_release);
    uint64_t head = free_.load(std::memory_order_relaxed);
    uint64_t next_head = 0;
    do {
      slot.next.store(static_cast<uint32_t>(head), std::memory_order_relaxed);
      next_head = (((head >> 32) + 1) << 32) | (uint64_t{index} + 1);
    } while (!free_.compare_exchange_weak(head, next_head, std::memory_order_acq_rel));
  }

  // The free list is a stack of slot numbers + 1; its upper half counts changes (ABA).
  uint32_t take_slot() {
    uint64_t head = free_.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(head) != 0) {
      const uint32_t index = static_cast<uint32_t>(head) - 1;
      const uint64_t next = at(index).next.load(std::memory_order_relaxed);
      const uint64_t next_head = (((head >> 32) + 1) << 32) | next;
      if (free_.compare_exchange_weak(head, next_head, std::memory_order_acq_rel)) return index;
    }
    return new_slot();
  }

  uint32_t new_slot() {
    uint32_t index = used_.load(std::memory_order_relaxed);
    do {
      if (index >= handle::kMaxSlots - (uint64_t{1} << kFirstSegmentBits)) throw std::bad_alloc();
      make_segment(position(index).first);
    } while (!used_.compare_exchange_weak(index, index + 1, std::memory_order_acq_rel));
    return index;
  }

  // Two threads may both make the segment; the loser frees its copy.
  void make_segment(size_t segment) {
    if (segments_[segment].load(std::memory_order_acquire) != nullptr) return;
    const size_t count = size_t{1} << (segment + kFirstSegmentBits);
    auto slots = std::make_unique<Slot[]>(count);
    if constexpr (Stays<T>) {
      for (size_t i = 0; i < count; ++i) std::construct_at(slots[i].object());
    }
    Slot* expected = nullptr;
    if (segments_[segment].compare_exchange_strong(expected, slots.get(),
                                                   std::memory_order_acq_rel)) {
      slots.release();
    }
  }

  Kind kind_;
  std::atomic<uint64_t> free_{0};
  std::atomic<uint32_t> used_{0};
  std::atomic<Slot*> segments_[kSegments]{};
};

}  // namespace aclgrad

#endif  // ACLGRAD_BASE_HANDLE_TABLE_H_

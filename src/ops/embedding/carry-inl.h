// SPDX-License-Identifier: Apache-2.0
// Short rows that follow each other in memory, written past the cache from registers.

#if defined(ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#endif

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/lanes-inl.h"
#include "ops/embedding/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX2  // have shuffles of any lanes; a register is a line or half of one
// The lanes of a register moved up by a number of units, those at its end to its beginning. A unit
// is the size of an element, two bytes or four.
template <class Kind>
class Rotation {
 public:
  using Tag = TagOf<PlainBits, kCacheLine>;
  using Vec = hn::Vec<Tag>;
  static constexpr size_t kUnit = sizeof(typename Kind::Bits) == 2 ? 2 : 4;
  static constexpr size_t kBytes = hn::MaxLanes(Tag()) * sizeof(uint32_t);
  static constexpr size_t kUnits = kBytes / kUnit;

  HWY_INLINE explicit Rotation(size_t units)
      : units_(units), down_(indices(units / (sizeof(uint32_t) / kUnit))) {
    if constexpr (kUnit == 2) up_ = indices((units + 1) / 2 % kLanesOf);
  }
  // Rotated, with the first units of `before` in front.
  HWY_INLINE Vec behind(Vec before, Vec rotated) const {
    if constexpr (kUnit == 2) {
      const hn::Repartition<uint16_t, Tag> d16;
      return hn::BitCast(Tag(), hn::IfThenElse(hn::FirstN(d16, units_), hn::BitCast(d16, before),
                                               hn::BitCast(d16, rotated)));
    } else {
      return hn::IfThenElse(hn::FirstN(Tag(), units_), before, rotated);
    }
  }
  HWY_INLINE Vec operator()(Vec v) const {
    if constexpr (kUnit == 2) {
      // By an odd number: halves of lanes change places, and go to different lanes.
      const Tag d;
      const auto odd =
          hn::RebindMask(d, hn::Ne(hn::Set(d, static_cast<uint32_t>(units_ % 2)), hn::Zero(d)));
      const Vec halves = hn::IfThenElse(odd, hn::RotateRight<16>(v), v);
      const hn::Repartition<uint16_t, Tag> d16;
      return hn::BitCast(d, hn::OddEven(hn::BitCast(d16, hn::TableLookupLanes(halves, down_)),
                                        hn::BitCast(d16, hn::TableLookupLanes(halves, up_))));
    } else {
      return hn::TableLookupLanes(v, down_);
    }
  }

 private:
  static constexpr size_t kLanesOf = hn::MaxLanes(Tag());
  using Indices = decltype(hn::SetTableIndices(Tag(), static_cast<const uint32_t*>(nullptr)));

  static HWY_INLINE Indices indices(size_t lanes) {
    static constexpr auto kNumbers = [] {
      std::array<uint32_t, 2 * kLanesOf> out{};
      for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint32_t>(i % kLanesOf);
      return out;
    }();
    return hn::SetTableIndices(Tag(), kNumbers.data() + kLanesOf - lanes);
  }

  size_t units_;
  Indices down_, up_;
};

// Rows of at least a register. What does not fill a register of y yet is carried to the next row: a
// row's registers are loaded from its beginning on, rotated to where they belong in y, and joined
// with what is carried.
template <class Kind>
class CarryWriter {
  using Turn = Rotation<Kind>;
  using Tag = typename Turn::Tag;
  using Vec = typename Turn::Vec;
  static constexpr size_t kUnits = Turn::kUnits;

 public:
  static constexpr size_t kBytes = Turn::kBytes;

  HWY_INLINE CarryWriter() { carry_ = hn::Zero(Tag()); }
  HWY_INLINE void row(char* to, const char* from, size_t bytes) {
    const auto load = [from](size_t at) HWY_ATTR {
      if (HWY_UNLIKELY(from == nullptr)) return hn::Zero(Tag());
      return hn::BitCast(Tag(), load_canonical<Kind>(TagOf<Kind, kCacheLine>(), from + at));
    };
    if (HWY_UNLIKELY(place_ == nullptr)) {
      first_ = reinterpret_cast<uintptr_t>(to) % kBytes;
      carried_ = first_ / Turn::kUnit;
      place_ = to - first_;
    }
    const Turn turn(carried_);
    size_t at = 0;
    for (; at + kBytes <= bytes; at += kBytes) write(turn, turn(load(at)));
    if (at == bytes) return;
    const size_t all = carried_ + (bytes - at) / Turn::kUnit;
    const Vec last = Turn(all % kUnits)(load(bytes - kBytes));
    if (all >= kUnits) {
      write(turn, last);
    } else {
      carry_ = turn.behind(carry_, last);
    }
    carried_ = all % kUnits;
  }
  void flush() {
    if (place_ != nullptr && carried_ * Turn::kUnit > first_) put(carry_, carried_ * Turn::kUnit);
    place_ = nullptr;
  }

 private:
  HWY_INLINE void write(const Turn& turn, Vec rotated) {
    const Vec whole = turn.behind(carry_, rotated);
    if (HWY_UNLIKELY(first_ != 0)) {  // what is in front belongs to others
      put(whole, kBytes);
      first_ = 0;
    } else {
      hn::Stream(whole, Tag(), reinterpret_cast<uint32_t*>(place_));
    }
    place_ += kBytes;
    carry_ = rotated;
  }
  void put(Vec whole, size_t end) const {
    alignas(kCacheLine) char bytes[kBytes];
    hn::Store(whole, Tag(), reinterpret_cast<uint32_t*>(bytes));
    std::memcpy(place_ + first_, bytes + first_, end - first_);
  }

  Vec carry_;
  size_t carried_ = 0;     // units
  size_t first_ = 0;       // bytes at `place_` that are not ours
  char* place_ = nullptr;  // of the register to come
};
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Short rows that follow each other in memory, written from registers, a line or half of one at a
// time.

#if defined(ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#endif

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

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
  // AVX-512 shuffles lanes of two bytes as it does those of four.
  static constexpr bool kHalves = kUnit == 2 && HWY_TARGET > HWY_AVX3;
  using Lane = std::conditional_t<kUnit == 2 && !kHalves, uint16_t, uint32_t>;
  using Lanes = hn::Repartition<Lane, Tag>;

  HWY_INLINE explicit Rotation(size_t units)
      : units_(units), down_(indices(units / (sizeof(Lane) / kUnit))) {
    if constexpr (kHalves) up_ = indices((units + 1) / 2 % kLanesOf);
  }
  // Rotated, with the first units of `before` in front.
  HWY_INLINE Vec behind(Vec before, Vec rotated) const {
    using Units = std::conditional_t<kUnit == 2, uint16_t, uint32_t>;
    const hn::Repartition<Units, Tag> d;
    return hn::BitCast(Tag(), hn::IfThenElse(hn::FirstN(d, units_), hn::BitCast(d, before),
                                             hn::BitCast(d, rotated)));
  }
  HWY_INLINE Vec operator()(Vec v) const {
    if constexpr (kHalves) {
      // By an odd number: halves of lanes change places, and go to different lanes.
      const Tag d;
      const auto odd =
          hn::RebindMask(d, hn::Ne(hn::Set(d, static_cast<uint32_t>(units_ % 2)), hn::Zero(d)));
      const Vec halves = hn::IfThenElse(odd, hn::RotateRight<16>(v), v);
      const hn::Repartition<uint16_t, Tag> d16;
      return hn::BitCast(d, hn::OddEven(hn::BitCast(d16, hn::TableLookupLanes(halves, down_)),
                                        hn::BitCast(d16, hn::TableLookupLanes(halves, up_))));
    } else {
      return hn::BitCast(Tag(), looked_up(hn::BitCast(Lanes(), v), down_));
    }
  }

 private:
  static constexpr size_t kLanesOf = hn::MaxLanes(Lanes());
#if HWY_TARGET <= HWY_AVX3
  // Highway's own is for lanes of four bytes and more.
  using Indices = hn::Vec<Lanes>;
  static HWY_INLINE Indices set_indices(const Lane* numbers) { return hn::LoadU(Lanes(), numbers); }
  static HWY_INLINE hn::Vec<Lanes> looked_up(hn::Vec<Lanes> v, Indices indices) {
    if constexpr (sizeof(Lane) == 2) {
      return hn::Vec<Lanes>{_mm512_permutexvar_epi16(indices.raw, v.raw)};
    } else {
      return hn::Vec<Lanes>{_mm512_permutexvar_epi32(indices.raw, v.raw)};
    }
  }
#else
  using Indices = decltype(hn::SetTableIndices(Lanes(), static_cast<const Lane*>(nullptr)));
  static HWY_INLINE Indices set_indices(const Lane* numbers) {
    return hn::SetTableIndices(Lanes(), numbers);
  }
  static HWY_INLINE hn::Vec<Lanes> looked_up(hn::Vec<Lanes> v, Indices indices) {
    return hn::TableLookupLanes(v, indices);
  }
#endif

  static HWY_INLINE Indices indices(size_t lanes) {
    static constexpr auto kNumbers = [] {
      std::array<Lane, 2 * kLanesOf> out{};
      for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Lane>(i % kLanesOf);
      return out;
    }();
    return set_indices(kNumbers.data() + kLanesOf - lanes);
  }

  size_t units_;
  Indices down_, up_;
};

// What does not fill a register of y yet is carried to the next row: a row's registers are loaded
// from its beginning on, rotated to where they belong in y, and joined with what is carried. NaNs
// become canonical when a register is written: elements lie at multiples of their size in y.
template <class Kind>
class CarryWriter {
  using Turn = Rotation<Kind>;
  using Tag = typename Turn::Tag;
  using Vec = typename Turn::Vec;
  static constexpr size_t kUnits = Turn::kUnits;

 public:
  static constexpr size_t kBytes = Turn::kBytes;
  // The least of a row. AVX2 has no masked loads of two bytes, and two shuffles instead of one:
  // with 66 bytes that is slower than a stage (two Zen 4 cores: bf16 1100004x11107x33 6.8 -> 8.3
  // ms).
  static constexpr size_t kLeast = Turn::kHalves ? 80 : 1;

  // Rows of `bytes`, the first of which belongs at `y`.
  HWY_INLINE CarryWriter(char* y, size_t bytes, bool streaming)
      : bytes_(bytes),
        streaming_(streaming),
        first_(reinterpret_cast<uintptr_t>(y) % kBytes),
        carried_(first_ / Turn::kUnit),
        place_(y - first_) {
    carry_ = hn::Zero(Tag());
  }
  // Of at least a register. Null: zeros.
  HWY_INLINE void long_row(const char* from) {
    const auto load = [from](size_t at) HWY_ATTR {
      if (HWY_UNLIKELY(from == nullptr)) return hn::Zero(Tag());
      return hn::LoadU(Tag(), reinterpret_cast<const uint32_t*>(from + at));
    };
    const Turn turn(carried_);
    size_t at = 0;
    for (; at + kBytes <= bytes_; at += kBytes) {
      const Vec rotated = turn(load(at));
      write(turn.behind(carry_, rotated));
      carry_ = rotated;
    }
    if (at == bytes_) return;
    const size_t all = carried_ + (bytes_ - at) / Turn::kUnit;
    const Vec last = Turn(all % kUnits)(load(bytes_ - kBytes));
    const Vec joined = turn.behind(carry_, last);
    if (all >= kUnits) write(joined);
    carry_ = all >= kUnits ? last : joined;
    carried_ = all % kUnits;
  }
  // Of less.
  HWY_INLINE void short_row(const char* from) {
    const Turn turn(carried_);
    const Vec rotated = turn(HWY_LIKELY(from != nullptr) ? load_short(from) : hn::Zero(Tag()));
    const Vec joined = turn.behind(carry_, rotated);
    carried_ += bytes_ / Turn::kUnit;
    if (carried_ < kUnits) {
      carry_ = joined;
      return;
    }
    write(joined);
    carry_ = rotated;
    carried_ -= kUnits;
  }
  void flush() {
    if (carried_ * Turn::kUnit > first_) put(carry_, carried_ * Turn::kUnit);
  }

 private:
  HWY_INLINE Vec load_short(const char* from) const {
    using Lanes = typename Turn::Lanes;
    const auto mask = hn::FirstN(Lanes(), bytes_ / sizeof(typename Turn::Lane));
    return hn::BitCast(
        Tag(), hn::MaskedLoad(mask, Lanes(), reinterpret_cast<const typename Turn::Lane*>(from)));
  }
  HWY_INLINE static Vec canonical(Vec v) {
    const TagOf<Kind, kCacheLine> d;
    return hn::BitCast(Tag(), canonical_bits<Kind>(d, hn::BitCast(d, v)));
  }
  HWY_INLINE void write(Vec whole) {
    if (HWY_UNLIKELY(first_ != 0)) {  // what is in front belongs to others
      put(whole, kBytes);
      first_ = 0;
    } else if (streaming_) {
      hn::Stream(canonical(whole), Tag(), reinterpret_cast<uint32_t*>(place_));
    } else {
      hn::Store(canonical(whole), Tag(), reinterpret_cast<uint32_t*>(place_));
    }
    place_ += kBytes;
  }
  void put(Vec whole, size_t end) const {
    alignas(kCacheLine) char bytes[kBytes];
    hn::Store(canonical(whole), Tag(), reinterpret_cast<uint32_t*>(bytes));
    std::memcpy(place_ + first_, bytes + first_, end - first_);
  }

  Vec carry_;
  size_t bytes_;
  bool streaming_;
  size_t first_;    // bytes at `place_` that are not ours
  size_t carried_;  // units
  char* place_;     // of the register to come
};
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

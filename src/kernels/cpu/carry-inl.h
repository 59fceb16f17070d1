// SPDX-License-Identifier: Apache-2.0
// Rows that follow each other in memory and are not whole lines, written from registers: a line, or
// half of one, at a time. A buffer in L1 in their place costs more than its instructions: where
// rows end its stores and loads overlap, and its stores wait behind the streaming ones.

#if defined(ACLGRAD_KERNELS_CPU_CARRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_CARRY_INL_H_
#undef ACLGRAD_KERNELS_CPU_CARRY_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_CARRY_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET <= HWY_AVX2  // have shuffles of any lanes; a register is a line or half of one
// The lanes of a register moved up by a number of units, those at its end to its beginning. A unit
// is four bytes or, on AVX-512, two: AVX2 shuffles those only within halves of a register.
template <size_t kUnit>
class Rotation {
  static_assert(kUnit == 4 || (kUnit == 2 && HWY_TARGET <= HWY_AVX3));

 public:
  using Tag = TagU32;
  using Vec = VecU32;
  static constexpr size_t kBytes = hn::MaxLanes(Tag()) * sizeof(uint32_t);
  static constexpr size_t kUnits = kBytes / kUnit;
  using Lane = std::conditional_t<kUnit == 2, uint16_t, uint32_t>;
  using Lanes = hn::Repartition<Lane, Tag>;

  HWY_INLINE explicit Rotation(size_t units) : units_(units), down_(indices(units)) {}
  // Rotated, with the first units of `before` in front.
  HWY_INLINE Vec behind(Vec before, Vec rotated) const {
    const Lanes d;
    return hn::BitCast(Tag(), hn::IfThenElse(hn::FirstN(d, units_), hn::BitCast(d, before),
                                             hn::BitCast(d, rotated)));
  }
  HWY_INLINE Vec operator()(Vec v) const {
    return hn::BitCast(Tag(), looked_up(hn::BitCast(Lanes(), v), down_));
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
  Indices down_;
};

struct Unchanged {
  HWY_INLINE VecU32 operator()(VecU32 v) const { return v; }
};

// Elements on their way to memory. What does not fill a register of the output yet is carried: a
// register that comes is rotated to where it belongs and joined with what is carried. `Finish`
// changes what is written; elements lie at multiples of their size there.
template <size_t kUnit, class Finish = Unchanged>
class Carry {
  using Turn = Rotation<kUnit>;
  using Tag = typename Turn::Tag;
  using Vec = typename Turn::Vec;

 public:
  static constexpr size_t kBytes = Turn::kBytes;
  static constexpr size_t kUnits = Turn::kUnits;

  Carry() = default;
  Carry(const Carry&) = default;
  // Member by member: g++ copies what it holds in registers by way of the stack, with a load over
  // several stores, which waits until the streaming stores before them have left (f32
  // 1000000x8 of LayerNormBackward 7.7 -> 6.0 ms).
  HWY_INLINE Carry& operator=(const Carry& from) {
    carry_ = from.carry_;
    streaming_ = from.streaming_;
    first_ = from.first_;
    carried_ = from.carried_;
    place_ = from.place_;
    return *this;
  }

  // What comes next belongs at `to`, a multiple of a unit. Nothing is carried.
  HWY_INLINE void begin(char* to, bool streaming) {
    streaming_ = streaming;
    first_ = reinterpret_cast<uintptr_t>(to) % kBytes;
    carried_ = first_ / kUnit;
    place_ = to - first_;
    carry_ = hn::Zero(Tag());
  }
  // Where what comes next belongs.
  HWY_INLINE char* end() const { return place_ + carried_ * kUnit; }

  // A whole register.
  HWY_INLINE void push(Vec v) {
    const Turn turn(carried_);
    const Vec rotated = turn(v);
    write(turn.behind(carry_, rotated));
    carry_ = rotated;
  }
  // The first `units` of one, fewer than all.
  HWY_INLINE void push_first(Vec v, size_t units) {
    const Turn turn(carried_);
    join(turn, turn(v), units);
  }
  // The last ones.
  HWY_INLINE void push_last(Vec v, size_t units) {
    const Turn turn(carried_);
    join(turn, Turn((carried_ + units) % kUnits)(v), units);
  }
  void flush() {
    if (carried_ * kUnit > first_) put(carry_, place_, first_, carried_ * kUnit);
    first_ = carried_ * kUnit;
  }

 private:
  HWY_INLINE void join(const Turn& turn, Vec rotated, size_t units) {
    const Vec joined = turn.behind(carry_, rotated);
    carried_ += units;
    if (carried_ < kUnits) {
      carry_ = joined;
      return;
    }
    write(joined);
    carry_ = rotated;
    carried_ -= kUnits;
  }
  HWY_INLINE void write(Vec whole) {
    auto* to = reinterpret_cast<uint32_t*>(place_);
    if (HWY_UNLIKELY(first_ != 0)) {  // what is in front belongs to others
      put(whole, place_, first_, kBytes);
      first_ = 0;
    } else if (streaming_) {
      hn::Stream(Finish()(whole), Tag(), to);
    } else {
      hn::Store(Finish()(whole), Tag(), to);
    }
    place_ += kBytes;
  }
  // Bytes [first, end). Static: the others keep their numbers in registers.
#if HWY_TARGET <= HWY_AVX3  // has masks of bytes; around a call no vector stays in a register
  static HWY_INLINE void put(Vec whole, char* to, size_t first, size_t end) {
    const hn::Repartition<uint8_t, Tag> d;
    const auto ours = hn::AndNot(hn::FirstN(d, first), hn::FirstN(d, end));
    hn::BlendedStore(hn::BitCast(d, Finish()(whole)), ours, d, reinterpret_cast<uint8_t*>(to));
  }
#else
  static HWY_NOINLINE void put(Vec whole, char* to, size_t first, size_t end) {
    alignas(64) char bytes[kBytes];
    hn::Store(Finish()(whole), Tag(), reinterpret_cast<uint32_t*>(bytes));
    std::memcpy(to + first, bytes + first, end - first);
  }
#endif

  Vec carry_;
  bool streaming_ = false;
  size_t first_ = 0;       // bytes at `place_` that are not ours
  size_t carried_ = 0;     // units
  char* place_ = nullptr;  // of the register to come
};
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

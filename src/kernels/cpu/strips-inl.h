// SPDX-License-Identifier: Apache-2.0
// Strips of columns: what a kernel takes from a row at a time. One logical vector of FP32, or a
// pair of vectors (pairs-inl.h) of a sixteen-bit type, so that a strip is one line of 64 bytes
// whatever the dtype. Numbers that belong to columns (gamma, column sums) are kept in the order in
// which a strip holds them: strip_place() tells where a column stands.

#if defined(ACLGRAD_KERNELS_CPU_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_KERNELS_CPU_STRIPS_INL_H_
#undef ACLGRAD_KERNELS_CPU_STRIPS_INL_H_
#else
#define ACLGRAD_KERNELS_CPU_STRIPS_INL_H_
#endif

#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/masked_loads.h"
#include "kernels/cpu/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad {
namespace HWY_NAMESPACE {
namespace {

template <class T>
struct Strip {
  HWY_INLINE Strip() {}
  F32x16 v[kStripVectors<T>];
};

// Where column `col` stands among numbers kept in strip order.
template <class T>
constexpr size_t strip_place(size_t col) {
  if constexpr (std::is_same_v<T, bfloat16_t>) {
    return col / kPair * kPair + col % 2 * kLanes + col % kPair / 2;
  } else {
    return col;
  }
}

template <class T>
HWY_INLINE Strip<T> load_strip(const T* p) {
  Strip<T> out;
  if constexpr (kStripVectors<T> == 1) {
    out.v[0] = load16(p);
  } else {
    const Pair pair = load_pair(p);
    out.v[0] = pair.first;
    out.v[1] = pair.second;
  }
  return out;
}

// Numbers in strip order.
template <class T>
HWY_INLINE Strip<T> load_numbers(const float* p) {
  Strip<T> out;
  for (size_t i = 0; i < kStripVectors<T>; ++i) out.v[i] = load16(p + i * kLanes);
  return out;
}

// Calls fn with the number of every part of a vector: constants, but for SCALAR's sixteen, which a
// loop takes.
template <class Fn>
HWY_INLINE void for_parts(Fn&& fn) {
#if HWY_TARGET == HWY_SCALAR
  ACLGRAD_PARTS
  for (size_t part = 0; part < kParts; ++part) fn(part);
#else
  for_constants<kParts>(fn);
#endif
}

// One part of every vector of a strip.
template <class T>
struct StripPart {
  HWY_INLINE StripPart() {}
  mutable VecF32 v[kStripVectors<T>];
};

template <class T>
HWY_INLINE StripPart<T> load_strip_part(const T* p, size_t part) {
  StripPart<T> out;
  if constexpr (!std::is_same_v<T, bfloat16_t>) {
    for (size_t i = 0; i < kStripVectors<T>; ++i) {
      out.v[i] = load_part(p + i * kLanes + part * kPartLanes);
    }
  } else {
    const PairRegisters both = load_pair_registers(p + 2 * part * kPartLanes);
    out.v[0] = both.first;
    out.v[1] = both.second;
  }
  return out;
}

// The first `count` columns of a strip; the others are +0 and nothing of them is read.
template <class T>
HWY_INLINE Strip<T> load_strip_first(const T* p, size_t count) {
  if constexpr (kStripVectors<T> == 1) {
    Strip<T> out;
    out.v[0] = load_first(p, count);
    return out;
  } else {
#if HWY_TARGET <= HWY_AVX3  // masked loads never touch what they leave out
    const auto* bits = reinterpret_cast<const uint16_t*>(p);
    Strip<T> out;
    if constexpr (std::is_same_v<T, bfloat16_t>) {
      const hn::Repartition<uint16_t, TagU32> d16;
      const auto halves = hn::MaskedLoad(hn::FirstN(d16, count), d16, bits);
      const VecU32 both = hn::BitCast(TagU32(), halves);
      out.v[0].part[0] = even_numbers(both);
      out.v[1].part[0] = odd_numbers(both);
    } else {
      const hn::Rebind<hwy::float16_t, TagF32> half;
      const auto load = [&](size_t from, size_t n) HWY_ATTR {
        const auto part = hn::MaskedLoad(hn::FirstN(TagU16(), n), TagU16(), bits + from);
        return hn::PromoteTo(TagF32(), hn::BitCast(half, part));
      };
      out.v[0].part[0] = load(0, HWY_MIN(count, kLanes));
      out.v[1].part[0] = load(kLanes, count > kLanes ? count - kLanes : 0);
    }
    return out;
#elif HWY_TARGET == HWY_AVX2
    Strip<T> out;
    for (size_t i = 0; i < 2; ++i) {
      const size_t begin = i * kLanes;
      const size_t here = HWY_MIN(count > begin ? count - begin : 0, kLanes);
      if constexpr (std::is_same_v<T, bfloat16_t>) {
        const VecU32 both = load_pairs_first(reinterpret_cast<const uint16_t*>(p) + begin, here);
        out.v[0].part[i] = even_numbers(both);
        out.v[1].part[i] = odd_numbers(both);
      } else {
        out.v[i] = load_first(p + begin, here);
      }
    }
    return out;
#else
    if (count >= kStrip<T>) return load_strip(p);
    alignas(64) T buffer[kStrip<T>];
    std::memset(static_cast<void*>(buffer), 0, sizeof(buffer));
    copy_few<sizeof(buffer) / 2>(buffer, p, count * sizeof(T));
    return load_strip(buffer);
#endif
  }
}

// So many columns are in the first vector of a strip alone: of BF16, which both hold by turns, one.
template <class T>
inline constexpr size_t kFirstColumns = std::is_same_v<T, bfloat16_t> ? 1 : kLanes;

// Calls fn with the number of vectors, a constant, that hold the first `count` columns of a strip.
template <class T, class Fn>
HWY_INLINE void with_vectors_of(size_t count, Fn&& fn) {
  if constexpr (kStripVectors<T> == 2) {
    if (count <= kFirstColumns<T>) return fn(std::integral_constant<size_t, 1>());
  }
  fn(std::integral_constant<size_t, kStripVectors<T>>());
}

// Whether a row's last columns, less than a strip, may be read and written as a whole one, where
// what is behind them may be: there are masked loads and stores of 512 bits.
inline constexpr bool kReadsWhole = HWY_TARGET > HWY_AVX3;

// Whether they should be: not those of FP32 where AVX2's masked loads, which are of 32 bits, take
// no longer than others.
template <class T>
bool prefers_whole() {
  return kReadsWhole && (kStripVectors<T> == 2 || kMasksLoadsSlowly);
}

// Such columns; behind them is anything where a strip may be read, `open`.
template <class T>
HWY_INLINE Strip<T> load_last_strip(const T* p, size_t count, bool open) {
  return kReadsWhole && open ? load_strip(p) : load_strip_first(p, count);
}

// Columns from `count` on become +0, whatever stands in them.
template <class T>
HWY_INLINE Strip<T> keep_first_columns(const Strip<T>& strip, size_t count) {
  Strip<T> out;
  if constexpr (kStripVectors<T> == 1) {
    out.v[0] = keep_first(strip.v[0], count);
  } else if constexpr (std::is_same_v<T, bfloat16_t>) {
    out.v[0] = keep_first(strip.v[0], (count + 1) / 2);
    out.v[1] = keep_first(strip.v[1], count / 2);
  } else {
    out.v[0] = keep_first(strip.v[0], HWY_MIN(count, kLanes));
    out.v[1] = keep_first(strip.v[1], count > kLanes ? count - kLanes : 0);
  }
  return out;
}

#if HWY_TARGET <= HWY_AVX3
// A strip without a NaN as it lies in memory.
template <class T>
HWY_INLINE VecU32 packed_strip(const Strip<T>& strip) {
  if constexpr (kStripVectors<T> == 1) {
    return hn::BitCast(TagU32(), strip.v[0].part[0]);
  } else {
    return hn::BitCast(TagU32(), packed(strip.v[0].part[0], strip.v[1].part[0], T()));
  }
}
#endif

// Stores a strip without a NaN as its own dtype; `streaming`: past the caches, p must be aligned to
// a strip then.
template <class T>
HWY_INLINE void store_clean_strip(const Strip<T>& strip, T* p, bool streaming) {
  if constexpr (kStripVectors<T> == 2) {
    Pair pair;
    pair.first = strip.v[0];
    pair.second = strip.v[1];
    store_clean_pair(pair, p, streaming);
  } else if (streaming) {
    ACLGRAD_PARTS
    for (size_t i = 0; i < kParts; ++i) {
      hn::Stream(strip.v[0].part[i], TagF32(), p + i * kPartLanes);
    }
  } else {
    store_raw(strip.v[0], p);
  }
}

// The first `count` columns of a strip without a NaN.
template <class T>
HWY_INLINE void store_clean_first(const Strip<T>& strip, T* p, size_t count) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (kStripVectors<T> == 1) {
    hn::BlendedStore(strip.v[0].part[0], hn::FirstN(TagF32(), count), TagF32(), p);
  } else {
    const hn::Repartition<uint16_t, TagU32> d16;
    hn::BlendedStore(packed(strip.v[0].part[0], strip.v[1].part[0], T()), hn::FirstN(d16, count),
                     d16, reinterpret_cast<uint16_t*>(p));
  }
#else
  if (count >= kStrip<T>) return store_clean_strip(strip, p, false);
  alignas(64) T buffer[kStrip<T>];
  store_clean_strip(strip, buffer, false);
  copy_few<sizeof(buffer) / 2>(p, buffer, count * sizeof(T));
#endif
}

#if HWY_TARGET != HWY_SCALAR
// A strip without a NaN as it lies in memory, register by register, put together part by part.
template <class T>
struct PackedStrip {
  static constexpr bool kInPairs = std::is_same_v<T, bfloat16_t>;
  using TagBits = std::conditional_t<kInPairs, hn::Repartition<uint16_t, TagU32>, TagU16>;
  using Tag = std::conditional_t<std::is_same_v<T, float>, TagF32, TagBits>;
  static constexpr size_t kRegisters = kInPairs ? kParts : kStripVectors<T> * kParts;

  HWY_INLINE PackedStrip() {}

  HWY_INLINE void put(size_t part, const StripPart<T>& columns) const {
    if constexpr (std::is_same_v<T, float>) {
      registers[part] = columns.v[0];
    } else if constexpr (kInPairs) {
      registers[part] = packed(columns.v[0], columns.v[1], T());
    } else {
      for (size_t i = 0; i < kStripVectors<T>; ++i) {
        registers[i * kParts + part] = to_bits16<true>(columns.v[i], T());
      }
    }
  }

  // One register after the other: a line past the caches (`streaming`; p begins one then) that
  // other instructions interrupt goes to memory in parts (two cores of Zen 3, bf16 8192x4096 of
  // LayerNormBackward: 14.3 and 10.4 ms).
  HWY_INLINE void store(T* p, bool streaming) const {
    const Tag d;
    auto* to = reinterpret_cast<hn::TFromD<Tag>*>(p);
    // Nothing under sixteen bytes can stream: FP16 on SSE4 is stored as usual.
    constexpr bool kStreams = sizeof(to[0]) * hn::MaxLanes(d) >= 16;
    if (kStreams && streaming) {
      for (size_t i = 0; i < kRegisters; ++i) hn::Stream(registers[i], d, to + i * hn::Lanes(d));
    } else {
      for (size_t i = 0; i < kRegisters; ++i) hn::StoreU(registers[i], d, to + i * hn::Lanes(d));
    }
  }

  mutable hn::Vec<Tag> registers[kRegisters];
};
#endif

// The strip's columns in their order, without rounding.
template <class T>
HWY_INLINE void store_in_order(const Strip<T>& strip, float* p) {
  if constexpr (std::is_same_v<T, bfloat16_t>) {
    ACLGRAD_PARTS
    for (size_t i = 0; i < kParts; ++i) {
      hn::StoreInterleaved2(strip.v[0].part[i], strip.v[1].part[i], TagF32(),
                            p + 2 * i * kPartLanes);
    }
  } else {
    for (size_t i = 0; i < kStripVectors<T>; ++i) store_raw(strip.v[i], p + i * kLanes);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

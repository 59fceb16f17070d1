// SPDX-License-Identifier: Apache-2.0
// Copies of parts of rows in which every NaN becomes the canonical quiet one on its way through the
// registers. Integer arithmetic only, so the bits are the same on every instruction set and no
// signalling NaN is touched by a floating-point unit.

#if defined(ACLGRAD_OPS_EMBEDDING_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_ELEMENTS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_ELEMENTS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_ELEMENTS_INL_H_
#endif

#include <cstring>
#include <limits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"
#include "ops/embedding/elements.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

template <class Kind>
HWY_INLINE void copy_element(char* to, const char* from) {
  using Bits = typename Kind::Bits;
  Bits bits;
  std::memcpy(&bits, from, sizeof(bits));
  if ((bits & (std::numeric_limits<Bits>::max() >> 1)) > Kind::kInfinity) bits = Kind::kQuiet;
  std::memcpy(to, &bits, sizeof(bits));
}

#if HWY_TARGET != HWY_SCALAR  // its loads want aligned addresses
// The elements of one register of at most `kBytes` bytes.
template <class Kind, size_t kBytes>
using TagOf = hn::CappedTag<typename Kind::Bits, kBytes / sizeof(typename Kind::Bits)>;

template <class Kind, class Tag>
HWY_INLINE hn::Vec<Tag> canonical_bits(Tag d, hn::Vec<Tag> bits) {
  if constexpr (Kind::kFloating) {
    using Bits = typename Kind::Bits;
    constexpr auto kMagnitude = static_cast<Bits>(std::numeric_limits<Bits>::max() >> 1);
    constexpr Bits kInfinity = Kind::kInfinity, kQuiet = Kind::kQuiet;
    const hn::RebindToSigned<Tag> ds;
    const auto magnitude = hn::BitCast(ds, hn::And(bits, hn::Set(d, kMagnitude)));
    const auto is_nan = hn::Gt(magnitude, hn::BitCast(ds, hn::Set(d, kInfinity)));
    return hn::IfThenElse(hn::RebindMask(d, is_nan), hn::Set(d, kQuiet), bits);
  } else {
    return bits;
  }
}
template <class Kind, class Tag>
HWY_INLINE hn::Vec<Tag> load_canonical(Tag d, const char* from) {
  return canonical_bits<Kind>(d, hn::LoadU(d, reinterpret_cast<const typename Kind::Bits*>(from)));
}

// A row whose end fills no register overlaps its last whole one.
template <class Kind, size_t kBytes>
HWY_INLINE void copy_registers(char* to, const char* from, size_t bytes) {
  const TagOf<Kind, kBytes> d;
  using Bits = typename Kind::Bits;
  constexpr size_t kStep = hn::MaxLanes(TagOf<Kind, kBytes>()) * sizeof(Bits);
  const auto copy = [&](size_t at) HWY_ATTR {
    hn::StoreU(load_canonical<Kind>(d, from + at), d, reinterpret_cast<Bits*>(to + at));
  };
  size_t at = 0;
  for (; at + kStep <= bytes; at += kStep) copy(at);
  if (at < bytes) copy(bytes - kStep);
}
#endif

// Zeros where `from` is null; `bytes` are those of whole elements. Addresses of any alignment.
template <class Kind>
HWY_INLINE void copy_elements(char* to, const char* from, size_t bytes) {
  if constexpr (Kind::kFloating) {
    if (from == nullptr) return copy_or_clear(to, from, bytes);
#if HWY_TARGET != HWY_SCALAR
    if (bytes >= kLineBytes) return copy_registers<Kind, kLineBytes>(to, from, bytes);
    if (bytes >= kSmallest) return copy_registers<Kind, kSmallest>(to, from, bytes);
#endif
    for (size_t at = 0; at < bytes; at += sizeof(typename Kind::Bits)) {
      copy_element<Kind>(to + at, from + at);
    }
  } else {
    copy_or_clear(to, from, bytes);
  }
}

// A whole line, past the cache; `from` of any alignment, or null for zeros.
template <class Kind>
HWY_INLINE void stream_line(char* to, const char* from) {
#if HWY_TARGET == HWY_SCALAR  // has no streaming stores
  copy_elements<Kind>(to, from, kLineBytes);
#else
  using Bits = typename Kind::Bits;
  const TagOf<Kind, kLineBytes> d;
  constexpr size_t kStep = hn::MaxLanes(TagOf<Kind, kLineBytes>()) * sizeof(Bits);
  for (size_t at = 0; at < kLineBytes; at += kStep) {
    const auto part = from == nullptr ? hn::Zero(d) : load_canonical<Kind>(d, from + at);
    hn::Stream(part, d, reinterpret_cast<Bits*>(to + at));
  }
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

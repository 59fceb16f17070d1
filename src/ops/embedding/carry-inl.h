// SPDX-License-Identifier: Apache-2.0
// Short rows on their way through registers.

#if defined(ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_CARRY_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/carry-inl.h"
#include "ops/embedding/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

#if HWY_TARGET <= HWY_AVX2
// Whether there is a way through registers. Not for FP16 and BF16 on AVX2, which shuffles two bytes
// in two steps: with a third for rotations by an odd number, rows took up to twice the time of
// others (two cores of Zen 3, rows of 82 to 254 bytes: 0.6 to 0.8 of it through a stage or, the
// longer ones, line by line).
template <class Kind>
inline constexpr bool kCarries = HWY_TARGET <= HWY_AVX3 || sizeof(typename Kind::Bits) != 2;

template <class Kind>
struct CanonicalBits {
  HWY_INLINE VecU32 operator()(VecU32 v) const {
    const hn::Repartition<typename Kind::Bits, TagU32> d;
    return hn::BitCast(TagU32(), canonical_bits<Kind>(d, hn::BitCast(d, v)));
  }
};

// Rows of `bytes`, the first of which belongs at `y`.
template <class Kind>
class CarryWriter {
 public:
  static constexpr size_t kUnit = sizeof(typename Kind::Bits) == 2 ? 2 : 4;
  static constexpr size_t kBytes = Rotation<kUnit>::kBytes;

  HWY_INLINE CarryWriter(char* y, size_t bytes, bool streaming) : bytes_(bytes) {
    carry_.begin(y, streaming);
  }
  // Of at least a register. Null: zeros.
  HWY_INLINE void long_row(const char* from) {
    const auto load = [from](size_t at) HWY_ATTR {
      if (HWY_UNLIKELY(from == nullptr)) return hn::Zero(TagU32());
      return hn::LoadU(TagU32(), reinterpret_cast<const uint32_t*>(from + at));
    };
    size_t at = 0;
    for (; at + kBytes <= bytes_; at += kBytes) carry_.push(load(at));
    if (at < bytes_) carry_.push_last(load(bytes_ - kBytes), (bytes_ - at) / kUnit);
  }
  // Of less.
  HWY_INLINE void short_row(const char* from) {
    using Lane = typename Rotation<kUnit>::Lane;
    const hn::Repartition<Lane, TagU32> d;
    VecU32 row = hn::Zero(TagU32());
    if (HWY_LIKELY(from != nullptr)) {
      const auto mask = hn::FirstN(d, bytes_ / sizeof(Lane));
      row = hn::BitCast(TagU32(), hn::MaskedLoad(mask, d, reinterpret_cast<const Lane*>(from)));
    }
    carry_.push_first(row, bytes_ / kUnit);
  }
  void flush() { carry_.flush(); }

 private:
  Carry<kUnit, CanonicalBits<Kind>> carry_;
  size_t bytes_;
};
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

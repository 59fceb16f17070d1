// SPDX-License-Identifier: Apache-2.0
// Keys of a narrow table's indices, a vector at once (order.h says what a key is).

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_KEYS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_KEYS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_KEYS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/lanes-inl.h"
#include "ops/embedding_dense_backward/narrow.h"
#include "ops/embedding_dense_backward/order.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// A part's indices, of which the upper halves, where they have some, are in `above`.
HWY_INLINE VecU32 load_indices(const int32_t* p, VecU32&) {
  return hn::LoadU(TagU32(), reinterpret_cast<const uint32_t*>(p));
}
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE VecU32 load_indices(const int64_t* p, VecU32& above) {
  const TagU32 d;
  const auto half = [&](size_t at) HWY_ATTR {
    return hn::LoadU(d, reinterpret_cast<const uint32_t*>(p) + at);
  };
  const VecU32 first = half(0), second = half(kPartLanes);
  above = hn::ConcatOdd(d, second, first);
  return hn::ConcatEven(d, second, first);
}
#else
HWY_INLINE VecU32 load_indices(const int64_t* p, VecU32& above) {
  uint32_t halves[2];
  std::memcpy(halves, p, sizeof(halves));
  above = hn::Set(TagU32(), halves[1]);
  return hn::Set(TagU32(), halves[0]);
}
#endif

// Keys of `count` indices; whether all of them are good.
template <class T>
HWY_INLINE bool read_keys(const Problem& problem, const T* indices, size_t count, int32_t* keys) {
  const TagU32 d;
  const auto table_rows = hn::Set(d, static_cast<uint32_t>(problem.table_rows));
  const auto padding = hn::Set(d, static_cast<uint32_t>(problem.padding));
  const auto zero = hn::Zero(d);
  auto good = hn::Eq(zero, zero);
  size_t at = 0;
  for (; at + kPartLanes <= count; at += kPartLanes) {
    VecU32 above = zero;
    const auto row = load_indices(indices + at, above);
    const auto names_row = hn::And(hn::Lt(row, table_rows), hn::Eq(above, zero));
    good = hn::And(good, names_row);
    const auto key = hn::IfThenElse(hn::AndNot(hn::Eq(row, padding), names_row), row, table_rows);
    hn::StoreU(key, d, reinterpret_cast<uint32_t*>(keys + at));
  }
  bool all = hn::AllTrue(d, good);
  for (; at < count; ++at) {
    T index;
    std::memcpy(&index, indices + at, sizeof(T));  // any alignment
    const bool names_row = index >= 0 && index < problem.table_rows;
    all &= names_row;
    keys[at] =
        static_cast<int32_t>(names_row && index != problem.padding ? index : problem.table_rows);
  }
  return all;
}

// Keys of `count` positions from `begin` on, where they are or in `made`. Where one is asked for,
// `bad` gets the first bad index.
HWY_INLINE const int32_t* keys_of(const NarrowTable& table, int64_t begin, size_t count,
                                  int32_t* made, BadIndex* bad) {
  if (table.has_keys) return table.keys() + begin;
  visit_integers(table.problem, table.at.indices, [&](const auto* all) HWY_ATTR {
    const auto* const indices = all + begin;
    const bool good = read_keys(table.problem, indices, count, made);
    if (good || bad == nullptr || bad->position >= 0) return;
    read_run(table.problem, indices, 1, begin, static_cast<int64_t>(count), made, *bad);
  });
  return made;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// A narrow table in parts, each of which one task sums (owners.h).

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding_dense_backward/narrow-inl.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/owners.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Indices that are looked at at once; their keys and gradient rows stay in L1, and meanwhile those
// of the next ones come from memory (Zen 4, two cores, times as long as with 1024 at once of which
// nothing was asked for: 4000000x100000x1 0.81, 4000000x250000x1 0.87, 4000000x2x1 0.77).
constexpr int64_t kLookedAt = 512;
template <size_t kCols, class T>
HWY_INLINE void ask_for_next(const T* elements) {
  constexpr auto kBytes = static_cast<intptr_t>(kLookedAt * kCols * sizeof(T));
  for (intptr_t line = 0; line < kBytes; line += intptr_t{kLineBytes}) {
    prefetch_to_l2(elements, kBytes + line);
  }
}

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

// Keys and gradient rows of consecutive positions.
struct Lookups {
  const int32_t* keys;
  const float* dy;
  size_t count;
};

// Goes over all of them in their order.
template <size_t kCols>
class Reader {
 public:
  Reader(const OwnedTable& table, BadIndex* bad) : table_(table), bad_(bad) {}

  bool next() {
    begin_ += static_cast<int64_t>(lookups_.count);
    if (begin_ == table_.problem.rows) return false;
    lookups_.count = static_cast<size_t>(std::min(kLookedAt, table_.problem.rows - begin_));
    lookups_.keys = keys();
    visit_float(table_.problem.dy.dtype,
                [&](auto type) { lookups_.dy = gradient_rows<decltype(type)>(); });
    return true;
  }
  const Lookups& lookups() const { return lookups_; }

 private:
  const int32_t* keys() {
    if (table_.has_keys) return table_.keys() + begin_;
    visit_read_indices(table_.problem, table_.at.indices, [&](const auto* all) HWY_ATTR {
      const auto* const indices = all + begin_;
      ask_for_next<1>(indices);
      const bool good = read_keys(table_.problem, indices, lookups_.count, keys_);
      if (good || bad_ == nullptr || bad_->position >= 0) return;
      const auto count = static_cast<int64_t>(lookups_.count);
      read_run(table_.problem, indices, 1, begin_, count, keys_, *bad_);
    });
    return keys_;
  }

  template <class T>
  const float* gradient_rows() {
    const T* const dy = static_cast<const T*>(table_.at.dy);
    const RowOffsets& rows = table_.plan.dy_rows;
    constexpr auto kStride = static_cast<int64_t>(kCols);
    if (!rows.uniform() || rows.stride() != kStride) {
      float* out = dy_;
      for (size_t i = 0; i < lookups_.count; ++i) {
        const T* const row = dy + rows(begin_ + static_cast<int64_t>(i));
        for (size_t c = 0; c < kCols; ++c) *out++ = float_at(row + c);
      }
      return dy_;
    }
    const T* const first = dy + begin_ * kStride;
    ask_for_next<kCols>(first);
    if constexpr (std::is_same_v<T, float>) {
      if (reinterpret_cast<uintptr_t>(first) % alignof(float) == 0) return first;
    }
    const size_t end = lookups_.count * kCols;
    size_t i = 0;
    for (; i + kLanes <= end; i += kLanes) store_raw(load16(first + i), dy_ + i);
    for (; i < end; ++i) dy_[i] = float_at(first + i);
    return dy_;
  }

  const OwnedTable& table_;
  BadIndex* const bad_;
  int64_t begin_ = 0;
  Lookups lookups_{};
  int32_t keys_[kLookedAt];
  float dy_[kLookedAt * kCols];
};

// Which of the keys lie in [first, last), in their order; how many.
HWY_INLINE size_t find_owned(const Lookups& lookups, int32_t first, int32_t last, uint32_t* found) {
  const TagU32 d;
  const auto base = hn::Set(d, static_cast<uint32_t>(first));
  const auto length = hn::Set(d, static_cast<uint32_t>(last - first));
  auto place = hn::Iota(d, 0);
  size_t owned = 0;
  size_t at = 0;
  for (; at + kPartLanes <= lookups.count; at += kPartLanes) {
    const auto key = hn::LoadU(d, reinterpret_cast<const uint32_t*>(lookups.keys + at));
    const auto own = hn::Lt(hn::Sub(key, base), length);
    // Not CompressStore(), whose masked store takes many times as long (Zen 4).
    hn::StoreU(hn::Compress(place, own), d, found + owned);
    owned += hn::CountTrue(d, own);
    place = hn::Add(place, hn::Set(d, uint32_t{kPartLanes}));
  }
  for (; at < lookups.count; ++at) {
    found[owned] = static_cast<uint32_t>(at);
    owned += static_cast<size_t>(lookups.keys[at] >= first && lookups.keys[at] < last);
  }
  return owned;
}

// Table rows [first, last).
struct Owned {
  int32_t first, last;
};

// An owner of few table rows goes over the keys for each of them, whose gradient rows then are
// added in registers: one by one, each would wait until the one before is in memory. (Two cores of
// Zen 4, 4 million FP32 gradient rows, ms, together and row by row: 2 table rows 20 and 4.7, 5 9.1
// and 5.6, 8 6.8 and 5.4, 12 9.1 and 6.3, 16 6.3 and 8.1.) More owners add up less each, but look
// at all.
constexpr int64_t few_owned(int64_t owners) { return std::max(int64_t{1}, 12 / owners); }

// Add the gradient rows of the owned table rows to their sums; those of all; of few.
template <size_t kCols>
HWY_NOINLINE void add_owned(Reader<kCols>& reader, Owned owned, RowSums<kCols>& sums) {
  uint32_t found[kLookedAt + kPartLanes];
  while (reader.next()) {
    const Lookups& lookups = reader.lookups();
    const size_t count = find_owned(lookups, owned.first, owned.last, found);
    for (size_t i = 0; i < count; ++i) {
      sums.add(lookups.keys[found[i]] - owned.first, lookups.dy + found[i] * kCols);
    }
  }
}
template <size_t kCols>
HWY_NOINLINE void add_all(Reader<kCols>& reader, RowSums<kCols>& sums) {
  while (reader.next()) {
    const Lookups& lookups = reader.lookups();
    for (size_t i = 0; i < lookups.count; ++i) sums.add(lookups.keys[i], lookups.dy + i * kCols);
  }
}
template <size_t kCols>
HWY_NOINLINE void add_row_by_row(Reader<kCols>& reader, Owned owned, RowSums<kCols>& sums) {
  uint32_t found[kLookedAt + kPartLanes];
  float run[kLookedAt * kCols];
  while (reader.next()) {
    const Lookups& lookups = reader.lookups();
    for (int32_t row = owned.first; row < owned.last; ++row) {
      const size_t count = find_owned(lookups, row, row + 1, found);
      for (size_t i = 0; i < count; ++i) {
        std::copy_n(lookups.dy + found[i] * kCols, kCols, run + i * kCols);
      }
      sums.add_run(row - owned.first, run, count);
    }
  }
}

template <size_t kCols>
void sum_owned_columns(const OwnedTable& table, BadIndex& bad) {
  const int64_t owners = table.plan.owners;
  const OwnedRows first_of = share_table(table);
  parallel_blocks(owners, [&](int64_t owner) {
    const int64_t first = first_of[static_cast<size_t>(owner)];
    const int64_t count = first_of[static_cast<size_t>(owner + 1)] - first;
    // The first one looks for bad indices.
    if (count == 0 && owner > 0) return;
    Reader<kCols> reader(table, owner == 0 ? &bad : nullptr);
    const Owned owned{static_cast<int32_t>(first), static_cast<int32_t>(first + count)};
    const bool few = count <= few_owned(owners);
    const bool all = owners == 1 && !few;
    // Where no key is left out, those of what does not count have a sum, too.
    RowSums<kCols> sums(table.sums<kCols>() + first, all ? count + 1 : count,
                        table.long_sums<kCols>(owner));
    if (all) {
      add_all(reader, sums);
    } else if (few) {
      add_row_by_row(reader, owned, sums);
    } else {
      add_owned(reader, owned, sums);
    }
    visit_float(table.problem.dw.dtype,
                [&](auto type) { write_sums<decltype(type), kCols>(table, first, count, sums); });
  });
}

void sum_owned(const OwnedTable& table, BadIndex& bad) {
  visit_narrow(table.problem.cols, [&](auto columns) { sum_owned_columns<columns()>(table, bad); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

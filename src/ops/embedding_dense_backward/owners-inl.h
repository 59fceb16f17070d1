// SPDX-License-Identifier: Apache-2.0
// A narrow table in parts, each of which one task sums (owners.h).

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_OWNERS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/cache.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding_dense_backward/keys-inl.h"
#include "ops/embedding_dense_backward/narrow-inl.h"
#include "ops/embedding_dense_backward/owners.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Indices that are looked at at once; their keys and gradient rows stay in L1, and meanwhile those
// of the next ones come from memory (Zen 4, two cores, times as long as with 1024 at once of which
// nothing was asked for: 4000000x100000x1 0.81, 4000000x250000x1 0.87, 4000000x2x1 0.77). Of wide
// rows fewer, 16 KiB.
template <size_t kWidth>
constexpr int64_t kLookedAt = std::min<int64_t>(512, 4096 / kWidth);
template <size_t kWidth, class T>
HWY_INLINE void ask_for_next(const T* elements, int64_t cols) {
  const auto bytes = static_cast<intptr_t>(kLookedAt<kWidth> * cols * intptr_t{sizeof(T)});
  for (intptr_t line = 0; line < bytes; line += intptr_t{kLineBytes}) {
    prefetch_to_l2(elements, bytes + line);
  }
}

// Rows of three columns and more ask, one by one, for what lies so many bytes behind them: so many
// lines at once as their blocks have find too few buffers (one core of Zen 4, time beside that: f32
// 250000x1000x16 0.58, 500000x2x8 0.63, 1000000x2x4 0.57; 4 KiB 1.0 to 1.2).
template <size_t kWidth>
constexpr bool kAsksRowByRow = kWidth >= 4;
constexpr intptr_t kAhead = 8192;

// Keys and gradient rows of consecutive positions. Behind the last row there are as many floats as
// a sum has more columns, so that every row may be read as one of kWidth.
template <size_t kWidth>
struct Lookups {
  const int32_t* keys;
  const float* dy;
  size_t cols;
  size_t count;
  bool in_place;  // dy is where it came from

  const float* row(size_t i) const { return dy + i * (kWidth < 4 ? kWidth : cols); }
  HWY_INLINE void ask_behind(size_t i, intptr_t ahead) const {
    if (!kAsksRowByRow<kWidth> || !in_place) return;
    for (intptr_t line = 0; line < intptr_t{kWidth * sizeof(float)}; line += intptr_t{kLineBytes}) {
      prefetch_to_l2(row(i), ahead + line);
    }
  }
};

// Goes over all of them in their order.
template <size_t kWidth>
class Reader {
 public:
  Reader(const OwnedTable& table, BadIndex* bad) : table_(table), bad_(bad) {
    lookups_.cols = static_cast<size_t>(table.problem.cols);
  }

  bool next() {
    begin_ += static_cast<int64_t>(lookups_.count);
    if (begin_ == table_.problem.rows) return false;
    lookups_.count = static_cast<size_t>(std::min(kLookedAt<kWidth>, table_.problem.rows - begin_));
    lookups_.keys = keys();
    visit_float(table_.problem.dy.dtype,
                [&](auto type) { lookups_.dy = gradient_rows<decltype(type)>(); });
    return true;
  }
  const Lookups<kWidth>& lookups() const { return lookups_; }

 private:
  const int32_t* keys() {
    if (!table_.has_keys) {
      visit_integers(table_.problem, table_.at.indices,
                     [&](const auto* indices) { ask_for_next<kWidth>(indices + begin_, 1); });
    }
    return keys_of(table_, begin_, lookups_.count, keys_, bad_);
  }

  template <class T>
  const float* gradient_rows() {
    const T* const dy = static_cast<const T*>(table_.at.dy);
    const RowOffsets& rows = table_.plan.dy_rows;
    const int64_t cols = table_.problem.cols;
    const size_t end = lookups_.count * lookups_.cols;
    std::fill_n(dy_ + end, kWidth, 0.0f);
    lookups_.in_place = false;
    if (!rows.uniform() || rows.stride() != cols) {
      float* out = dy_;
      for (size_t i = 0; i < lookups_.count; ++i) {
        const T* const row = dy + rows(begin_ + static_cast<int64_t>(i));
        for (size_t c = 0; c < lookups_.cols; ++c) *out++ = float_at(row + c);
      }
      return dy_;
    }
    const T* const first = dy + begin_ * cols;
    if (!kAsksRowByRow<kWidth>) ask_for_next<kWidth>(first, cols);
    if constexpr (std::is_same_v<T, float>) {
      const bool ends = begin_ + kLookedAt<kWidth> >= table_.problem.rows && lookups_.cols < kWidth;
      lookups_.in_place = !ends && reinterpret_cast<uintptr_t>(first) % alignof(float) == 0;
      if (lookups_.in_place) return first;
    }
    size_t i = 0;
    for (; i + kLanes <= end; i += kLanes) {
      if (kAsksRowByRow<kWidth> && i % (kLineBytes / sizeof(T)) == 0)
        prefetch_to_l2(first + i, kAhead);
      store_raw(load16(first + i), dy_ + i);
    }
    for (; i < end; ++i) dy_[i] = float_at(first + i);
    return dy_;
  }

  const OwnedTable& table_;
  BadIndex* const bad_;
  int64_t begin_ = 0;
  Lookups<kWidth> lookups_{};
  int32_t keys_[kLookedAt<kWidth>];
  float dy_[(kLookedAt<kWidth> + 1) * kWidth];
};

#if HWY_TARGET == HWY_AVX2
// For each mask of eight lanes those that are in it, one behind the other, four bits each.
constexpr auto kLanesOfMask = [] {
  std::array<uint32_t, 256> lanes{};
  for (uint32_t mask = 0; mask < lanes.size(); ++mask) {
    uint32_t next = 0;
    for (uint32_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) lanes[mask] |= lane << 4 * next++;
    }
  }
  return lanes;
}();
#endif

// Stores the lanes of the mask one behind the other, and anything in as many places as there are
// others; how many. Without CompressStore(), whose masked store takes many times as long (Zen 4),
// and on AVX2 without Compress(), whose table g++ 12 puts on the stack each time (Zen 3: half of
// the time of two owners).
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE size_t store_lanes(VecU32 v, hn::Mask<TagU32> mask, uint32_t* to) {
  const TagU32 d;
#if HWY_TARGET == HWY_AVX2
  uint8_t bits[8] = {};  // as many as StoreMaskBits() may write
  hn::StoreMaskBits(d, mask, bits);
  const auto lanes = hn::Shr(hn::Set(d, kLanesOfMask[bits[0]]), hn::ShiftLeft<2>(hn::Iota(d, 0)));
  const auto indices = hn::IndicesFromVec(d, hn::And(lanes, hn::Set(d, 7u)));
  hn::StoreU(hn::TableLookupLanes(v, indices), d, to);
  return static_cast<size_t>(std::popcount(bits[0]));
#else
  hn::StoreU(hn::Compress(v, mask), d, to);
  return hn::CountTrue(d, mask);
#endif
}
#endif

// Which of the keys lie in [first, last), in their order; how many.
template <size_t kWidth>
HWY_INLINE size_t find_owned(const Lookups<kWidth>& lookups, int32_t first, int32_t last,
                             uint32_t* found) {
  size_t owned = 0;
  size_t at = 0;
#if HWY_TARGET <= HWY_AVX2
  const TagU32 d;
  const auto base = hn::Set(d, static_cast<uint32_t>(first));
  const auto length = hn::Set(d, static_cast<uint32_t>(last - first));
  auto place = hn::Iota(d, 0);
  for (; at + kPartLanes <= lookups.count; at += kPartLanes) {
    const auto key = hn::LoadU(d, reinterpret_cast<const uint32_t*>(lookups.keys + at));
    const auto own = hn::Lt(hn::Sub(key, base), length);
    owned += store_lanes(place, own, found + owned);
    place = hn::Add(place, hn::Set(d, uint32_t{kPartLanes}));
  }
#endif
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
// Of eight columns a third of them, of more none: several of those are on their way at once (Zen 3,
// time one by one beside row by row, one core and two, 1 million rows: 2 table rows of 8 columns
// 1.11 and 1.48, 12 0.69 and 1.03; 8 of 16 0.41 and 0.54, 2 of 32 0.58 and 1.03).
constexpr int64_t few_owned(int64_t owners, size_t width) {
  if (width > 8) return 0;
  return std::max(int64_t{1}, (width == 8 ? 4 : 12) / owners);
}

// Add the gradient rows of the owned table rows to their sums; those of all; of few.
template <size_t kWidth>
HWY_NOINLINE void add_owned(Reader<kWidth>& reader, Owned owned, RowSums<kWidth>& sums) {
  uint32_t found[kLookedAt<kWidth> + kPartLanes];
  while (reader.next()) {
    const Lookups<kWidth>& lookups = reader.lookups();
    const size_t count = find_owned(lookups, owned.first, owned.last, found);
    for (size_t i = 0; i < count; ++i) {
      lookups.ask_behind(found[i], kAhead);
      sums.add(lookups.keys[found[i]] - owned.first, lookups.row(found[i]));
    }
  }
}
template <size_t kWidth>
HWY_NOINLINE void add_all(Reader<kWidth>& reader, RowSums<kWidth>& sums) {
  while (reader.next()) {
    const Lookups<kWidth>& lookups = reader.lookups();
    for (size_t i = 0; i < lookups.count; ++i) {
      lookups.ask_behind(i, kAhead);
      sums.add(lookups.keys[i], lookups.row(i));
    }
  }
}
template <size_t kWidth>
HWY_NOINLINE void add_row_by_row(Reader<kWidth>& reader, Owned owned, RowSums<kWidth>& sums) {
  uint32_t found[kLookedAt<kWidth> + kPartLanes];
  while (reader.next()) {
    const Lookups<kWidth>& lookups = reader.lookups();
    for (int32_t row = owned.first; row < owned.last; ++row) {
      const size_t count = find_owned(lookups, row, row + 1, found);
      const auto next = static_cast<intptr_t>(lookups.count * lookups.cols * sizeof(float));
      sums.add_run(row - owned.first, count, [&](size_t i) HWY_ATTR {
        lookups.ask_behind(found[i], next);
        return lookups.row(found[i]);
      });
    }
  }
}

template <size_t kWidth>
void sum_owned_columns(const OwnedTable& table, BadIndex& bad) {
  const int64_t owners = table.plan.owners;
  const OwnedRows first_of = share_table(table);
  parallel_blocks(owners, [&](int64_t owner) {
    const int64_t first = first_of[static_cast<size_t>(owner)];
    const int64_t count = first_of[static_cast<size_t>(owner + 1)] - first;
    // The first one looks for bad indices.
    if (count == 0 && owner > 0) return;
    Reader<kWidth> reader(table, owner == 0 ? &bad : nullptr);
    const Owned owned{static_cast<int32_t>(first), static_cast<int32_t>(first + count)};
    const bool few = count <= few_owned(owners, kWidth);
    const bool all = owners == 1 && !few;
    // Where no key is left out, those of what does not count have a sum, too.
    RowSums<kWidth> sums(table.sums<kWidth>(), first, all ? count + 1 : count,
                         table.long_sums<kWidth>(owner));
    if (all) {
      add_all(reader, sums);
    } else if (few) {
      add_row_by_row(reader, owned, sums);
    } else {
      add_owned(reader, owned, sums);
    }
    visit_float(table.problem.dw.dtype,
                [&](auto type) { write_sums<decltype(type)>(table, first, count, sums); });
  });
}

void sum_owned(const OwnedTable& table, BadIndex& bad) {
  visit_width(table.problem.cols, [&](auto width) { sum_owned_columns<width()>(table, bad); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

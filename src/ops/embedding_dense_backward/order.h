// SPDX-License-Identifier: Apache-2.0
// Brings the positions of the indices into the order of their table rows: a stable radix sort over
// fixed blocks of positions; up to sixteen are counted against each other instead. Result and first
// bad index do not depend on who does which block. Indices that rise already, or are all equal, are
// left as they are.
//
// Work in the sort: a table row is a key; bad and padding indices get the key table_rows, which
// sorts behind all others and is then cut off.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ORDER_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ORDER_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "base/checked.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "ops/embedding_dense_backward/index.h"
#include "ops/embedding_dense_backward/problem.h"

namespace aclgrad::embedding_dense_backward {

// Positions of a block: 16 blocks while that leaves them 4096 to 16384, which take 5 to 20 us a
// pass; more than 256 would only make the histograms grow.
inline constexpr int64_t kLeastSortBlock = 4096;
inline constexpr int64_t kMostSortBlock = 16384;
inline constexpr int64_t kFewSortBlocks = 16;
inline constexpr int64_t kMaxSortBlocks = 256;
constexpr int64_t sort_block(int64_t positions) {
  const int64_t few =
      std::clamp(ceil_div(positions, kFewSortBlocks), kLeastSortBlock, kMostSortBlock);
  return std::max(few, ceil_div(positions, kMaxSortBlocks));
}
// 2048 counters of 4 bytes stay in the L1 cache.
inline constexpr int kMaxDigitBits = 11;
// Up to here the scratch of the sort (12 KB) comes from the stack and no workspace is asked for.
inline constexpr int64_t kStackIndices = 256;

// Numbers of 32 or 64 bits, chosen once by the problem's size; without memory 0, 1, 2, ...
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(const int32_t* narrow) : narrow_(narrow) {}
  explicit Numbers(const int64_t* wide) : wide_(wide) {}
  int64_t operator[](int64_t i) const {
    if (narrow_ != nullptr) return narrow_[i];
    return wide_ != nullptr ? wide_[i] : i;
  }

 private:
  const int32_t* narrow_ = nullptr;
  const int64_t* wide_ = nullptr;
};

struct Order {
  Numbers keys;           // table rows, rising
  Numbers positions;      // rising among equal keys
  int64_t count = 0;      // of both; bad and padding indices are not among them
  void* spare = nullptr;  // a buffer of the sort that is free again
  BadIndex bad{-1, 0, 0.0};
};

// Keys of `count` indices from position `first` on, `stride` elements apart.
template <class T, class Key>
void read_run(const Problem& problem, const T* indices, int64_t stride, int64_t first,
              int64_t count, Key* keys, BadIndex& bad) {
  const int64_t table_rows = problem.table_rows;
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, indices + i * stride, sizeof(T));  // any alignment
    const Index<T> index(value);
    const int64_t row = index.row(table_rows);
    if (row < 0 && bad.position < 0) bad = {first + i, index.integer, index.floating};
    const bool kept = row >= 0 && row != problem.padding;
    keys[i] = static_cast<Key>(kept ? row : table_rows);
  }
}

// Keys of the positions [begin, end).
template <class T, class Key>
void read_block(const Problem& problem, const void* indices, int64_t begin, int64_t end, Key* keys,
                BadIndex& bad) {
  const View& view = problem.indices;
  const auto* const from = static_cast<const T*>(indices);
  if (view.rank <= 1) {
    const int64_t stride = view.rank == 0 ? 0 : view.strides[0];
    read_run(problem, from + begin * stride, stride, begin, end - begin, keys + begin, bad);
    return;
  }
  const auto inner_dim = static_cast<size_t>(view.rank - 1);
  const int64_t inner = view.dims[inner_dim];
  const int64_t stride = view.strides[inner_dim];
  const RowOffsets outer(view, view.rank - 1);
  for (int64_t at = begin; at < end;) {
    const int64_t within = at % inner;
    const int64_t count = std::min(inner - within, end - at);
    read_run(problem, from + outer(at / inner) + within * stride, stride, at, count, keys + at,
             bad);
    at += count;
  }
}

template <class Key>
class Sort {
 public:
  Sort(const Problem& problem, const Plan& plan, const Addresses& at)
      : problem_(problem),
        plan_(plan),
        indices_(at.indices),
        histograms_(static_cast<Key*>(at.histograms)) {
    for (size_t side = 0; side < 2; ++side) {
      keys_[side] = static_cast<Key*>(at.buffers[side]);
      positions_[side] = keys_[side] + problem.rows;
    }
  }

  // What reading the indices finds; the keys are then in the first buffer, as they came.
  struct Found {
    BadIndex bad;
    bool rise;  // no key is lower than the one before it
  };
  Found read() {
    std::array<Found, kMaxSortBlocks> blocks;  // as they come: few indices have one block
    const Key* keys = keys_[0];
    parallel_blocks(plan_.sort_blocks, [&](int64_t block) {
      const Range range = range_of(block);
      Found found{{-1, 0, 0.0}, true};
      visit_index(problem_.indices.dtype, [&](auto value) {
        read_block<decltype(value)>(problem_, indices_, range.begin, range.end, keys_[0],
                                    found.bad);
      });
      found.rise = std::is_sorted(keys + range.begin, keys + range.end);
      blocks[static_cast<size_t>(block)] = found;
    });
    Found all{{-1, 0, 0.0}, true};
    for (int64_t block = 0; block < plan_.sort_blocks; ++block) {
      const Found& found = blocks[static_cast<size_t>(block)];
      if (all.bad.position < 0) all.bad = found.bad;
      const int64_t begin = range_of(block).begin;
      all.rise = all.rise && found.rise && (block == 0 || keys[begin - 1] <= keys[begin]);
    }
    return all;
  }

  Order order() { return order_of(read()); }
  Order order_of(const Found& found) {
    Order out;
    out.bad = found.bad;
    size_t side = 0;
    if (!found.rise) {
      if (are_few()) {
        sort_few();
        side = 1;
      } else {
        for (int pass = 0; pass < plan_.passes; ++pass, side ^= 1) sort_digit(pass, side);
      }
      out.positions = Numbers(positions_[side]);
    }
    const Key* keys = keys_[side];
    const Key* end = std::lower_bound(keys, keys + problem_.rows, Key(problem_.table_rows));
    out.keys = Numbers(keys);
    out.count = end - keys;
    out.spare = keys_[side ^ 1];
    return out;
  }

 private:
  // Of few indices each one's place is how many others come before it: no branch, no counters of
  // digits to clear and to add up.
  static constexpr size_t kFew = 16;
  bool are_few() const {
    return problem_.rows <= int64_t{kFew} && problem_.table_rows < INT32_MAX / int64_t{kFew};
  }
  void sort_few() {
    const auto count = static_cast<size_t>(problem_.rows);
    const Key* keys = keys_[0];
    std::array<int32_t, kFew> ranked;  // unlike each other, and in the order that is wanted
    ranked.fill(INT32_MAX);
    for (size_t i = 0; i < count; ++i) {
      ranked[i] = static_cast<int32_t>(keys[i]) * int32_t{kFew} + static_cast<int32_t>(i);
    }
    std::array<int32_t, kFew> places{};
    for (size_t j = 0; j < count; ++j) {
      for (size_t i = 0; i < kFew; ++i) places[i] += int32_t{ranked[j] < ranked[i]};
    }
    for (size_t i = 0; i < count; ++i) {
      const auto place = static_cast<size_t>(places[i]);
      keys_[1][place] = keys[i];
      positions_[1][place] = static_cast<Key>(i);
    }
  }

  struct Range {
    int64_t begin, end;
  };
  Range range_of(int64_t block) const {
    const int64_t begin = block * plan_.sort_block;
    return {begin, std::min(begin + plan_.sort_block, problem_.rows)};
  }
  size_t digits() const { return size_t{1} << plan_.digit_bits; }
  Key* histogram(int64_t block) const {
    return histograms_ + static_cast<size_t>(block) * digits();
  }
  // Picks the digit of a pass out of a key; by value, because a store of a key could change the
  // plan for all that the compiler knows.
  auto digit_of(int pass) const {
    return [shift = pass * plan_.digit_bits, mask = digits() - 1](Key key) {
      return static_cast<size_t>(key >> shift) & mask;
    };
  }

  void count_digits(int64_t block, int pass) {
    Key* counts = histogram(block);
    std::fill_n(counts, digits(), Key{0});
    const Key* keys = keys_[static_cast<size_t>(pass) % 2];
    const auto [begin, end] = range_of(block);
    const auto digit = digit_of(pass);
    for (int64_t i = begin; i < end; ++i) ++counts[digit(keys[i])];
  }

  // Counts become the place of each block's first key of each digit. Block after block: one digit's
  // counters lie a power of two apart, in few sets of the cache, and their loops are vectors.
  void place_digits() {
    // Few indices are one block, and what is done once a digit is most of their sort.
    if (plan_.sort_blocks == 1) {
      Key place = 0;
      const std::span counts(histogram(0), digits());
      for (Key& count : counts) place += std::exchange(count, place);
      return;
    }
    std::array<Key, size_t{1} << kMaxDigitBits> places;
    std::fill_n(places.begin(), digits(), Key{0});
    for (int64_t block = 0; block < plan_.sort_blocks; ++block) {
      const Key* counts = histogram(block);
      for (size_t d = 0; d < digits(); ++d) places[d] += counts[d];
    }
    Key place = 0;
    for (size_t d = 0; d < digits(); ++d) place += std::exchange(places[d], place);
    for (int64_t block = 0; block < plan_.sort_blocks; ++block) {
      Key* counts = histogram(block);
      for (size_t d = 0; d < digits(); ++d) places[d] += std::exchange(counts[d], places[d]);
    }
  }

  void sort_digit(int pass, size_t from) {
    parallel_blocks(plan_.sort_blocks, [&](int64_t block) { count_digits(block, pass); });
    place_digits();
    parallel_blocks(plan_.sort_blocks, [&](int64_t block) { move(block, pass, from); });
  }

  void move(int64_t block, int pass, size_t from) {
    Key* places = histogram(block);
    const Key* keys = keys_[from];
    const Key* positions = positions_[from];
    Key* to_keys = keys_[from ^ 1];
    Key* to_positions = positions_[from ^ 1];
    const auto [begin, end] = range_of(block);
    const auto digit = digit_of(pass);
    for (int64_t i = begin; i < end; ++i) {
      const Key place = places[digit(keys[i])]++;
      to_keys[place] = keys[i];
      // The first pass reads the indices as they come.
      to_positions[place] = pass == 0 ? static_cast<Key>(i) : positions[i];
    }
  }

  const Problem& problem_;
  const Plan& plan_;
  const void* indices_;
  Key* histograms_;
  std::array<Key*, 2> keys_{};
  std::array<Key*, 2> positions_{};  // the first one does not exist when there is one pass
};

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_ORDER_H_

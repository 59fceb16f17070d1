// SPDX-License-Identifier: Apache-2.0
// Long groups a tile of columns at a time: down all rows with the FP32 sums of a chain in
// registers, the FP64 totals in L1.

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TILES_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TILES_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_TILES_INL_H_
#endif

#include <algorithm>

#include "base/checked.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/strips-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/grouped_bias_add_grad/blocks-inl.h"
#include "ops/grouped_bias_add_grad/chains-inl.h"
#include "ops/grouped_bias_add_grad/job.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Strips of a tile: short rows are one tile, long ones and parts of them several, which differ by a
// strip at most. The other registers hold what is widened and what is added to the totals.
template <class T>
constexpr size_t kMostTileVectors = sizeof(T) == sizeof(float) ? 24 : 28;
template <class T>
constexpr size_t kMostTileStrips = kMostTileVectors<T> / kStripVectors<T>;
template <class T>
constexpr size_t kLeastTileStrips = kMostTileStrips<T> / 2 + 1;
// Whether so many columns are tiles that have strips enough: of fifteen strips of 16 bits one of
// two would have seven.
template <class T>
constexpr bool are_tiles(int64_t cols) {
  const int64_t strips = ceil_div(cols, static_cast<int64_t>(kStrip<T>));
  const int64_t tiles = ceil_div(strips, static_cast<int64_t>(kMostTileStrips<T>));
  return strips / tiles >= static_cast<int64_t>(kLeastTileStrips<T>);
}
constexpr int64_t kLeastShort = 12 * kVector + 1, kMostShort = 16 * kVector;

// Columns of FP64 totals that stay in L1.
constexpr int64_t kTotalsInL1 = 4096;

// Whether groups can be read so: where registers are enough, and the hardware follows the stride of
// each load instruction.
inline bool has_tiles() { return kParts == 1 && kTakesPrefetches; }

// Short rows: FP32 ones of 193 to 256 columns, beside sums in registers row by row 400000x256-g1000
// 0.88 to 0.92 of the time, one thread 0.86, 500000x200-g1000 0.91. Others beside sums in L1: 100
// to 250 rows of 300 to 1500 columns 0.94 to 1.07.
template <class T>
bool are_short_in_tiles(int64_t rows, int64_t cols) {
  constexpr int64_t kLeastRows = 64;
  return sizeof(T) == sizeof(float) && has_tiles() && cols >= kLeastShort && cols <= kMostShort &&
         rows >= kLeastRows;
}

// Rows of a group, at least (of 20 to 64 long rows 1.03 to 1.28 times the time).
constexpr int64_t kLeastRowsOfTiles = 192;

// Longer ones. Whether they go so is measured (faster_way.h), because one way is better by one pace
// of the memory and the other by another, or for one length (4 KiB are few lines of L1 again and
// again: one thread f32 60000x1536-g100 39 GB/s so, 35 the other way, 45000x1024-g90 37 and 38.5).
// A core of Zen 5 reads FP32 at 40 to 41 GB/s so, as much as from end to end, and line by line down
// sixteen rows (down_rows-inl.h) at 39, 36 where the totals do not fit L1. Two cores, time beside
// the other way, by the faster pace and by the slower: f32 13000x7168-g32 0.89 and 1.02,
// 32768x2880-g32 0.93 and 1.04; bf16, GB/s in tiles and from end to end, 13000x7168-g32 76 and 58,
// 43 and 48, one thread 36 and 32; 32768x2880-g32 79 and 74, 40 and 49, 37 and 39; 11000x8192-g16
// 71 and 60, 35 and 45, 33 and 31.
template <class T>
bool may_go_in_tiles(int64_t rows, int64_t cols) {
  return has_tiles() && rows >= kLeastRowsOfTiles && cols > kMostShort && are_tiles<T>(cols);
}

// `cols`: of a row or of a part of it.
template <class T>
bool goes_in_tiles(const Job& job, int64_t rows, int64_t cols) {
  return are_short_in_tiles<T>(rows, cols) || (job.in_tiles && may_go_in_tiles<T>(rows, cols));
}

// One line, in one load: two of 32 bytes with strides of their own are followed worse (f16
// 13000x7168-g32, one thread, time beside rows from end to end: 1.06 to 1.22 in two, 0.88 so).
template <class T>
HWY_INLINE Strip<T> load_line(const T* from) {
  Strip<T> out;
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(T) == 2) {
    const hn::Repartition<uint16_t, TagU32> d16;
    const hn::Half<decltype(d16)> half;
    auto line = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    asm("" : "+v"(line.raw));  // else g++ loads it once for each half
    out.v[0].part[0] = widened(hn::LowerHalf(half, line), T());
    out.v[1].part[0] = widened(hn::UpperHalf(half, line), T());
    return out;
  }
#endif
  for_constants<kStripVectors<T>>([&](auto v)
                                      ACLGRAD_INLINED { out.v[v] = load16(from + v * kLanes); });
  return out;
}

// 16-bit rows of a tile are asked for so many rows ahead: left to itself, the hardware follows them
// for seconds and then, in the same process, does not (bf16 13000x7168-g32, two cores of Zen 5,
// GB/s: fourteen strips 35 to 41 or 74, twelve 50 to 63; with 4, 6, 8 and 10 rows ahead 68 to 76,
// to L2 60 to 76). FP32 rows are followed always, and asking for them costs (78 to 71).
template <class T>
constexpr int64_t kTileRowsAhead = sizeof(T) == sizeof(float) ? 0 : 8;

// Addresses of the rows to ask for, one after the other: the last rows of a tile ask for those that
// are read next, `following` elements behind its first. Not pointers: they may lie behind the
// tensor, which harms nobody.
class TileAhead {
 public:
  template <class T>
  TileAhead(const T* row, int64_t stride, int64_t rows, int64_t following) {
    const auto behind = [row](int64_t elements) {
      return reinterpret_cast<uintptr_t>(row) + static_cast<uintptr_t>(elements) * sizeof(T);
    };
    step_ = static_cast<uintptr_t>(stride) * sizeof(T);
    following_ = behind(following);
    end_ = behind(rows * stride);
    at_ = rows > kTileRowsAhead<T> ? behind(kTileRowsAhead<T> * stride) : following_;
  }

  HWY_INLINE uintptr_t next() {
    const uintptr_t row = at_ == end_ ? following_ : at_;
    at_ = row + step_;
    return row;
  }

 private:
  uintptr_t step_, following_, end_, at_;
};

// Vectors of totals that a row adds to, and room for the totals of a tile, the last of which may
// stay zero.
template <class T>
constexpr size_t wide_of_row(size_t strips) {
  return (strips * kStripVectors<T> + kWideLanes - 1) / kWideLanes;
}
template <class T>
constexpr size_t tile_room(size_t strips) {
  return wide_of_row<T>(strips) * kWideLanes * kChain;
}

// Adds kStrips strips of columns of `rows` rows, `stride` elements apart, to `totals`, which are
// aligned to a vector and have tile_room(). The last strip begins at column `last`,
// maybe within the one before it. The rows that are read next lie `following` elements behind.
//
// The sums of a chain wait in L1, and while the next one's rows are loaded they are added to the
// totals, as many with each row as with the next: where that is done at once no line is asked for
// meanwhile (a core of Zen 5: 38 GB/s). The loop over rows must not be unrolled: then the rows
// are one stride for each load instruction. Nothing else may branch in it (34 GB/s).
template <size_t kStrips, class T>
HWY_INLINE void add_tile(const T* row, int64_t stride, int64_t rows, size_t last, int64_t following,
                         double* totals) {
  constexpr size_t kVectors = kStrips * kStripVectors<T>;
  constexpr size_t kWideOfRow = wide_of_row<T>(kStrips);
  constexpr size_t kRoom = tile_room<T>(kStrips);
  constexpr bool kAsks = kTileRowsAhead<T> != 0;
  static_assert(kRoom >= kVectors * kLanes);
  alignas(64) float sums[kRoom] = {};  // those behind the last vector stay zero
  const auto add_wide = [&](size_t at) ACLGRAD_INLINED {
    const TagF64 d64;
    const hn::Rebind<float, TagF64> d32;
    const VecF64 wide = hn::PromoteTo(d64, hn::Load(d32, sums + at));
    hn::Store(hn::Add(hn::Load(d64, totals + at), wide), d64, totals + at);
  };
  const auto add_sums = [&]() ACLGRAD_INLINED {
    for (size_t at = 0; at < kRoom; at += kWideLanes) add_wide(at);
  };
  TileAhead ahead(row, stride, rows, following);
  const auto sum_chain = [&](int64_t count, auto&& behind_row) ACLGRAD_INLINED {
    F32x16 sum[kVectors];
    for (F32x16& each : sum) each = zero16();  // nothing but -0 becomes +0
    for (int64_t i = 0; i < count; ++i, row += stride) {
      const uintptr_t fetched = ahead.next();
      for_constants<kStrips>([&](auto s) ACLGRAD_INLINED {
        const size_t col = s + 1 < kStrips ? s * kStrip<T> : last;
        const Strip<T> line = load_line(row + col);
        for_constants<kStripVectors<T>>([&](auto v) ACLGRAD_INLINED {
          constexpr size_t kAt = s * kStripVectors<T> + v;
          sum[kAt] = add(sum[kAt], line.v[v]);
        });
        if constexpr (kAsks) {
          prefetch_to_l1(reinterpret_cast<const void*>(fetched + col * sizeof(T)));
        }
      });
      behind_row();
    }
    for_constants<kVectors>([&](auto v) ACLGRAD_INLINED { store_raw(sum[v], sums + v * kLanes); });
  };
  for (int64_t chain = rows / kChainRows; chain > 0; --chain) {
    size_t at = 0;
    sum_chain(kChainRows, [&]() ACLGRAD_INLINED {
      for_constants<kWideOfRow>([&](auto w) ACLGRAD_INLINED { add_wide(at + w * kWideLanes); });
      at += kWideOfRow * kWideLanes;
    });
  }
  add_sums();
  if (rows % kChainRows == 0) return;
  sum_chain(rows % kChainRows, []() ACLGRAD_INLINED {});
  add_sums();
}

// Columns [begin, end) of a block, a tile; what is read next lies `following` elements behind it.
template <class T>
void sum_tile_of(const Job& job, const Block<T>& block, int64_t begin, int64_t end,
                 int64_t following) {
  constexpr auto kWidth = static_cast<int64_t>(kStrip<T>);
  const int64_t cols = end - begin;
  alignas(64) double totals[tile_room<T>(kMostTileStrips<T>)] = {};
  for_constants<kMostTileStrips<T> - kLeastTileStrips<T> + 1>([&](auto more) HWY_ATTR {
    constexpr size_t kStrips = kLeastTileStrips<T> + more;
    if (ceil_div(cols, kWidth) == static_cast<int64_t>(kStrips)) {
      add_tile<kStrips>(block.first + begin, job.problem.row_stride(), block.rows,
                        static_cast<size_t>(cols - kWidth), following, totals);
    }
  });
  align_totals<kWidth>(totals, cols);
  finish(job, block, totals, 0, begin, end);
}

// Calls sum_tile(begin, end) for the tiles of columns [begin, end), which are alike.
template <class T, class SumTile>
void each_tile(int64_t begin, int64_t end, SumTile&& sum_tile) {
  constexpr auto kWidth = static_cast<int64_t>(kStrip<T>);
  const int64_t strips = ceil_div(end - begin, kWidth);
  const int64_t tiles = ceil_div(strips, static_cast<int64_t>(kMostTileStrips<T>));
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const auto col = [&](int64_t i) { return begin + run_begin(strips, tiles, i) * kWidth; };
    sum_tile(col(tile), std::min(end, col(tile + 1)));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

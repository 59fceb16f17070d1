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
#include <iterator>

#include "base/checked.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/row_sums-inl.h"
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

// Vectors of a tile: short rows are one, long ones several, which differ by a vector at most. The
// other registers hold what is added to the totals.
constexpr int64_t kTileVectors[] = {13, 14, 15, 16, 20, 21, 22, 23, 24};
constexpr int64_t kMostTileVectors = 24;
constexpr int64_t kMostTile = kMostTileVectors * kVector;
constexpr int64_t kLeastShort = 12 * kVector + 1, kMostShort = 16 * kVector;
static_assert(kLongRow * kMostTile / (kLongRow + kMostTile) >= 20 * kVector,
              "n vectors in ceil(n / 24) tiles make more than 24 n / (n + 24) each");

// Where registers are enough.
template <class T>
constexpr bool kHasTiles = kParts == 1 && sizeof(T) == sizeof(float);

// Whether columns of FP32 groups are read so: where registers are enough, the hardware follows the
// stride of each load instruction, and groups have rows enough (of 20 to 64 long ones 1.03 to 1.28
// times the time).
//
// Long rows whose FP64 totals do not fit L1, and, where one thread reads, all long ones. A core of
// Zen 5 reads 40 to 41 GB/s so, as much as from end to end, and line by line down sixteen rows
// (down_rows-inl.h) 39, 36 where the totals do not fit. Two cores by the faster pace of their
// memory, time beside that: 13000x7168-g32 0.89 to 0.92, 32768x2880-g32 0.93 to 0.95; by the slower
// one, for which sixteen rows beside each other are best, 1.02 and 1.04; one thread 0.89, 0.91.
//
// Short rows, of 193 to 256 columns, beside sums in registers row by row: 400000x256-g1000 0.88 to
// 0.92, one thread 0.86, 500000x200-g1000 0.91. Others beside sums in L1: 100 to 250 rows of 300 to
// 1500 columns 0.94 to 1.07; groups that are folded 1.02 to 1.06.
template <class T>
bool goes_in_tiles(int64_t rows, int64_t cols) {
  constexpr int64_t kLeastShortRows = 64, kLeastLongRows = 192;
  constexpr int64_t kTotalsInL1 = 4096;
  if (!kHasTiles<T> || !kTakesPrefetches) return false;
  if (cols <= kMostShort) return cols >= kLeastShort && rows >= kLeastShortRows;
  return rows >= kLeastLongRows && cols >= kLongRow &&
         (cols > kTotalsInL1 || aclgrad_threads() == 1);
}

// Adds kVectors vectors of columns of `rows` rows, `stride` elements apart, to `totals`, which are
// aligned to a vector and have room for kMostTile. The last vector begins at column `last`, maybe
// within the one before it.
//
// The sums of a chain wait in L1, and while the next one's rows are loaded they are added to the
// totals, as many with each row as with the next: where that is done at once no line is asked for
// meanwhile (a core of Zen 5: 38 GB/s). The loop over rows must not be unrolled: then the rows
// are one stride for each load instruction. Nothing else may branch in it (34 GB/s).
template <size_t kVectors>
HWY_INLINE void add_tile(const float* row, int64_t stride, int64_t rows, int64_t last,
                         double* totals) {
  constexpr size_t kWideOfRow = (kVectors + kWideLanes - 1) / kWideLanes;
  constexpr size_t kRoom = kWideOfRow * kWideLanes * kChain;
  static_assert(kRoom >= kVectors * kLanes && kRoom <= kMostTile);
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
  const auto sum_chain = [&](int64_t count, auto&& behind_row) ACLGRAD_INLINED {
    F32x16 sum[kVectors];
    for (F32x16& each : sum) each = zero16();  // nothing but -0 becomes +0
    for (int64_t i = 0; i < count; ++i, row += stride) {
      for_constants<kVectors - 1>(
          [&](auto v) ACLGRAD_INLINED { sum[v] = add(sum[v], load16(row + v * kLanes)); });
      sum[kVectors - 1] = add(sum[kVectors - 1], load16(row + last));
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

// Columns [begin, end) of a block, a tile.
template <class T>
void sum_tile_of(const Job& job, const Block<T>& block, int64_t begin, int64_t end) {
  const int64_t cols = end - begin;
  alignas(64) double totals[kMostTile] = {};
  for_constants<std::size(kTileVectors)>([&](auto i) HWY_ATTR {
    constexpr auto kVectors = static_cast<size_t>(kTileVectors[i]);
    if (ceil_div(cols, kVector) == static_cast<int64_t>(kVectors)) {
      add_tile<kVectors>(block.first + begin, job.problem.row_stride(), block.rows, cols - kVector,
                         totals);
    }
  });
  align_totals(totals, cols);
  finish(job, block, totals, 0, begin, end);
}

// Calls sum_tile(begin, end) for the tiles of columns [begin, end), which are alike.
template <class SumTile>
void each_tile(int64_t begin, int64_t end, SumTile&& sum_tile) {
  const int64_t vectors = ceil_div(end - begin, kVector);
  const int64_t tiles = ceil_div(vectors, kMostTileVectors);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const auto col = [&](int64_t i) { return begin + run_begin(vectors, tiles, i) * kVector; };
    sum_tile(col(tile), std::min(end, col(tile + 1)));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

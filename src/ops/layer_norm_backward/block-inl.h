// SPDX-License-Identifier: Apache-2.0
// Up to sixteen rows that are visited together, and how they ask for the next ones.

#if defined(ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_BLOCK_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/masked_loads.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/strips-inl.h"
#include "ops/layer_norm_backward/exact.h"
#include "ops/layer_norm_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

inline constexpr size_t kRows = static_cast<size_t>(kRowBlock);

// Columns visited for all rows of a group before the next ones: 4 KiB of chains; 8 KiB where rows
// are visited one by one, so that each is read and written in longer runs.
inline constexpr int64_t kTile = 512;
inline constexpr int64_t kLongTile = 1024;
// Where the core follows each load by itself, rows whose chains wait in L2 are read and written in
// such runs (two cores of Zen 5, one thread, time beside tiles: f32 8192x4096 and 2048x12288
// 0.95).
inline constexpr int64_t kRunTile = 4096;

// Columns that one round of the four chains of a row covers: four vectors.
inline constexpr size_t kRound = kRowChains * kLanes;

// Columns after which the chains are full.
inline constexpr size_t kChainColumns = kRowChainElements;

// Whether the last columns of a row, less than a strip, are read and written as a whole one that
// reaches into the next row. Those that are in a strip's first vector alone lose (two cores of Zen
// 3, AVX2, times as fast: bf16 505051x33 0.91, f16 400000x36 0.95, but 400000x24 bf16 1.11, f16
// 1.19, 264550x63 f16 1.15, 131234x127 bf16 1.11), and so would FP32 (400000x20 0.93, x44 0.98),
// but where masked loads are slow all do so (of Zen 1: f32 400000x20 1.57, x24 1.36, x44 1.58, x8
// 2.2, 100000x200 1.18, bf16 505051x33 1.15, f16 400000x36 1.11).
template <class T>
bool reads_whole(size_t cols) {
  return prefers_whole<T>() && cols % kStrip<T> > (kMasksLoadsSlowly ? 0 : kFirstColumns<T>);
}

// Means of g and g * xhat over a row.
struct Means {
  double g, gx;
};

// How the lines of the rows to come are asked for.
enum class Fetch : uint8_t {
  kTwice,   // by both visits, to L2
  kOnce,    // by the second one alone, to L1
  kNothing  // not at all: they are visited together with these (fused-inl.h), or of plain rows
            // there are none
};

// Bytes from a row to the one that the next call visits, for prefetching.
struct Ahead {
  intptr_t dy = 0, x = 0;
  bool twice = true;  // Fetch::kTwice, else kOnce

  bool any() const { return (dy | x) != 0; }
};

// Up to sixteen rows and what each needs: dx = rstd * ((g - mean_g) - xhat * mean_gx).
template <class T>
struct Rows {
  size_t count = 0;
  const T* dy[kRows];
  const T* x[kRows];
  void* dx[kRows];
  alignas(64) float mean[kRows] = {};
  alignas(64) float rstd[kRows] = {};
  alignas(64) float mean_g[kRows] = {};
  alignas(64) float mean_gx[kRows] = {};
  bool ordinary = false;  // no unusual_rows() (ordinary-inl.h), or they are padding
  uint32_t padding = 0;   // bit r: row r is_padding() (exact-inl.h)
  uint32_t exact = 0;     // bit r: the dx of row r takes FP64 (exact-inl.h), from these means
  Means exact_means[kRows];
  Ahead ahead;
  bool one_by_one = false;  // the second visit takes one row at a time (Visiting)
  bool open = false;        // reads_whole() (Visiting), and there is something to read

  int64_t tile() const { return one_by_one ? kLongTile : kTile; }
};

// Registers for numbers of rows: half of a logical vector, as RowLanes::join() writes them. A load
// that needs two stores waits until both have left for L1, behind dx's streaming stores.
using TagRows = hn::CappedTag<float, kRows / 2>;

// False when dx may hold a NaN. A NaN or an infinity among a row's g and x shows in its sums (Inf *
// 0 is NaN there); from finite ones only rstd = 0 makes a NaN, when the rest overflows, or a very
// large one (kMostRstd), or an infinite xhat beside a mean_gx of 0: such a row takes FP64.
template <class T>
HWY_INLINE bool dx_has_no_nan(const Rows<T>& rows) {
  const TagRows d;
  for (size_t r = 0; r < rows.count; r += hn::Lanes(d)) {
    const auto here = hn::FirstN(d, rows.count - r);
    const auto rstd = hn::Load(d, rows.rstd + r);
    const auto usual = hn::And(hn::IsFinite(hn::Load(d, rows.mean_g + r)),
                               hn::IsFinite(hn::Load(d, rows.mean_gx + r)));
    const auto invertible =
        hn::AndNot(hn::Eq(rstd, hn::Zero(d)), hn::Le(hn::Abs(rstd), hn::Set(d, kMostRstd)));
    if (!hn::AllTrue(d, hn::Or(hn::And(usual, invertible), hn::Not(here)))) return false;
  }
  return true;
}

// Asks for the lines of the next rows. A core that drops prefetches is asked by both visits, but
// for long rows where L2 is small (visiting_of()), by one or none: the second one catches what the
// first one lost (8192x4096 on one core of Zen 4: 24.8 ms with the second visit's alone, 19.0 ms
// with both). Where they wait instead they belong to the second visit, for the first one's loads
// come from L2 or beyond (f32 8192x4096 on two cores of Granite Rapids: 14.9 ms with both, 13.1
// with the second visit's alone, 12.6 into L1). Only 16-bit rows that stay in L1, which arithmetic
// holds up more than memory, want both there too (bf16 32768x768: 5.8 and 6.6 ms).
HWY_INLINE void first_prefetch(const void* dy, const void* x, const Ahead& ahead) {
  if (!ahead.twice) return;
  prefetch_to_l2(dy, ahead.dy);
  prefetch_to_l2(x, ahead.x);
}
template <Fetch kFetch>
HWY_INLINE void second_prefetch(const void* dy, const void* x, const Ahead& ahead) {
  if constexpr (kFetch == Fetch::kTwice) {
    prefetch_to_l2(dy, ahead.dy);
    prefetch_to_l2(x, ahead.x);
  } else if constexpr (kFetch == Fetch::kOnce) {
    prefetch_to_l1(dy, ahead.dy);
    prefetch_to_l1(x, ahead.x);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// Which way the rows of a problem are taken. No bit of the results depends on it.

#if defined(ACLGRAD_OPS_LAYER_NORM_CHOICES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_LAYER_NORM_CHOICES_INL_H_
#undef ACLGRAD_OPS_LAYER_NORM_CHOICES_INL_H_
#else
#define ACLGRAD_OPS_LAYER_NORM_CHOICES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/halves.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/stage-inl.h"
#include "ops/layer_norm/across-inl.h"
#include "ops/layer_norm/block-inl.h"
#include "ops/layer_norm/job.h"
#include "ops/layer_norm/parts-inl.h"
#include "ops/layer_norm/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::layer_norm {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Rows that are visited together, in bytes of x: more of them would have to wait for each other's
// memory, and fewer would not hide their last sums. Does not influence the bits.
constexpr int64_t kGroupBytes = int64_t{8} << 10;

// FP32 rows of more columns go in pairs where prefetches wait: gamma and beta, 8 bytes a column,
// leave L1 before the next row and are loaded once for both. Where prefetches are dropped, what
// calls the next row to L1 (kAheadToL1) does more for one (two Zen 4 cores, ms: f32 8192x4096 7.1
// in pairs and 5.9 one by one, 2048x12288 6.4 and 5.5). Only where a vector is one register: the
// sums of two rows do not fit sixteen others.
constexpr int64_t kPairColumns = 2048;

template <class T>
int64_t group_rows(int64_t cols) {
  const auto size = static_cast<int64_t>(sizeof(T));
  if (cols > static_cast<int64_t>(kChainColumns)) {
    const bool in_pairs = kParts == 1 && size == 4 && kPrefetchesWait && cols > kPairColumns;
    return in_pairs ? 2 : 1;
  }
  return std::clamp(kGroupBytes / (cols * size), int64_t{1}, static_cast<int64_t>(kRows));
}

// Whether rows are summed and written one after the other: a group of them is so short that reading
// and writing overlap by themselves. Otherwise what is written holds up what was asked for, and
// longer rows, or those that leave no part of kTwo, are summed while others are written (two cores
// of Granite Rapids, 400000x64 together: f32 8.4 -> 7.0 ms, bf16 5.8 -> 5.1; but f32 300000x48 5.0
// -> 6.8, bf16 500000x33 6.2 -> 8.4; of Zen 4, 400000x64: f32 5.7 -> 5.3, 16 bits 4.3 -> 4.0). Not
// on AVX2 what goes register by register (Zen 4, f32 400000x64: 4.7 ms, together 5.5), but for the
// longest rows of FP16 (Zen 3, 524288x128: 22.1 ms, together 20.1; bf16 20.2 and 23.3).
template <class T>
bool go_apart(const Job& job) {
  constexpr int64_t kApartColumns = 64;
  constexpr auto kMost = static_cast<int64_t>(kMostOfParts<T>);
  const int64_t cols = job.problem.cols;
  if (cols < kApartColumns) return true;
  if (HWY_TARGET != HWY_AVX2 || cols > kMost) return false;
  const bool in_parts = job.x_rows.uniform() && job.x_rows.stride() == cols && job.y_follows &&
                        job.usual_weights && job.problem.y.dtype == job.problem.x.dtype;
  return in_parts && (cols < kMost || !std::is_same_v<T, float16_t>);
}

// Where y passes before it is written past the caches: a long row, too, so that it can be summed
// ahead like others.
template <class T>
using YStage = Stage<T, size_t{64} << 10>;

// Whether y is to pass through a stage: lines that are not whole cannot be streamed. Short rows
// with gaps between them are not worth it.
template <class T>
bool is_staged(const Job& job) {
  const auto size = static_cast<int64_t>(sizeof(T));
  if (!job.streaming || job.problem.y.dtype != job.problem.x.dtype) return false;
  const bool whole = begins_line(static_cast<const char*>(job.at.y)) && job.y_rows.uniform() &&
                     job.y_rows.stride() * size % int64_t{kLineBytes} == 0;
  const bool worth_it = job.y_follows || job.problem.cols * size >= 1024;
  return !whole && worth_it && reinterpret_cast<uintptr_t>(job.at.y) % sizeof(T) == 0;
}

// Whether rows that are not whole lines pass through the stage, although they might be joined line
// by line: those of sixteen bits on AVX2 that do not go register by register, if they are short:
// whole strips are read and written there (two cores of Zen 3, times as fast: 98039x255 bf16 1.17,
// f16 1.16, but 80000x319 0.89 and 0.89), and of FP32 where masked loads are slow (of Zen 1,
// 80000x255 1.08, 100000x100 1.06, 150000x90 1.12).
template <class T>
bool prefers_stage(int64_t cols) {
  constexpr int64_t kMost = 256;
  return prefers_whole<T>() && cols <= kMost;
}

// Rows::columns_stride of `count` rows from row `row` on.
template <class T>
int64_t columns_stride(const Job& job, int64_t row, size_t count) {
  constexpr bool kInParts = HWY_TARGET == HWY_AVX2;
  constexpr bool kTurned = kTurnsRows && std::is_same_v<T, float>;
  if (!(kInParts || kTurned) || count != kRows || !job.x_rows.uniform()) return 0;
  const int64_t cols = job.problem.cols;
  constexpr auto kMost = static_cast<int64_t>(kInParts ? kMostOfParts<T> : kMostColumns);
  // Few columns, too, most of which are read in vain (f32 4166667x3, Emerald Rapids: 25.5 -> 18.7
  // ms; on AVX2, times as fast on two cores of Zen 3, 1 to 3 columns f32 1.25 to 1.7, f16 2.3 to
  // 3.3, 1 to 7 columns bf16 1.3 to 1.9).
  if (cols == 0 || cols > kMost) return 0;
  const int64_t stride = job.x_rows.stride();
  // What is read too much belongs to the next rows, never to what lies between rows.
  const int64_t behind = (job.problem.rows - row - static_cast<int64_t>(count)) * cols;
  const int64_t too_much =
      (kInParts ? columns_in_parts<T>(cols) : round_up(cols, int64_t{kEight})) - cols;
  return too_much == 0 || (stride == cols && behind >= too_much) ? stride : 0;
}

// Whether blocks of rows are written across their borders: FP32 rows of the slab are whole lines
// together, and follow each other in x and y. Where prefetches wait, so are rows that are whole
// lines (600000x32 on two cores of Granite Rapids: 8.5 -> 6.6 ms).
template <class T>
bool writes_across(const Job& job) {
  const int64_t cols = job.problem.cols;
  return kTurnsRows && std::is_same_v<T, float> && job.plan.slab_rows % int64_t{kRows} == 0 &&
         cols >= int64_t{kLeastAcross} && cols <= int64_t{kMostAcross} &&
         (is_staged<T>(job) || (kPrefetchesWait && job.streaming)) &&
         begins_line(static_cast<const char*>(job.at.y)) && job.y_follows && job.x_rows.uniform() &&
         job.x_rows.stride() == cols;
}

#if HWY_TARGET == HWY_AVX2
// Whether y of rows in parts goes past the caches register by register: the rows follow each other,
// and each is whole registers, if not lines, and nothing but its own columns is written.
template <class T>
bool streams_parts(const Job& job) {
  constexpr auto kRegister = static_cast<int64_t>(kPartLanes * sizeof(float));
  const int64_t cols = job.problem.cols;
  return job.streaming && job.y_follows && columns_in_parts<T>(cols) == cols &&
         cols * int64_t{sizeof(T)} % kRegister == 0 &&
         reinterpret_cast<uintptr_t>(job.at.y) % size_t{kRegister} == 0;
}

// Whether sixteen rows of y in parts, `behind` which others of the slab are still to be written, go
// to the caches where they lie.
template <class T>
bool fit_in_place(const Job& job, int64_t behind) {
  const int64_t cols = job.problem.cols;
  const int64_t too_much = columns_in_parts<T>(cols) - cols;
  return !job.streaming && (too_much == 0 || (job.y_follows && behind * cols >= too_much));
}
#endif

#if ACLGRAD_HAS_HALVES
// Whether AVX2's kernel of sixteen rows in parts takes them (parts-inl.h): of 24 columns it
// computes three registers, this one two vectors of sixteen, the half of one in vain (two cores of
// Zen 4, AVX2's time for 48 MB over AVX-512's: f32 8 columns 0.81, 12 0.95, 24 0.88, 48 0.87, 56
// 0.91, 64 1.03, but 17 to 23 1.2 to 1.3; bf16 8 to 16 0.7, 17 to 32 0.9 to 1.1, 33 0.96, 48 0.89,
// 56 1.12; f16 4 to 8 0.6, 16 0.77, 24 0.76, 32 0.99, 40 0.78, 56 0.85, 64 1.14). Where prefetches
// wait, vectors are whole, but a core starts three of AVX2's instructions a cycle and two of
// AVX-512's (two cores of Granite Rapids, the same: bf16 4 to 16 columns 0.6 to 0.7, 20 to 33 0.85
// to 0.92, 40 to 63 0.68 to 0.97, 64 level, 96 1.1; f16 4 to 16 0.65 to 0.75, 20 to 63 0.75 to
// 0.92, 64 1.04, 96 1.15; f32 4 to 16 0.73 to 0.94, 20 1.17, 24, 40 and 56 level, 32 1.14, 64 and
// 80, whole lines, 0.87 and 0.66, 88 1.18, 96 level).
template <class T>
bool suits_avx2(const Job& job) {
  const Problem& problem = job.problem;
  const int64_t cols = problem.cols;
  const bool follow = !job.gathered && job.x_rows.uniform() && job.x_rows.stride() == cols &&
                      job.y_follows && problem.y.dtype == problem.x.dtype;
  if (!(kTakesHalves || kPrefetchesWait) || !follow || problem.rows < int64_t{kRows}) return false;
  const auto between = [cols](int64_t least, int64_t most) {
    return cols >= least && cols <= most;
  };
  if (kPrefetchesWait) {
    if constexpr (!std::is_same_v<T, float>) return between(4, 63);
    return between(4, 16) || (cols % static_cast<int64_t>(kLanes) == 0 && between(64, 80));
  }
  if constexpr (std::is_same_v<T, float16_t>) return between(4, 56);
  if constexpr (std::is_same_v<T, bfloat16_t>) return between(8, 16) || between(33, 48);
  return between(4, 16) || (cols % 8 == 0 && between(24, 56));
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::layer_norm
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

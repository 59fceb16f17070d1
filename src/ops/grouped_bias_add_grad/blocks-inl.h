// SPDX-License-Identifier: Apache-2.0
// Blocks of rows that are not narrow, how their totals are written, and those that need none or
// few: groups of one chain, and short rows whose sums are in registers.

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_BLOCKS_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_BLOCKS_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_BLOCKS_INL_H_
#endif

#include <algorithm>
#include <cstdlib>

#include "base/checked.h"
#include "kernels/cpu/constants-inl.h"
#include "kernels/cpu/down_rows-inl.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/grouped_bias_add_grad/chains-inl.h"
#include "ops/grouped_bias_add_grad/job.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Where the totals of a block go.
template <class T>
struct Block {
  const T* first;  // row 0 of the block
  int64_t rows;    // may be 0
  T* out;          // the group's row of dbias
  bool staged;     // or where it waits in the stage
  // Where its totals are kept until they are joined; null: no other task has blocks of the group.
  double* partial = nullptr;
  // The group's totals so far, if that is so and it has several blocks.
  double* so_far = nullptr;
  bool begins = true, ends = true;  // the group
};

// Groups, if they do not go in tiles (tiles-inl.h), whose sums are in registers while a chain is
// read from end to end: short rows, and where there are registers enough longer ones of several
// chains, FP32 ones and where prefetches wait those of 16 bits. Time beside that of sums in L1, two
// cores of Zen 5: 800000x100-g2000 0.79, x128 0.77, 500000x200 0.87, [30000, 40, 100] 0.80; 300
// columns level, [60000, 16, 100] 1.06, [25000, 16, 256] 1.16, 16 bits 0.98. The same there with
// prefetches as if they waited and as if they were dropped: 1200000x70-g32 0.75 and 0.9, x100 0.71
// and 0.83, 300000x200-g64 0.86 and 1.0, 150000x256-g64 0.98 and 1.1. Two cores of Granite Rapids,
// where they do wait, bf16 and f16: 400000x70-g7 0.81 and 0.75, 300000x100-g7 0.82 and 0.76,
// 200000x160-g7 0.95 and 0.88, 200000x150-g2000 0.91 and 0.90, 250000x128-g32 level.
template <class T>
constexpr int64_t kMostVectors = kParts > 1                   ? 4
                                 : sizeof(T) == sizeof(float) ? 16
                                                              : 10;
template <class T>
bool fits_registers(int64_t rows, int64_t cols, int64_t stride) {
  constexpr int64_t kMostOfOthers = 10 * kVector;
  static_assert(kMostVectors<T> * kVector <= kShortRow ||
                kMostOfOthers <= kMostVectors<T> * kVector);
  if (cols <= kShortRow) return true;
  if (kMostVectors<T> * kVector <= kShortRow || rows <= kChainRows) return false;
  if (sizeof(T) == 2 && !kPrefetchesWait) return false;
  if (!kTakesPrefetches) return cols <= kMostOfOthers;
  return cols <= kMostVectors<T> * kVector && are_stream<T>(cols, stride);
}

// What is fetched ahead of such sums: so many bytes where rows are a stream, else as many rows as
// so many bytes hold, or what follows a block of fewer. Half as much where prefetches wait: what
// goes into L1 then comes too early from 4 KiB ahead (two cores of Granite Rapids, time beside that
// with 4 KiB, with 1, 1.5, 2, 3 and 8 KiB: bf16 1000003x31-g7 0.90, 0.85, 0.79, 0.96, 0.92,
// 500000x64-g7 0.65, -, 0.63, -, 1.06; 2 KiB, f16 1000003x31-g7 0.74, 500000x64-g2000 0.74,
// 4000000x24-g32 0.94, f32 500000x48-g7 0.88; f32 of 17 to 31 columns level).
constexpr int64_t kBytesAheadOfStream = 6144;
inline int64_t bytes_ahead() { return kPrefetchesWait ? 2048 : 4096; }

// Elements from the beginning of a block to the next one.
template <class T>
int64_t next_block(const Job& job, const Block<T>& block) {
  const Problem& problem = job.problem;
  const bool whole = block.begins && block.ends;
  return whole && !problem.has_ends() ? problem.group_stride() : block.rows * problem.row_stride();
}

template <class T>
bool is_one_chain(const Block<T>& block) {
  return block.rows <= kChainRows && block.partial == nullptr && block.so_far == nullptr;
}

// Rounds totals, aligned to a vector, once and writes them.
template <class T>
void write_totals(const Job& job, const double* totals, int64_t count, T* out) {
  for (int64_t begin = 0; begin < count; begin += kVector) {
    const auto lanes = static_cast<size_t>(std::min(kVector, count - begin));
    put_sum(round16(totals + begin), out + begin, lanes, job.streaming);
  }
}

// Totals of columns [begin, end) of a block to where they go; among those so far they stand from
// `place` on.
template <class T>
void finish(const Job& job, const Block<T>& block, const double* totals, int64_t place,
            int64_t begin, int64_t end) {
  const int64_t count = end - begin;
  if (block.partial != nullptr) {
    std::copy(totals, totals + count, block.partial + begin);
    return;
  }
  if (block.so_far != nullptr) {
    double* so_far = block.so_far + place;
    if (block.begins) {
      std::copy(totals, totals + count, so_far);
    } else {
      for (int64_t i = 0; i < count; ++i) so_far[i] += totals[i];
    }
    if (!block.ends) return;
    totals = so_far;
  }
  write_totals(job, totals, count, block.out + begin);
}

// Where prefetches are dropped, rows without gaps of up to so many bytes are followed by the
// hardware, if each of their loads is one instruction (Loop::kRolled); asked for what lies 4 KiB
// ahead it loses them. One core of Zen 4, time without: bf16 of 18 to 64 columns 0.66 to 0.78, in
// groups of 12 rows 0.73 to 1.08, of 40 rows 0.61 to 0.85; FP32 of 18 columns 0.72, of 24 0.96 to
// 1.02, of 31 1.03, of 32 1.02, in groups of 12 rows 1.6 to 1.8.
template <class T>
constexpr int64_t kMostFollowed = sizeof(T) == sizeof(float) ? 96 : 128;

// Left to itself, g++ unrolls the loop over a chain's rows for two and three vectors, so that each
// row has loads, and a stride, of its own to follow. One core of Zen 4, time rolled: FP32 of 24 to
// 48 columns 0.63 to 0.83, of 18 columns 0.95, bf16 0.95 to 1.04; with gaps, in groups of 12 rows,
// 1.3 to 1.8. Where a vector is two registers only rows whose last one is skipped gain by that (two
// cores of Zen 1, times as fast: 18 columns bf16 1.20, f16 1.11, 24 1.14, 1.09, f32 1.04, 40 1.1,
// 1.07, 1.07; whole vectors 0.9 to 1.0).
enum class Loop : uint8_t { kAsCompiled, kRolled };

// The sums of N vectors down the rows of a chain. The last vector begins at column `last`, maybe
// within the one before it, which has its first kSkipped parts. What lies `next` elements further
// on is fetched; rolled, 0: nothing.
template <Loop kLoop, size_t N, size_t kSkipped, class T>
HWY_INLINE void sum_chain(const T* from, int64_t stride, int64_t rows, int64_t last, int64_t next,
                          F32x16 (&sum)[N]) {
  for (size_t k = 0; k < N; ++k) sum[k] = zero16();  // so that a sum of nothing but -0 is +0
  const auto add_row = [&]() ACLGRAD_INLINED {
    for (size_t k = 0; k + 1 < N; ++k) sum[k] = add(sum[k], load16(from + k * kLanes));
    for (size_t part = kSkipped; part < kParts; ++part) {
      VecF32& of_last = sum[N - 1].part[part];
      of_last = hn::Add(of_last, load_part(from + last + part * kPartLanes));
    }
    // Only rolled: the question alone keeps g++ from unrolling, which rows with gaps need.
    if (kLoop == Loop::kAsCompiled || next != 0) fetch<N>(from + next);
    from += stride;
  };
  if constexpr (kLoop == Loop::kAsCompiled) {
    for (int64_t row = 0; row < rows; ++row) add_row();
  } else {
#pragma GCC unroll 1
    for (int64_t row = 0; row < rows; ++row) add_row();
  }
}

// A block whose sums fit registers: rows of N vectors, the last of which begins at column `last`.
template <Loop kLoop, size_t N, size_t kSkipped, class T>
void sum_in_registers(const Job& job, const Block<T>& block, int64_t last) {
  const int64_t stride = job.problem.row_stride();
  const bool streaming = job.streaming && !block.staged;
  constexpr auto kSize = static_cast<int64_t>(sizeof(T));
  int64_t next = kBytesAheadOfStream / kSize;
  if (!are_stream<T>(job.problem.cols, stride)) {
    const int64_t apart = std::max(int64_t{1}, std::abs(stride));
    const int64_t rows = std::max(int64_t{1}, bytes_ahead() / kSize / apart);
    next = block.rows <= rows ? next_block(job, block) : rows * stride;
  }
  constexpr bool kMayFollow = kParts == 1 && kLoop == Loop::kRolled;
  if (kMayFollow && job.problem.cols * kSize <= kMostFollowed<T>) next = 0;
  F32x16 sum[N];
  if (is_one_chain(block)) {
    sum_chain<kLoop, N, kSkipped>(block.first, stride, block.rows, last, next, sum);
  } else {
    alignas(64) double totals[N * kLanes] = {};
    for (int64_t row = 0; row < block.rows; row += kChainRows) {
      sum_chain<kLoop, N, kSkipped>(block.first + row * stride, stride,
                                    std::min(kChainRows, block.rows - row), last, next, sum);
      for (size_t k = 0; k + 1 < N; ++k) add_to(totals + k * kLanes, sum[k]);
      add_to<kSkipped>(totals + (N - 1) * kLanes, sum[N - 1]);
    }
    if (block.partial != nullptr || block.so_far != nullptr) {
      align_totals(totals, job.problem.cols);
      return finish(job, block, totals, 0, 0, job.problem.cols);
    }
    for (size_t k = 0; k < N; ++k) sum[k] = round16(totals + k * kLanes);
  }
  // The last one first: it puts zeros where it skipped columns, which the others overwrite (a core
  // keeps the order of its own stores to an address, streaming ones too).
  put_sum(sum[N - 1], block.out + last, kLanes, streaming);
  for (size_t k = 0; k + 1 < N; ++k) put_sum(sum[k], block.out + k * kLanes, kLanes, streaming);
}

// Where a vector is two registers, the last columns may need but one (24 columns in three registers
// instead of four. Two cores of Zen 1, with the cheaper loads of lanes-inl.h, times as fast:
// 4000000x24-g32 f32 1.07, bf16 1.1, f16 1.3, 1000000x17x1 f32 and bf16 1.1).
template <class T>
void sum_in_registers(const Job& job, const Block<T>& block) {
  const int64_t last = job.problem.cols - kVector;
  static_assert(kShortRow <= kMostVectors<T> * kVector);
  const int64_t vectors = ceil_div(job.problem.cols, kVector);
  constexpr bool kMaySkip = kParts == 2;
  const bool skips =
      kMaySkip && vectors * kVector - job.problem.cols >= static_cast<int64_t>(kPartLanes);
  for_constants<kMostVectors<T> - 1>([&](auto more) HWY_ATTR {
    constexpr size_t kVectors = more + 2;
    if (vectors != static_cast<int64_t>(kVectors)) return;
    if constexpr (kMaySkip) {
      if (skips) return sum_in_registers<Loop::kRolled, kVectors, 1>(job, block, last);
    } else if constexpr (kParts == 1) {
      if (kDropsPrefetches && job.dense) {
        return sum_in_registers<Loop::kRolled, kVectors, 0>(job, block, last);
      }
    }
    sum_in_registers<Loop::kAsCompiled, kVectors, 0>(job, block, last);
  });
}

// Groups of fewer rows are read from end to end all the same (BF16 [8000, 4, 2880] 0.94 times as
// fast line by line).
template <class T>
constexpr size_t kLeastRowsDown = sizeof(T) == sizeof(float) ? 1 : 5;

// Columns [begin, end), a vector at least, of a group of one chain.
template <class T>
void write_chain(const Job& job, const Block<T>& block, int64_t begin, int64_t end) {
  const int64_t stride = job.problem.row_stride();
  const bool streaming = job.streaming && !block.staged;
  const T* from = block.rows > 0 ? block.first + begin : nullptr;
  T* out = block.out + begin;
  const auto row = [&](int64_t i) { return from + i * stride; };
  const auto put = [&](int64_t, int64_t col, const F32x16& sum)
                       HWY_ATTR { put_sum(sum, out + col, kLanes, streaming); };
  const int64_t cols = end - begin;
  alignas(64) float kept[kMostPanel];
  if (are_stream<T>(cols, stride)) {
    return sum_by_rows<1, Fetch::kStream, T>(block.rows, cols, kAheadOfStream<T>, kept, row, put);
  }
  if (are_short<T>(cols)) {
    const Ahead ahead = ahead_of_short<T>(job.dense, stride);
    return sum_by_rows<kRowsAtOnce<T>, Fetch::kEveryVector, T>(block.rows, cols, ahead, kept, row,
                                                               put);
  }
  const auto rows = static_cast<size_t>(block.rows);
  if (reads_down() && rows >= kLeastRowsDown<T>) {
    return for_constants<kChain + 1 - kLeastRowsDown<T>>([&](auto more) HWY_ATTR {
      constexpr size_t kRows = kLeastRowsDown<T> + more;
      if (rows == kRows) sum_down<kRows>(from, stride, next_block(job, block), cols, put);
    });
  }
  if constexpr (sizeof(T) == sizeof(float)) {
    if (kDropsPrefetches && has_small_l2() &&
        block.rows % static_cast<int64_t>(kRowsOfSmallL2) == 0) {
      return sum_by_rows<kRowsOfSmallL2, Fetch::kRowEnds, T>(
          block.rows, cols, ahead_of_small_l2<T>(cols, stride), kept, row, put);
    }
  }
  const int64_t step =
      !kPrefetchesWait ? next_block(job, block) : static_cast<int64_t>(kLongRowsAtOnce) * stride;
  sum_by_rows<kLongRowsAtOnce, Fetch::kEveryVector, T>(block.rows, cols, ahead_of<T>(cols, step),
                                                       kept, row, put);
}

// Columns [begin, end), a vector at least, of a block.
template <class T>
void sum_block(const Job& job, const Block<T>& block, int64_t begin, int64_t end) {
  if (is_one_chain(block)) return write_chain(job, block, begin, end);
  alignas(64) double totals[kMostPanel];
  const auto keep = adding_to(totals);
  const auto sum_all = [&](auto&& make, auto&& take) {
    sum_rows(block.first, job.problem.row_stride(), block.rows, job.contiguous ? kChainRows : 0,
             begin, end, make, keep, take);
  };
  if constexpr (sizeof(T) == 2) {
    std::fill(totals, totals + round_up(end - begin, kVector), 0.0);
    sum_all(keep, keep);
    align_totals(totals, end - begin);
    finish(job, block, totals, 0, begin, end);
  } else {
    // Nothing comes from memory while totals are only cleared or rounded. FP32 [1000, 17, 2880]
    // 1.12 times as fast so, [1, 32768, 2880] 1.04; 16 bits 0.87 to 0.95 (Zen 4, one thread).
    const auto write = [&](int64_t place, int64_t col) HWY_ATTR {
      finish(job, block, totals + place, place, col, col + kVector);
    };
    const auto make = [&](int64_t place, int64_t col, const F32x16& sum) HWY_ATTR {
      set_to(totals + place, add(sum, zero16()));  // -0 becomes +0
      if (block.rows <= kChainRows) write(place, col);
    };
    const auto take = [&](int64_t place, int64_t col, const F32x16& sum) HWY_ATTR {
      add_to(totals + place, sum);
      write(place, col);
    };
    sum_all(make, take);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

// SPDX-License-Identifier: Apache-2.0
// How many rows are visited together, and memory for their chains: the same for all instruction
// sets.
#ifndef ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_GROUPS_H_
#define ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/checked.h"
#include "kernels/cpu/cache.h"
#include "kernels/cpu/prefetch.h"
#include "ops/layer_norm_backward/tree.h"

namespace aclgrad::layer_norm_backward {

// Bytes of dy and x of the rows that stay in L1 between both visits.
inline constexpr int64_t kPartOfL1 = int64_t{24} << 10;

// The same of a small L2.
inline constexpr int64_t kPartOfL2 = int64_t{64} << 10;

// Rows that are visited together, from the bytes of dy and x in a row: a row block, eight or four
// rows while both visits stay in L1; else two, from L2, because more rows a power of two apart
// crowd each other out of the caches (Zen 4), or four of up to 48 KiB where prefetches wait or are
// taken (bf16 2048x12288 on Granite Rapids: 6.1 and 5.5 ms). Does not influence the bits.
inline int64_t group_rows_of(int64_t row_bytes) {
  constexpr int64_t kPartOfLargeL2 = int64_t{192} << 10;
  if (kRowBlock * row_bytes <= kPartOfL1 / 2) return kRowBlock;
  if (8 * row_bytes <= kPartOfL1) return 8;
  return 4 * row_bytes <= (kDropsPrefetches ? kPartOfL1 : kPartOfLargeL2) ? 4 : 2;
}

// Whether rows that leave L1 between their visits are a row block together all the same, which the
// second visit takes one by one. Where prefetches are dropped and L2 is small, what counts is that
// chains do not go from group to group through the caches, and that a row is read and written in
// one run: rows a multiple of 4 KiB apart, visited side by side, share few places of L1. From L3
// even long rows come fast enough. (Two cores of Zen 3, ms, two rows together and so: f32
// 2048x12288 11.1 -> 9.1, 24576x1024 11.9 -> 8.6, 200704x192, eight together, 16.0 -> 12.9, bf16
// 8192x4096 10.4 -> 8.3, f16 12288x2048 7.9 -> 5.7.)
inline bool takes_blocks_one_by_one(int64_t row_bytes) {
  constexpr int64_t kPartOfL3 = int64_t{2} << 20;
  return kDropsPrefetches && has_small_l2() && kRowBlock * row_bytes > kPartOfL1 / 2 &&
         kRowBlock * row_bytes <= kPartOfL3;
}

// Memory of the calling thread for `count` floats that begin a line, kept for its next call; null
// when there is none. (Chains across lines: two cores of Zen 5, bf16 32768x768 1.1 to 1.15 times
// the time, 8192x4096 1.1.)
inline float* thread_scratch(int64_t count) {
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<float, Free> memory;
  thread_local int64_t size = 0;
  if (size < count) {
    const int64_t bytes =
        round_up(count * static_cast<int64_t>(sizeof(float)), static_cast<int64_t>(kLineBytes));
    memory.reset(static_cast<float*>(std::aligned_alloc(kLineBytes, static_cast<size_t>(bytes))));
    size = memory == nullptr ? 0 : count;
  }
  return memory.get();
}

}  // namespace aclgrad::layer_norm_backward

#endif  // ACLGRAD_OPS_LAYER_NORM_BACKWARD_ROW_GROUPS_H_

// SPDX-License-Identifier: Apache-2.0
// The reduction tree of NsaCompress: numbers that decide the order of additions, hence the bits.
//
// Sixteen tokens of a window (a group) form one FP32 chain; the chains of a window's groups are
// joined in pairs: neighbours first, then neighbouring pairs, then fours; what has no partner
// waits.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_TREE_H_
#define ACLGRAD_OPS_NSA_COMPRESS_TREE_H_

#include <cstdint>

#include "kernels/cpu/lane_count.h"

namespace aclgrad::nsa_compress {

// Tokens of a chain. Window lengths and steps are multiples of it, so all tokens of a group are
// covered by the same windows, and lie in the same chain of each.
inline constexpr auto kGroup = static_cast<int64_t>(kChain);

// The contract's limits.
inline constexpr int64_t kMostHeads = 128;
inline constexpr int64_t kMostWidth = 256;
inline constexpr int64_t kLongestWindow = 128;

// Sums that a window can have waiting: of one chain, of two, of four.
inline constexpr int64_t kLevels = 3;
static_assert(kLongestWindow <= kGroup << kLevels);

// Elements of x that one thread does in about 20 us (two windows a token, AVX-512): the least that
// is worth a block of its own.
inline constexpr int64_t kBlockElements = int64_t{1} << 18;

// Neighbouring blocks both read the tokens of windows that begin in one and end in the other. With
// w windows a token, those are at most w / kSharedPart of a block: reading them again costs loads
// alone, beside the arithmetic of w windows.
inline constexpr int64_t kSharedPart = 64;

// Columns of a head that are taken together.
inline constexpr size_t kStripColumns = 2 * kLanes;

// Columns (heads times width) that a block goes through side by side, and numbers that wait
// meanwhile: a group, the next one and those numbers, 320 KiB, stay in L2. Whole tokens are one
// tile up to 8 KiB: parts of them, 8 KiB apart, begin a new stream of memory each (two cores of
// Granite Rapids, tiles of 1024, 2048, 4096 columns, ms: bf16 8192x32x128-l32-d16 3.53, 3.21, 2.94,
// 16384x16x128-l64-d32 3.39, 2.52, 2.53).
inline constexpr int64_t kTileColumns = 16 * kMostWidth;
inline constexpr int64_t kTileFloats = int64_t{1} << 14;

// Where such tiles leave a thread fewer blocks than this, they are narrower (8192x32x128 for 64
// threads: 64 blocks instead of 16, 32 to 34 times as fast as one instead of 18).
inline constexpr int64_t kLeastBlocksOfThread = 4;
inline constexpr int64_t kNarrowTileColumns = 4 * kMostWidth;

}  // namespace aclgrad::nsa_compress

#endif  // ACLGRAD_OPS_NSA_COMPRESS_TREE_H_

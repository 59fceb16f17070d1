// SPDX-License-Identifier: Apache-2.0
// The reduction tree of NsaCompressGrad: numbers that decide the order of additions, hence the
// bits.
//
// dx: the windows that cover a token, latest first, form FP32 chains of kChain terms; where a token
// can have more windows than that, the chains are added up in FP64.
// dw: the vectors of kSegment columns of one token form a chain in each lane; the lanes are joined
// in pairs; those sums are added up in FP64 over the groups of a slab, then over the slabs.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_TREE_H_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_TREE_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "kernels/cpu/lane_count.h"

namespace aclgrad::nsa_compress_grad {

// Tokens that are visited together. Window lengths and steps are multiples of it, so all tokens of
// a group are covered by the same windows.
inline constexpr int64_t kGroup = 16;

// Columns whose products form one chain in each lane.
inline constexpr int64_t kSegment = static_cast<int64_t>(kLanes * kChain);

// Slabs never outnumber this; it is enough blocks for any machine.
inline constexpr int64_t kMostSlabs = 256;

// Elements of x that one thread does in about 20 us (two windows a token, AVX-512): the least that
// is worth a block of its own.
inline constexpr int64_t kBlockElements = int64_t{1} << 18;

// Elements of dx that one thread fills with zeros in about 20 us.
inline constexpr int64_t kGapElements = int64_t{1} << 20;

// Totals of dw that one thread joins in about 20 us.
inline constexpr int64_t kJoinedTotals = int64_t{1} << 16;

// Groups of one slab. A slab costs 16 * window * heads bytes of FP64 totals, written and read once;
// with 160 * window / width tokens that is at most 2.5 % of its operands' bytes.
constexpr int64_t slab_groups(int64_t groups, int64_t window, int64_t heads, int64_t width) {
  const int64_t tokens = std::max(160 * ceil_div(window, width), kBlockElements / (heads * width));
  return std::max(ceil_div(tokens, kGroup), ceil_div(groups, kMostSlabs));
}

}  // namespace aclgrad::nsa_compress_grad

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_TREE_H_

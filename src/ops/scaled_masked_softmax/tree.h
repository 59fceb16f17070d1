// SPDX-License-Identifier: Apache-2.0
// The reduction tree of ScaledMaskedSoftmax: numbers that decide the order of additions, hence the
// bits. A row is summed by itself, so nothing depends on how rows are cut into blocks.
//
//   A row is taken in pairs of vectors (kernels/cpu/pairs-inl.h; FP32 as FP16). If cols is no
//   multiple of 32, the last pair is the row's last 32 elements instead, and counts only those that
//   the pairs before it left out: every load is then a whole one inside the row. The vectors are
//   summed by row_sums() of kernels/cpu/sums-inl.h: FP32 chains of at most kChain terms, joined in
//   pairs, FP64 totals, the sixteen lanes joined in pairs in FP64.
//   A row of less than 32 elements: its first sixteen are filled up to 4, 8 or 16 lanes with +0,
//   as few as hold them, and joined in pairs in FP32, lanes i and i + half, until one is left. The
//   rest of the row likewise; the two sums are added without loss.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_TREE_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_TREE_H_

#include <cstdint>

namespace aclgrad::scaled_masked_softmax {

// The contract's limit of S2.
inline constexpr int64_t kMaxCols = 4096;

// What stands for a masked element before the softmax.
inline constexpr double kMasked = -10000.0;

inline constexpr double kLog2OfE = 0x1.71547652b82fep0;

// The usual row: its largest scale * x / log(2) lies between these bounds. Masked elements are less
// than 2^-200 of its maximum then (-10000 / log(2) is -14427), so +0, and FP32 with a correction is
// exact enough. Other rows take their exponents in FP64.
inline constexpr float kLowestUsual = -14200.0f;
inline constexpr float kHighestUsual = 0x1p17f;

// Factors (scale / log(2)) outside these bounds leave no room for FP32 corrections.
inline constexpr double kSmallestFactor = 0x1p-100;
inline constexpr double kLargestFactor = 0x1p100;

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_TREE_H_

// SPDX-License-Identifier: Apache-2.0
// The reduction tree of ScaledMaskedSoftmaxBackward: numbers that decide the order of additions,
// hence the bits. A row is summed by itself, so nothing depends on how rows are cut into blocks.
//
//   A row of at most 15 elements is filled up to 4, 8 or 16 lanes with +0, as few as hold it; their
//   products are joined in pairs in FP32, lanes i and i + half, until one is left.
//   Longer rows: element c lies in lane c mod 16 of vector c / 16. If cols is over 16 and no
//   multiple of it, the last vector is the row's last 16 elements instead, and counts only those
//   that the vectors before it left out: every load is then a whole one inside the row. The
//   vectors' products are summed by row_sums() of kernels/cpu/sums-inl.h: FP32 chains of at most
//   kChain terms, joined in pairs, FP64 totals, the sixteen lanes joined in pairs in FP64.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TREE_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TREE_H_

#include <cstdint>

namespace aclgrad::scaled_masked_softmax_backward {

// The contract's limit of S2.
inline constexpr int64_t kMaxCols = 4096;

// A scale over 1 would blow up what subnormal products lost, so its power of two goes to dy before
// the sum is taken; a row whose sum is not below kLargestSum then might overflow, and is computed
// in FP64 instead. So is one whose sum is below kLeastSum if a y is over 1: the sum's terms and the
// sum may have lost 2^-150 each, which y multiplies. A larger sum makes the promise's 2^-21 * |y *
// sum| outweigh that.
inline constexpr float kLargestSum = 0x1p64f;
inline constexpr float kLeastSum = 0x1p-60f;

}  // namespace aclgrad::scaled_masked_softmax_backward

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TREE_H_

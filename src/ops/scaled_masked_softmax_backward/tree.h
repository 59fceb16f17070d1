// SPDX-License-Identifier: Apache-2.0
// The reduction tree of ScaledMaskedSoftmaxBackward: numbers that decide the order of additions,
// hence the bits. A row is summed by itself, so nothing depends on how rows are cut into blocks.
//
//   Element c of a row lies in lane c mod 16 of vector c / 16. If cols is over 16 and no multiple
//   of it, the last vector is the row's last 16 elements instead, and counts only those that the
//   vectors before it left out: every load is then a whole one inside the row.
//   The vectors' products are summed by row_sums() of kernels/cpu/sums-inl.h: FP32 chains of at
//   most kChain terms, joined in pairs, FP64 totals, the sixteen lanes joined in pairs in FP64.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TREE_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TREE_H_

#include <cstdint>

namespace aclgrad::scaled_masked_softmax_backward {

// The contract's limit of S2.
inline constexpr int64_t kMaxCols = 4096;

// A scale over 1 would blow up what subnormal products lost, so its power of two goes to dy before
// the sum is taken. A row whose sum then is not below this bound is computed again without: its
// products are no subnormals, but might overflow.
inline constexpr float kLargestScaledSum = 0x1p64f;

}  // namespace aclgrad::scaled_masked_softmax_backward

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_BACKWARD_TREE_H_

// SPDX-License-Identifier: Apache-2.0
// How much workspace operators ask for beside what they are given.
#ifndef ACLGRAD_TENSOR_WORKSPACE_SHARE_H_
#define ACLGRAD_TENSOR_WORKSPACE_SHARE_H_

#include <algorithm>
#include <cstdint>
#include <limits>

namespace aclgrad {

// A program that trains has its memory full of tensors: beside operands of 64 MB and more the
// workspace is at most 5 % of their bytes, whether weights and rows' numbers count among them or
// not. Smaller ones may have what is fastest.
inline constexpr double kLargeOperands = 64e6;
inline constexpr double kWorkspaceShare = 0.047;

// That part, whatever the operands.
constexpr int64_t workspace_share(double operand_bytes) {
  return static_cast<int64_t>(std::min(operand_bytes * kWorkspaceShare, 0x1p62));
}

// Bytes of workspace at most.
constexpr int64_t most_workspace(double operand_bytes) {
  return operand_bytes < kLargeOperands ? std::numeric_limits<int64_t>::max()
                                        : workspace_share(operand_bytes);
}

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_WORKSPACE_SHARE_H_

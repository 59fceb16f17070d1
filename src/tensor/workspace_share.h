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

// Bytes of workspace at most. `moved`: of what is read and written, the same or less.
constexpr int64_t most_workspace(double moved, double operand_bytes) {
  if (operand_bytes < kLargeOperands) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(moved * kWorkspaceShare, 0x1p62));
}
constexpr int64_t most_workspace(double operand_bytes) {
  return most_workspace(operand_bytes, operand_bytes);
}

}  // namespace aclgrad

#endif  // ACLGRAD_TENSOR_WORKSPACE_SHARE_H_

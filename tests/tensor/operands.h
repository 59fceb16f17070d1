// SPDX-License-Identifier: Apache-2.0
// Operands as phase one reads them, without a tensor behind them, for tests of single checks.
#ifndef ACLGRAD_TESTS_TENSOR_OPERANDS_H_
#define ACLGRAD_TESTS_TENSOR_OPERANDS_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/device.h"
#include "tensor/operand.h"

namespace aclgrad::test {

inline Operand operand(const char* name, std::vector<int64_t> dims, aclDataType dtype = ACL_FLOAT) {
  static const int given = 0;
  Operand out;
  out.name = name;
  out.handle = reinterpret_cast<const aclTensor*>(&given);  // never looked at
  out.rank = dims.size();
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (i >= kMaxRank) continue;
    out.dims[i] = dims[i];
    out.strides[i] = step;
    step *= dims[i] > 0 && dims[i] < 1000 ? dims[i] : 1;
  }
  out.dtype = dtype;
  out.format = ACL_FORMAT_ND;
  return out;
}

// The check that returned `got` left a message that begins so.
inline void expect_refused(Status got, Status status, const std::string& text) {
  EXPECT_EQ(got, status);
  const std::string message = take_message();
  EXPECT_NE(message.find("): " + text), std::string::npos) << message << "\nlacks: " << text;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_TENSOR_OPERANDS_H_

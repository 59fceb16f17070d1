// SPDX-License-Identifier: Apache-2.0
// The rules of [B, N, S1, S2] and its mask: statuses, whole messages, views and names.
#include "tensor/attention_shapes.h"

#include <gtest/gtest.h>

#include "tensor/operands.h"

namespace aclgrad::test {
namespace {

constexpr const char* kOp = "aclnnScaledMaskedSoftmax";

TEST(AttentionShapes, ColsAreLimited) {
  EXPECT_EQ(check::attention_cols(kOp, operand("x", {1, 1, 1, 64}), 64), 0);
  EXPECT_EQ(check::attention_cols(kOp, operand("x", {100, 100, 100, 0}), 64), 0);
  expect_refused(check::attention_cols(kOp, operand("x", {1, 1, 1, 65}), 64), 161002,
                 "aclnnScaledMaskedSoftmax: x has shape [1,1,1,65]; expected at most 64 in the "
                 "last dim");
}

TEST(AttentionShapes, OnlyBatchesAndHeadsOfAMaskMayBeOne) {
  const Operand of = operand("gradOutput", {2, 3, 4, 5});
  for (const int64_t batches : {1, 2}) {
    for (const int64_t heads : {1, 3}) {
      EXPECT_EQ(check::attention_mask(kOp, operand("mask", {batches, heads, 4, 5}), of), 0);
    }
  }
  for (const std::vector<int64_t>& dims :
       {std::vector<int64_t>{3, 3, 4, 5}, {2, 2, 4, 5}, {2, 3, 1, 5}, {2, 3, 4, 1}, {0, 3, 4, 5}}) {
    const Operand mask = operand("mask", dims);
    expect_refused(check::attention_mask(kOp, mask, of), 161002,
                   "aclnnScaledMaskedSoftmax: mask has shape " + shape_text(mask) +
                       "; expected the shape of gradOutput [2,3,4,5], where either of the first "
                       "two dims may be 1");
  }
}

TEST(AttentionShapes, ARepeatedMaskStepsOnlyWhereItIsNotOne) {
  const View shape = operand("y", {2, 3, 4, 5}).view();
  const auto dims_of = [](const View& view) {
    return std::vector<int64_t>(view.dims.begin(), view.dims.begin() + view.rank);
  };
  View one = operand("mask", {1, 3, 4, 5}).view();
  repeat_mask(one, shape);
  EXPECT_EQ(dims_of(one), dims_of(shape));
  EXPECT_EQ(one.strides[0], 0);
  EXPECT_EQ(one.strides[1], 20);
  View heads = operand("mask", {2, 1, 4, 5}).view();
  repeat_mask(heads, shape);
  EXPECT_EQ(dims_of(heads), dims_of(shape));
  EXPECT_EQ(heads.strides[0], 20);
  EXPECT_EQ(heads.strides[1], 0);
  EXPECT_EQ(heads.strides[2], 5);
}

TEST(AttentionShapes, Names) {
  EXPECT_EQ(attention_problem_name("softmax", operand("y", {8, 16, 512, 256}, ACL_FLOAT16).view()),
            "softmax/f16/8x16x512x256");
}

}  // namespace
}  // namespace aclgrad::test

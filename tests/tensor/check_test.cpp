// SPDX-License-Identifier: Apache-2.0
// The checks of phase one: statuses and whole messages.
#include "tensor/check.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/device.h"
#include "tensor/operands.h"

namespace aclgrad::test {
namespace {

constexpr const char* kOp = "aclnnLayerNormBackward";

aclDataType dtype_number(int value) { return static_cast<aclDataType>(value); }

TEST(Check, NotNull) {
  EXPECT_EQ(check::not_null(kOp, "input", kOp), 0);
  take_message();
  expect_refused(check::not_null(kOp, "input", nullptr), 161001,
                 "aclnnLayerNormBackward: input is null");
}

TEST(Check, Dtypes) {
  const Operand half = operand("input", {2}, ACL_FLOAT16);
  EXPECT_EQ(check::dtype(kOp, half, {ACL_FLOAT, ACL_FLOAT16}), 0);
  expect_refused(check::dtype(kOp, half, {ACL_FLOAT, ACL_BF16, ACL_INT8}), 161002,
                 "aclnnLayerNormBackward: input has dtype FLOAT16 (1); expected FLOAT, BFLOAT16 or "
                 "INT8");
  expect_refused(check::dtype(kOp, half, {ACL_BOOL}), 161002,
                 "aclnnLayerNormBackward: input has dtype FLOAT16 (1); expected BOOL");
  // The fixed dtype of an operator, and the same again as that of another tensor.
  expect_refused(check::dtype(kOp, half, {ACL_FLOAT, ACL_FLOAT}), 161002,
                 "aclnnLayerNormBackward: input has dtype FLOAT16 (1); expected FLOAT");
  expect_refused(check::dtype(kOp, half, {ACL_FLOAT, ACL_BF16, ACL_FLOAT}), 161002,
                 "aclnnLayerNormBackward: input has dtype FLOAT16 (1); expected FLOAT or BFLOAT16");
  const Operand strange = operand("input", {2}, dtype_number(999));
  expect_refused(check::dtype(kOp, strange, {ACL_BOOL}), 161002,
                 "aclnnLayerNormBackward: input has dtype an unknown dtype (999); expected BOOL");
  const Operand grad = operand("gradOut", {2}, ACL_FLOAT);
  EXPECT_EQ(check::same_dtype(kOp, grad, grad), 0);
  expect_refused(check::same_dtype(kOp, half, grad), 161002,
                 "aclnnLayerNormBackward: input has dtype FLOAT16 (1); expected FLOAT, the dtype "
                 "of gradOut");
}

TEST(Check, Formats) {
  Operand tensor = operand("input", {2});
  for (const int format : {-1, 0, 1, 2, 16, 27, 30, 35, 47}) {
    tensor.format = static_cast<aclFormat>(format);
    EXPECT_EQ(check::format(kOp, tensor), 0) << format;
  }
  for (const int format : {3, 4, 12, 29, 32, 33, 50, 51, 52, 53, 54, 5, 99, -2}) {
    tensor.format = static_cast<aclFormat>(format);
    take_message();
    EXPECT_EQ(check::format(kOp, tensor), 161002) << format;
    EXPECT_NE(take_message().find("(" + std::to_string(format) + "); expected ND, NCHW"),
              std::string::npos);
  }
}

TEST(Check, Ranks) {
  EXPECT_EQ(check::rank(kOp, operand("input", {}), 0, 8), 0);
  EXPECT_EQ(check::rank(kOp, operand("input", {1, 1, 1, 1, 1, 1, 1, 1}), 0, 100), 0);
  expect_refused(check::rank(kOp, operand("input", {}), 1, 8), 161002,
                 "aclnnLayerNormBackward: input has 0 dimensions; expected 1 to 8");
  expect_refused(check::rank(kOp, operand("input", {1, 1, 1, 1, 1, 1, 1, 1, 1}), 1, 100), 161002,
                 "aclnnLayerNormBackward: input has 9 dimensions; expected 1 to 8");
  expect_refused(check::rank(kOp, operand("mask", {1, 1}), 4, 4), 161002,
                 "aclnnLayerNormBackward: mask has 2 dimensions; expected 4");
  expect_refused(check::rank(kOp, operand("mask", {3, -1}), 1, 4), 161002,
                 "aclnnLayerNormBackward: mask has shape [3,-1]; expected no negative dimension");
}

TEST(Check, Shapes) {
  const Operand input = operand("input", {8, 16});
  const std::vector<int64_t> expected = {8, 16};
  EXPECT_EQ(check::shape(kOp, input, expected, "one per element"), 0);
  expect_refused(check::shape(kOp, operand("out", {8}), expected, "one per element"), 161002,
                 "aclnnLayerNormBackward: out has shape [8]; expected [8,16], one per element");
  EXPECT_EQ(check::same_shape(kOp, input, input), 0);
  expect_refused(check::same_shape(kOp, operand("gradOut", {16, 8}), input), 161002,
                 "aclnnLayerNormBackward: gradOut has shape [16,8]; expected [8,16], the shape of "
                 "input");
  EXPECT_EQ(check::numel(kOp, operand("mean", {2, 4}), 8, "one per row of", input), 0);
  expect_refused(
      check::numel(kOp, operand("mean", {4, 1}), 8, "one per normalized row of input", input),
      161002,
      "aclnnLayerNormBackward: mean has shape [4,1] (4 elements); expected 8 elements, one per "
      "normalized row of input [8,16]");
  expect_refused(check::numel(kOp, operand("mean", {1}), 8, "one per row of", input), 161002,
                 "aclnnLayerNormBackward: mean has shape [1] (1 element); expected 8 elements");
  // A product that wraps to the number expected.
  constexpr int64_t kHuge = int64_t{1} << 32;
  expect_refused(check::numel(kOp, operand("mean", {kHuge, kHuge}), 0, "none of", input), 161002,
                 "aclnnLayerNormBackward: mean has shape [4294967296,4294967296] (more than 2^63 "
                 "elements); expected 0 elements, none of [8,16]");
  EXPECT_EQ(check::numel(kOp, operand("mean", {kHuge, kHuge, 0}), 0, "none of", input), 0);
}

TEST(Check, Sizes) {
  constexpr int64_t kHuge = int64_t{1} << 31;
  EXPECT_EQ(check::sizes(kOp, operand("input", {kHuge, kHuge / 4})), 0);
  expect_refused(check::sizes(kOp, operand("input", {kHuge, kHuge})), 161002,
                 "aclnnLayerNormBackward: input has shape [2147483648,2147483648] of FLOAT; "
                 "expected at most 2^63-1 bytes");
  EXPECT_EQ(check::sizes(kOp, operand("input", {kHuge, kHuge, 0, kHuge})), 0)
      << "an empty tensor spans no bytes";
  Operand strided = operand("input", {3, 4});
  strided.strides = {int64_t{1} << 61, 1};
  expect_refused(check::sizes(kOp, strided), 161002,
                 "aclnnLayerNormBackward: input with shape [3,4], strides [2305843009213693952,1] "
                 "and offset 0 reaches farther than 2^63-1 bytes");
  strided.dims[0] = 1;
  EXPECT_EQ(check::sizes(kOp, strided), 0) << "a dimension of size 1 does not step";
  strided.dims[1] = 0;
  strided.dims[0] = 3;
  EXPECT_EQ(check::sizes(kOp, strided), 0) << "nor does one of an empty view";
  Operand shifted = operand("input", {2});
  shifted.offset = INT64_MAX / 4;
  EXPECT_EQ(check::sizes(kOp, shifted), 161002);
  shifted.offset = INT64_MIN / 2;
  EXPECT_EQ(check::sizes(kOp, shifted), 161002);
  take_message();
  Operand storage = operand("input", {2});
  storage.storage_elements = kStorageInvalid;
  expect_refused(check::sizes(kOp, storage), 161002,
                 "aclnnLayerNormBackward: input has a negative storage dimension");
}

TEST(Check, AbsentOperandsPass) {
  const Operand absent{};
  const Operand given = operand("input", {2});
  const std::vector<int64_t> dims = {3};
  EXPECT_EQ(check::dtype(kOp, absent, {}), 0);
  EXPECT_EQ(check::same_dtype(kOp, absent, given), 0);
  EXPECT_EQ(check::same_dtype(kOp, given, absent), 0);
  EXPECT_EQ(check::format(kOp, absent), 0);
  EXPECT_EQ(check::rank(kOp, absent, 3, 3), 0);
  EXPECT_EQ(check::shape(kOp, absent, dims, ""), 0);
  EXPECT_EQ(check::same_shape(kOp, absent, given), 0);
  EXPECT_EQ(check::numel(kOp, absent, 7, "", given), 0);
  EXPECT_EQ(check::sizes(kOp, absent), 0);
}

TEST(Read, DeadHandlesAreRefusedAndAbsentOnesAreNot) {
  use_device();
  take_message();
  const int64_t dims[] = {2, 3}, storage[] = {100};
  int data = 0;
  aclTensor* tensor =
      aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 5, ACL_FORMAT_NC, storage, 1, &data);
  Operand out;
  EXPECT_EQ(read_tensor(kOp, "input", tensor, out), 0);
  EXPECT_TRUE(out.given());
  EXPECT_STREQ(out.name, "input");
  EXPECT_EQ(out.numel(), 6);
  EXPECT_EQ(out.offset, 5);
  EXPECT_EQ(out.storage_elements, 100);
  EXPECT_EQ(out.data, &data);
  EXPECT_EQ(shape_text(out), "[2,3]");
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
  expect_refused(read_tensor(kOp, "input", tensor, out), 161002,
                 "aclnnLayerNormBackward: input is destroyed or never made; expected a live handle "
                 "of an aclTensor");
  expect_refused(read_tensor(kOp, "input", reinterpret_cast<aclTensor*>(&data), out), 161002,
                 "aclnnLayerNormBackward: input is not a handle of this library");
  Operand absent;
  EXPECT_EQ(read_tensor(kOp, "weightOptional", nullptr, absent), 0);
  EXPECT_FALSE(absent.given());
  IntEntries ints;
  ints.push_back(1);
  EXPECT_EQ(read_int_array(kOp, "actSeqLenOptional", nullptr, ints), 0);
  EXPECT_TRUE(ints.empty());
  expect_refused(
      read_int_array(kOp, "normalizedShape", reinterpret_cast<aclIntArray*>(tensor), ints), 161002,
      "aclnnLayerNormBackward: normalizedShape is an aclTensor; expected a live handle "
      "of an aclIntArray");
}

TEST(Read, ShapesAreShortenedBehindEightDims) {
  const std::vector<int64_t> dims = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(shape_text(dims.data(), 0), "[]");
  EXPECT_EQ(shape_text(dims.data(), 8), "[1,2,3,4,5,6,7,8]");
  EXPECT_EQ(shape_text(dims.data(), 9), "[1,2,3,4,5,6,7,8,...]");
}

}  // namespace
}  // namespace aclgrad::test

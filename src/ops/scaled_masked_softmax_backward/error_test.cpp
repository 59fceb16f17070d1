// SPDX-License-Identifier: Apache-2.0
// What ScaledMaskedSoftmaxBackward refuses: the README's error table, row by row.
#include <gtest/gtest.h>

#include <string>

#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "support/error_rows.h"

namespace aclgrad::test {
namespace {

// A valid call, changed by a row of the error table.
struct Call {
  static constexpr const char* kOp = "aclnnScaledMaskedSoftmaxBackward";
  Tensor dy{{2, 3, 4, 5}, ACL_FLOAT}, y{{2, 3, 4, 5}, ACL_FLOAT}, mask{{2, 1, 4, 5}, ACL_BOOL};
  Tensor dx{{2, 3, 4, 5}, ACL_FLOAT};
  const aclTensor *dy_at = dy.handle(), *y_at = y.handle(), *mask_at = mask.handle();
  const aclTensor* dx_at = dx.handle();
  bool fix_triu_mask = false;

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
        dy_at, y_at, mask_at, 1.0, fix_triu_mask, const_cast<aclTensor*>(dx_at), size, executor);
  }
};

constexpr TensorParameter<Call> kParameters[] = {{"gradOutput", &Call::dy_at, &Call::dy},
                                                 {"y", &Call::y_at, &Call::y},
                                                 {"mask", &Call::mask_at, &Call::mask},
                                                 {"out", &Call::dx_at, &Call::dx}};

TEST(ScaledMaskedSoftmaxBackward, ErrorTableNullAndHandles) {
  expect_status(Call(), 0, {});
  expect_nulls_refused(kParameters);
  expect_wrong_handles_refused(kParameters);
}

TEST(ScaledMaskedSoftmaxBackward, ErrorTableDtypesFormatsAndRanks) {
  const Dims dims = {2, 3, 4, 5};
  refused_with(&Call::dy_at, Tensor(dims, ACL_DOUBLE), {"gradOutput", "DOUBLE", "FLOAT"});
  refused_with(&Call::y_at, Tensor(dims, ACL_FLOAT16), {"y", "FLOAT16", "FLOAT"});
  refused_with(&Call::mask_at, Tensor(dims, ACL_UINT8), {"mask", "UINT8", "BOOL"});
  refused_with(&Call::dx_at, Tensor(dims, ACL_BF16), {"out", "BFLOAT16", "FLOAT"});
  expect_private_formats_refused(kParameters);
  for (const TensorParameter<Call>& parameter : kParameters) {
    const aclDataType dtype = parameter.passed == &Call::mask_at ? ACL_BOOL : ACL_FLOAT;
    for (const Dims& wrong : {Dims{}, Dims{4, 5}, Dims{6, 4, 5}, Dims{1, 2, 3, 4, 5}, Dims(9, 1)}) {
      refused_with(parameter.passed, Tensor(wrong, dtype), {named<Call>(parameter.name), "4"});
    }
  }
}

TEST(ScaledMaskedSoftmaxBackward, ErrorTableShapesAndFixTriuMask) {
  refused_with(&Call::dy_at, Tensor({1, 1, 1, 4097}, ACL_FLOAT),
               {named<Call>("gradOutput has shape"), "[1,1,1,4097]", "4096"});
  refused_with(&Call::y_at, Tensor({2, 3, 5, 4}, ACL_FLOAT), {"y", "[2,3,5,4]", "[2,3,4,5]"});
  for (const Dims& dims : {Dims{3, 3, 4, 5}, Dims{2, 2, 4, 5}, Dims{2, 3, 1, 5}, Dims{2, 3, 4, 1},
                           Dims{0, 3, 4, 5}, Dims{1, 1, 5, 4}}) {
    refused_with(&Call::mask_at, Tensor(dims, ACL_BOOL), {"mask has shape", "[2,3,4,5]"});
  }
  refused_with(&Call::dx_at, Tensor({2, 3, 4, 6}, ACL_FLOAT),
               {named<Call>("out"), "[2,3,4,6]", "[2,3,4,5]"});
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40, 4, 5}, still[] = {0, 0, 0, 0};
  Call many;
  aclTensor* endless =
      aclCreateTensor(huge, 4, ACL_FLOAT, still, 0, ACL_FORMAT_ND, huge, 0, nullptr);
  aclTensor* endless_mask =
      aclCreateTensor(huge, 4, ACL_BOOL, still, 0, ACL_FORMAT_ND, huge, 0, nullptr);
  many.dy_at = many.y_at = many.dx_at = endless;
  many.mask_at = endless_mask;
  expect_status(many, kInvalid, {"gradOutput"});
  EXPECT_EQ(aclDestroyTensor(endless) + aclDestroyTensor(endless_mask), 0);
  Call triangle;
  triangle.fix_triu_mask = true;
  expect_status(triangle, kInvalid, {"fixTriuMask", "true", "false"});
  const Tensor too_wide({1, 1, 1, 4097}, ACL_FLOAT);
  triangle.dy_at = too_wide.handle();
  expect_status(triangle, kInvalid, {"4097"});  // fixTriuMask is looked at last
}

// fixTriuMask comes behind the bounds of views and their overlap too.
TEST(ScaledMaskedSoftmaxBackward, FixTriuMaskIsTheLastCheck) {
  Call call;
  call.fix_triu_mask = true;
  const Dims dims = {2, 3, 4, 5}, far = {1000000, 20, 5, 1};
  aclTensor* const beyond = aclCreateTensor(dims.data(), 4, ACL_FLOAT, far.data(), 0, ACL_FORMAT_ND,
                                            nullptr, 0, call.dx.address());
  call.dx_at = beyond;
  expect_status(call, kInvalid, {"out", "allocation"});
  EXPECT_EQ(aclDestroyTensor(beyond), 0);
  const Tensor overlapping(dims, ACL_FLOAT, Dims{60, 20, 1, 1});
  call.dx_at = overlapping.handle();
  expect_status(call, kInvalid, {"out", "two indices at one address"});
  call.dx_at = call.dx.handle();
  expect_status(call, kInvalid, {"fixTriuMask", "true", "false"});
}

TEST(ScaledMaskedSoftmaxBackward, ErrorTableOverlap) {
  Call call;
  call.dx_at = call.dy_at;
  expect_status(call, 0, {});  // the permitted in-place uses
  call.dx_at = call.y_at;
  expect_status(call, 0, {});
  Call shifted;
  const Dims dims = {2, 3, 4, 5}, strides = strides_of(dims, Arrangement::kContiguous);
  const Tensor memory({2, 3, 4, 6}, ACL_FLOAT);
  const auto view = [&](int64_t offset) {
    return aclCreateTensor(dims.data(), 4, ACL_FLOAT, strides.data(), offset, ACL_FORMAT_ND,
                           nullptr, 0, memory.address());
  };
  aclTensor *in = view(0), *out = view(1);
  shifted.y_at = in;
  shifted.dx_at = out;
  expect_status(shifted, kInvalid, {"out", "y"});
  EXPECT_EQ(aclDestroyTensor(in) + aclDestroyTensor(out), 0);
  refused_with(&Call::dx_at, Tensor({2, 3, 4, 5}, ACL_FLOAT, Dims{60, 20, 1, 1}),
               {named<Call>("out")});
}

}  // namespace
}  // namespace aclgrad::test

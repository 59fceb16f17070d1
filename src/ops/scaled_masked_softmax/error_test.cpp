// SPDX-License-Identifier: Apache-2.0
// What ScaledMaskedSoftmax refuses: the README's error table, row by row.
#include <gtest/gtest.h>

#include <string>

#include "aclnnop/aclnn_scaled_masked_softmax.h"
#include "support/error_rows.h"

namespace aclgrad::test {
namespace {

// A valid call, changed by a row of the error table.
struct Call {
  static constexpr const char* kOp = "aclnnScaledMaskedSoftmax";
  Tensor x{{2, 3, 4, 5}, ACL_FLOAT}, mask{{2, 1, 4, 5}, ACL_BOOL}, y{{2, 3, 4, 5}, ACL_FLOAT};
  const aclTensor *x_at = x.handle(), *mask_at = mask.handle(), *y_at = y.handle();
  bool fixed_triu_mask = false;

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    return aclnnScaledMaskedSoftmaxGetWorkspaceSize(x_at, mask_at, 1.0, fixed_triu_mask,
                                                    const_cast<aclTensor*>(y_at), size, executor);
  }
};

constexpr TensorParameter<Call> kParameters[] = {{"x", &Call::x_at, &Call::x},
                                                 {"mask", &Call::mask_at, &Call::mask},
                                                 {"y", &Call::y_at, &Call::y}};

TEST(ScaledMaskedSoftmax, ErrorTableNullAndHandles) {
  expect_status(Call(), 0, {});
  expect_nulls_refused(kParameters);
  expect_wrong_handles_refused(kParameters);
}

TEST(ScaledMaskedSoftmax, ErrorTableDtypesFormatsAndRanks) {
  const Dims dims = {2, 3, 4, 5};
  refused_with(&Call::x_at, Tensor(dims, ACL_DOUBLE), {"x", "DOUBLE", "FLOAT"});
  refused_with(&Call::mask_at, Tensor(dims, ACL_UINT8), {"mask", "UINT8", "BOOL"});
  refused_with(&Call::y_at, Tensor(dims, ACL_BF16), {"y", "BFLOAT16", "FLOAT"});
  expect_private_formats_refused(kParameters);
  for (const TensorParameter<Call>& parameter : kParameters) {
    const aclDataType dtype = parameter.passed == &Call::mask_at ? ACL_BOOL : ACL_FLOAT;
    for (const Dims& wrong : {Dims{}, Dims{4, 5}, Dims{6, 4, 5}, Dims{1, 2, 3, 4, 5}, Dims(9, 1)}) {
      refused_with(parameter.passed, Tensor(wrong, dtype), {named<Call>(parameter.name), "4"});
    }
  }
}

TEST(ScaledMaskedSoftmax, ErrorTableShapesAndFixedTriuMask) {
  refused_with(&Call::x_at, Tensor({1, 1, 1, 4097}, ACL_FLOAT),
               {named<Call>("x has shape"), "[1,1,1,4097]", "4096"});
  for (const Dims& dims : {Dims{3, 3, 4, 5}, Dims{2, 2, 4, 5}, Dims{2, 3, 1, 5}, Dims{2, 3, 4, 1},
                           Dims{0, 3, 4, 5}, Dims{1, 1, 5, 4}}) {
    refused_with(&Call::mask_at, Tensor(dims, ACL_BOOL), {"mask has shape", "[2,3,4,5]"});
  }
  refused_with(&Call::y_at, Tensor({2, 3, 4, 6}, ACL_FLOAT),
               {named<Call>("y"), "[2,3,4,6]", "[2,3,4,5]"});
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40, 4, 5}, still[] = {0, 0, 0, 0};
  Call many;
  aclTensor* endless =
      aclCreateTensor(huge, 4, ACL_FLOAT, still, 0, ACL_FORMAT_ND, huge, 0, nullptr);
  aclTensor* endless_mask =
      aclCreateTensor(huge, 4, ACL_BOOL, still, 0, ACL_FORMAT_ND, huge, 0, nullptr);
  many.x_at = many.y_at = endless;
  many.mask_at = endless_mask;
  expect_status(many, kInvalid, {"x"});
  EXPECT_EQ(aclDestroyTensor(endless) + aclDestroyTensor(endless_mask), 0);
  Call triangle;
  triangle.fixed_triu_mask = true;
  expect_status(triangle, kInvalid, {"fixedTriuMask", "true", "false"});
  const Tensor too_wide({1, 1, 1, 4097}, ACL_FLOAT);
  triangle.x_at = too_wide.handle();
  expect_status(triangle, kInvalid, {"4097"});  // fixedTriuMask is looked at last
}

// fixedTriuMask comes behind the bounds of views and their overlap too.
TEST(ScaledMaskedSoftmax, FixedTriuMaskIsTheLastCheck) {
  Call call;
  call.fixed_triu_mask = true;
  const Dims dims = {2, 3, 4, 5}, far = {1000000, 20, 5, 1};
  aclTensor* const beyond = aclCreateTensor(dims.data(), 4, ACL_FLOAT, far.data(), 0, ACL_FORMAT_ND,
                                            nullptr, 0, call.y.address());
  call.y_at = beyond;
  expect_status(call, kInvalid, {"y with shape", "allocation"});
  EXPECT_EQ(aclDestroyTensor(beyond), 0);
  call.y_at = call.x.handle();
  expect_status(call, kInvalid, {"y overlaps x"});
  call.y_at = call.y.handle();
  expect_status(call, kInvalid, {"fixedTriuMask", "true", "false"});
}

TEST(ScaledMaskedSoftmax, ErrorTableOverlap) {
  Call call;
  call.y_at = call.x_at;
  expect_status(call, kInvalid, {"y", "x"});  // there is no permitted in-place use
  Call shifted;
  const Dims dims = {2, 3, 4, 5}, strides = strides_of(dims, Arrangement::kContiguous);
  const Tensor memory({2, 3, 4, 6}, ACL_FLOAT);
  const auto view = [&](int64_t offset) {
    return aclCreateTensor(dims.data(), 4, ACL_FLOAT, strides.data(), offset, ACL_FORMAT_ND,
                           nullptr, 0, memory.address());
  };
  aclTensor *in = view(0), *out = view(1);
  shifted.x_at = in;
  shifted.y_at = out;
  expect_status(shifted, kInvalid, {"y", "x"});
  EXPECT_EQ(aclDestroyTensor(in) + aclDestroyTensor(out), 0);
  refused_with(&Call::y_at, Tensor({2, 3, 4, 5}, ACL_FLOAT, Dims{60, 20, 1, 1}),
               {named<Call>("y")});
}

}  // namespace
}  // namespace aclgrad::test

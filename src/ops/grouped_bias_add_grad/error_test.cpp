// SPDX-License-Identifier: Apache-2.0
// What GroupedBiasAddGrad refuses: the README's error table, row by row.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

constexpr aclnnStatus kNull = 161001, kInvalid = 161002;

// Arguments of phase one, any of which a row of the error table replaces.
struct Call {
  Tensor dy{{6, 4}, ACL_FLOAT}, index{{2}, ACL_INT64}, out{{2, 4}, ACL_FLOAT};
  const aclTensor *dy_at = dy.handle(), *index_at = index.handle();
  aclTensor* out_at = out.handle();

  // By both versions.
  void refused(aclnnStatus status, const std::vector<std::string>& text) {
    SCOPED_TRACE(text.front());
    const auto by_both = [&](const char* name, auto&& plan) {
      expect_refused(plan, status, {});
      uint64_t size = 0;
      aclOpExecutor* executor = nullptr;
      if (status == 0) return;
      EXPECT_EQ(plan(&size, &executor), status);
      const std::string message = take_message();
      expect_message(message, {std::string(name) + ": "});
      for (const std::string& part : text) expect_message(message, {part});
    };
    by_both("aclnnGroupedBiasAddGrad", [&](uint64_t* size, aclOpExecutor** executor) {
      return aclnnGroupedBiasAddGradGetWorkspaceSize(dy_at, index_at, out_at, size, executor);
    });
    by_both("aclnnGroupedBiasAddGradV2", [&](uint64_t* size, aclOpExecutor** executor) {
      return aclnnGroupedBiasAddGradV2GetWorkspaceSize(dy_at, index_at, 1, out_at, size, executor);
    });
  }
};

// A call in which one tensor is replaced.
template <class Member>
void refused_with(Member member, Tensor other, const std::vector<std::string>& text,
                  bool with_index = true) {
  Call call;
  if (!with_index) call.index_at = nullptr;
  call.*member = other.handle();
  call.refused(kInvalid, text);
}

TEST(GroupedBiasAddGrad, ErrorTableNull) {
  Call dy;
  dy.dy_at = nullptr;
  dy.refused(kNull, {"gradY", "null"});
  Call out;
  out.out_at = nullptr;
  out.refused(kNull, {"out", "null"});
  const Call call;
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(aclnnGroupedBiasAddGradGetWorkspaceSize(call.dy_at, call.index_at, call.out_at, nullptr,
                                                    &executor),
            kNull);
  expect_message(take_message(), {"aclnnGroupedBiasAddGrad: ", "workspaceSize", "null"});
  EXPECT_EQ(aclnnGroupedBiasAddGradGetWorkspaceSize(call.dy_at, call.index_at, call.out_at, &size,
                                                    nullptr),
            kNull);
  expect_message(take_message(), {"aclnnGroupedBiasAddGrad: ", "executor", "null"});
  EXPECT_EQ(aclnnGroupedBiasAddGradV2GetWorkspaceSize(call.dy_at, call.index_at, 9, call.out_at,
                                                      nullptr, &executor),
            kNull);
  expect_message(take_message(), {"aclnnGroupedBiasAddGradV2: ", "workspaceSize", "null"});
  EXPECT_EQ(aclnnGroupedBiasAddGradV2GetWorkspaceSize(call.dy_at, call.index_at, 9, call.out_at,
                                                      &size, nullptr),
            kNull);
  expect_message(take_message(), {"aclnnGroupedBiasAddGradV2: ", "executor", "null"});
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(size, 7u);
}

TEST(GroupedBiasAddGrad, ErrorTableHandles) {
  const IntArray array({1});
  const auto wrong = [&](auto member, const char* name) {
    using Pointer = std::remove_reference_t<decltype(std::declval<Call>().*member)>;
    Call foreign;
    foreign.*member = reinterpret_cast<Pointer>(array.handle());
    foreign.refused(kInvalid, {name, "aclIntArray"});
    Call dead;
    Tensor gone({6, 4}, ACL_FLOAT);
    dead.*member = gone.handle();
    gone.destroy_handle();
    dead.refused(kInvalid, {name, "destroyed"});
  };
  wrong(&Call::dy_at, "gradY");
  wrong(&Call::index_at, "groupIdxOptional");
  wrong(&Call::out_at, "out");
}

TEST(GroupedBiasAddGrad, ErrorTableDtypesAndFormats) {
  refused_with(&Call::dy_at, Tensor({6, 4}, ACL_DOUBLE), {"gradY", "DOUBLE", "FLOAT"});
  for (const aclDataType dtype : {ACL_INT8, ACL_UINT8, ACL_INT16, ACL_FLOAT, ACL_BOOL}) {
    refused_with(&Call::index_at, Tensor({2}, dtype), {"groupIdxOptional", dtype_name(dtype)});
  }
  refused_with(&Call::out_at, Tensor({2, 4}, ACL_BF16), {"out", "BFLOAT16", "FLOAT"});
  const auto formatted = [](auto member, const Tensor& tensor, aclFormat format, int status,
                            const char* name) {
    Call call;
    aclTensor* other = tensor.make_handle(format);
    call.*member = other;
    call.refused(status, {name, "format"});
    EXPECT_EQ(aclDestroyTensor(other), 0);
  };
  const Tensor dy({6, 4}, ACL_FLOAT), index({2}, ACL_INT64), out({2, 4}, ACL_FLOAT);
  for (const aclFormat format : {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_FRACTAL_NZ}) {
    formatted(&Call::dy_at, dy, format, kInvalid, "gradY");
    formatted(&Call::index_at, index, format, kInvalid, "groupIdxOptional");
    formatted(&Call::out_at, out, format, kInvalid, "out");
  }
  for (const aclFormat format : {ACL_FORMAT_NCHW, ACL_FORMAT_NCL, ACL_FORMAT_UNDEFINED}) {
    formatted(&Call::dy_at, dy, format, 0, "gradY");
  }
}

TEST(GroupedBiasAddGrad, ErrorTableRanksShapesAndType) {
  refused_with(&Call::dy_at, Tensor({2, 3, 4}, ACL_FLOAT), {"gradY", "[2,3,4]", "2 dimensions"});
  refused_with(&Call::dy_at, Tensor({6, 4}, ACL_FLOAT), {"gradY", "[6,4]", "3 dimensions"}, false);
  refused_with(&Call::dy_at, Tensor({-6, 4}, ACL_FLOAT), {"gradY", "-6"});
  refused_with(&Call::index_at, Tensor({2, 1}, ACL_INT64),
               {"groupIdxOptional", "2 dim", "expected 1"});
  refused_with(&Call::index_at, Tensor({}, ACL_INT64), {"groupIdxOptional", "0 dim", "expected 1"});
  refused_with(&Call::out_at, Tensor({8}, ACL_FLOAT), {"out", "1 dim", "expected 2"});
  refused_with(&Call::index_at, Tensor({2049}, ACL_INT64), {"groupIdxOptional", "[2049]", "2048"});
  refused_with(&Call::out_at, Tensor({3, 4}, ACL_FLOAT), {"out", "[3,4]", "[2,4]"});
  refused_with(&Call::out_at, Tensor({2, 5}, ACL_FLOAT), {"out", "[2,5]", "[2,4]"});
  const Tensor equal({2, 3, 4}, ACL_FLOAT), wrong({3, 4}, ACL_FLOAT);
  Call three;
  three.dy_at = equal.handle();
  three.index_at = nullptr;
  three.out_at = wrong.handle();
  three.refused(kInvalid, {"out", "[3,4]", "[2,4]"});
  const Call call;
  for (const int64_t type : {int64_t{2}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    for (const bool with_index : {true, false}) {
      expect_refused(
          [&](uint64_t* size, aclOpExecutor** executor) {
            return aclnnGroupedBiasAddGradV2GetWorkspaceSize(
                with_index ? call.dy_at : equal.handle(), with_index ? call.index_at : nullptr,
                type, call.out_at, size, executor);
          },
          kInvalid,
          {"aclnnGroupedBiasAddGradV2: groupIdxType is " + std::to_string(type), "0", "1"});
    }
  }
}

TEST(GroupedBiasAddGrad, ErrorTableSizesAndOverlap) {
  const int64_t huge[] = {int64_t{1} << 62, 4}, strides[] = {0, 0};
  const aclTensor* dy =
      aclCreateTensor(huge, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  Call sizes;
  sizes.dy_at = dy;
  sizes.refused(kInvalid, {"gradY", std::to_string(huge[0])});
  EXPECT_EQ(aclDestroyTensor(dy), 0);
  const Tensor small({6, 4}, ACL_FLOAT);
  const int64_t shape[] = {6, 4}, far[] = {1000000, 1};
  aclTensor* const beyond =
      aclCreateTensor(shape, 2, ACL_FLOAT, far, 0, ACL_FORMAT_ND, nullptr, 0, small.address());
  Call bounds;
  bounds.dy_at = beyond;
  bounds.refused(kInvalid, {"gradY", "allocation"});
  EXPECT_EQ(aclDestroyTensor(beyond), 0);
  refused_with(&Call::out_at, Tensor({2, 4}, ACL_FLOAT, Dims{1, 1}), {"out"});
  Call overlap;
  const Tensor rows({2, 4}, ACL_FLOAT);
  overlap.dy_at = rows.handle();
  overlap.out_at = rows.handle();
  overlap.refused(kInvalid, {"out", "gradY"});
}

// The longest rows whose bytes can be counted: no sum overflows.
TEST(GroupedBiasAddGrad, PlansRowsThatNoMemoryHolds) {
  for (const auto& [dtype, cols] :
       {std::pair{ACL_FLOAT, (int64_t{1} << 61) - 1}, std::pair{ACL_BF16, (int64_t{1} << 62) - 1},
        std::pair{ACL_FLOAT16, int64_t{1} << 50}}) {
    const int64_t dims[] = {1, 1, cols}, strides[] = {cols, cols, 1};
    const aclTensor* dy =
        aclCreateTensor(dims, 3, dtype, strides, 0, ACL_FORMAT_ND, dims, 3, nullptr);
    aclTensor* out =
        aclCreateTensor(dims + 1, 2, dtype, strides + 1, 0, ACL_FORMAT_ND, dims + 1, 2, nullptr);
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnGroupedBiasAddGradGetWorkspaceSize(dy, nullptr, out, &size, &executor), 0)
        << cols << ": " << take_message();
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
    EXPECT_EQ(aclDestroyTensor(dy), 0);
    EXPECT_EQ(aclDestroyTensor(out), 0);
  }
}

}  // namespace
}  // namespace aclgrad::test

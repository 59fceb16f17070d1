// SPDX-License-Identifier: Apache-2.0
// What NsaCompressGrad refuses: the README's error table, row by row.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "support/error_rows.h"

namespace aclgrad::test {
namespace {

// A valid call, changed by a row of the error table.
struct Call {
  static constexpr const char* kOp = "aclnnNsaCompressGrad";
  Tensor dy{{4, 2, 16}, ACL_FLOAT16}, x{{100, 2, 16}, ACL_FLOAT16}, w{{32, 2}, ACL_FLOAT16},
      dx{{100, 2, 16}, ACL_FLOAT16}, dw{{32, 2}, ACL_FLOAT16};
  const aclTensor *dy_at = dy.handle(), *x_at = x.handle(), *w_at = w.handle(),
                  *dx_at = dx.handle(), *dw_at = dw.handle();
  std::vector<int64_t> ends = {48, 50, 100};
  std::optional<const aclIntArray*> other_ends;  // passed for them

  int64_t window = 32, step = 16, type = 0;
  std::string layout = "TND";

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    const IntArray made(ends);
    const aclIntArray* array = other_ends.value_or(made.handle());
    return aclnnNsaCompressGradGetWorkspaceSize(
        dy_at, x_at, w_at, array, window, step, type, const_cast<char*>(layout.data()),
        const_cast<aclTensor*>(dx_at), const_cast<aclTensor*>(dw_at), size, executor);
  }
};

constexpr TensorParameter<Call> kParameters[] = {{"outputGrad", &Call::dy_at, &Call::dy},
                                                 {"input", &Call::x_at, &Call::x},
                                                 {"weight", &Call::w_at, &Call::w},
                                                 {"inputGradOut", &Call::dx_at, &Call::dx},
                                                 {"weightGradOut", &Call::dw_at, &Call::dw}};

// Phase one looks at the type later than at pointers and handles.
Call with_wrong_type() {
  Call call;
  call.type = 7;
  return call;
}

TEST(NsaCompressGrad, ErrorTableNullAndHandles) {
  expect_status(Call(), 0, {});
  expect_nulls_refused(kParameters, with_wrong_type);
  expect_wrong_handles_refused(kParameters, with_wrong_type);
  Call foreign = with_wrong_type();
  foreign.other_ends = reinterpret_cast<const aclIntArray*>(foreign.w_at);
  expect_status(foreign, kInvalid, {named<Call>("actSeqLenOptionalOptional"), "aclTensor"});
}

TEST(NsaCompressGrad, ErrorTableDtypesAndFormats) {
  for (const aclDataType dtype : {ACL_FLOAT, ACL_DOUBLE, ACL_INT16}) {
    refused_with(&Call::dy_at, Tensor({4, 2, 16}, dtype),
                 {"outputGrad", dtype_name(dtype), "FLOAT16", "BFLOAT16"});
  }
  const Dims rows = {100, 2, 16}, weights = {32, 2};
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    refused_with(&Call::x_at, Tensor(rows, dtype), {"input", dtype_name(dtype), "FLOAT16"});
    refused_with(&Call::w_at, Tensor(weights, dtype), {"weight", dtype_name(dtype), "FLOAT16"});
    refused_with(&Call::dx_at, Tensor(rows, dtype), {"inputGradOut", dtype_name(dtype)});
    refused_with(&Call::dw_at, Tensor(weights, dtype), {"weightGradOut", dtype_name(dtype)});
  }
  expect_private_formats_refused(kParameters);
}

TEST(NsaCompressGrad, ErrorTableRanksAndShapes) {
  refused_with(&Call::dy_at, Tensor({4, 32}, ACL_FLOAT16), {"outputGrad", "2 dim", "3"});
  refused_with(&Call::x_at, Tensor({100, 2, 16, 1}, ACL_FLOAT16), {"input", "4 dim", "3"});
  refused_with(&Call::w_at, Tensor({32, 2, 1}, ACL_FLOAT16), {"weight", "3 dim", "2"});
  refused_with(&Call::dx_at, Tensor({3200}, ACL_FLOAT16), {"inputGradOut", "1 dim", "3"});
  refused_with(&Call::dw_at, Tensor({}, ACL_FLOAT16), {"weightGradOut", "0 dim", "2"});
  refused_with(&Call::x_at, Tensor({-100, 2, 16}, ACL_FLOAT16), {"input", "-100"});
  refused_with(&Call::x_at, Tensor({100, 2, 24}, ACL_FLOAT16), {"input", "[100,2,24]", "16"});
  refused_with(&Call::dy_at, Tensor({4, 3, 16}, ACL_FLOAT16), {"outputGrad", "[4,3,16]", "input"});
  refused_with(&Call::dy_at, Tensor({4, 2, 32}, ACL_FLOAT16), {"outputGrad", "[4,2,32]", "input"});
  refused_with(&Call::w_at, Tensor({32, 3}, ACL_FLOAT16), {"weight", "[32,3]", "input"});
  refused_with(&Call::dx_at, Tensor({99, 2, 16}, ACL_FLOAT16),
               {"inputGradOut", "[99,2,16]", "[100,2,16]"});
  refused_with(&Call::dw_at, Tensor({32, 1}, ACL_FLOAT16), {"weightGradOut", "[32,1]", "[32,2]"});
}

TEST(NsaCompressGrad, ErrorTableAttributesAndSequences) {
  const auto refused = [](auto member, auto value, std::initializer_list<std::string> message) {
    Call call;
    call.*member = value;
    expect_status(call, kInvalid, message);
  };
  for (const int64_t wrong : {0, -16, 24, 17, 1}) {
    const std::string text = "is " + std::to_string(wrong);
    refused(&Call::window, wrong, {"compressBlockSize", text, "multiple of 16"});
    refused(&Call::step, wrong, {"compressStride", text, "multiple of 16"});
  }
  refused(&Call::window, 16, {"compressBlockSize is 16", "compressStride 16"});
  refused(&Call::step, 48, {"compressBlockSize is 32", "compressStride 48"});
  for (const int64_t wrong : {1, 2, -1}) {
    refused(&Call::type, wrong, {"actSeqLenType", std::to_string(wrong), "only 0 is supported"});
  }
  for (const char* wrong : {"BSND", "tnd", "", "TN", "TND "}) {
    refused(&Call::layout, wrong, {"layoutOptionalOptional", wrong, "TND"});
  }
  using Ends = std::vector<int64_t>;
  refused(&Call::ends, Ends{-1, 100}, {"actSeqLenOptionalOptional[0] is -1", "at least 0"});
  refused(&Call::ends, Ends{50, 48, 100}, {"actSeqLenOptionalOptional[1] is 48", "at least 50"});
  refused(&Call::ends, Ends{48, 101}, {"actSeqLenOptionalOptional[1] is 101", "at most 100"});
  refused(&Call::window, 48, {"weight", "[32,2]", "[48,2]", "compressBlockSize"});
  refused(&Call::ends, Ends{100}, {"outputGrad", "[4,2,16]", "[5,2,16]", "windows"});
  refused(&Call::ends, Ends{48}, {"outputGrad", "[4,2,16]", "[2,2,16]", "windows"});
}

TEST(NsaCompressGrad, ErrorTableSizesAndOverlap) {
  const int64_t huge[] = {int64_t{1} << 59, 2, 16}, strides[] = {0, 0, 0};
  const auto made = [&] {
    return aclCreateTensor(huge, 3, ACL_FLOAT16, strides, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  };
  Call sizes;
  const aclTensor *x = made(), *dx = made();
  sizes.x_at = x;
  sizes.dx_at = dx;
  expect_status(sizes, kInvalid, {"input", std::to_string(huge[0])});
  EXPECT_EQ(aclDestroyTensor(x), 0);
  EXPECT_EQ(aclDestroyTensor(dx), 0);
  const Tensor small({100, 2, 16}, ACL_FLOAT16);
  const int64_t shape[] = {100, 2, 16}, far[] = {1000000, 16, 1};
  aclTensor* const beyond =
      aclCreateTensor(shape, 3, ACL_FLOAT16, far, 0, ACL_FORMAT_ND, nullptr, 0, small.address());
  Call bounds;
  bounds.x_at = beyond;
  expect_status(bounds, kInvalid, {"input", "allocation"});
  EXPECT_EQ(aclDestroyTensor(beyond), 0);
  refused_with(&Call::dw_at, Tensor({32, 2}, ACL_FLOAT16, Dims{0, 1}), {"weightGradOut"});
  Call weights;
  weights.dw_at = weights.w_at;
  expect_status(weights, kInvalid, {"weightGradOut", "weight"});
  const Tensor both({101, 2, 16}, ACL_FLOAT16);  // dx one token after x
  const int64_t dims[] = {100, 2, 16}, dense[] = {32, 16, 1};
  aclTensor* shifted[2];
  for (int64_t i = 0; i < 2; ++i) {
    shifted[i] = aclCreateTensor(dims, 3, ACL_FLOAT16, dense, 32 * i, ACL_FORMAT_ND, nullptr, 0,
                                 both.address());
  }
  Call rows;
  rows.x_at = shifted[0];
  rows.dx_at = shifted[1];
  expect_status(rows, kInvalid, {"inputGradOut", "input"});
  for (const aclTensor* each : shifted) EXPECT_EQ(aclDestroyTensor(each), 0);
}

}  // namespace
}  // namespace aclgrad::test

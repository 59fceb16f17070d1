// SPDX-License-Identifier: Apache-2.0
// What NsaCompress refuses: the README's error table, row by row.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "aclnnop/aclnn_nsa_compress.h"
#include "support/error_rows.h"

namespace aclgrad::test {
namespace {

// A valid call, changed by a row of the error table.
struct Call {
  static constexpr const char* kOp = "aclnnNsaCompress";
  Tensor x{{100, 2, 16}, ACL_FLOAT16}, w{{32, 2}, ACL_FLOAT16}, y{{4, 2, 16}, ACL_FLOAT16};
  const aclTensor *x_at = x.handle(), *w_at = w.handle(), *y_at = y.handle();
  std::vector<int64_t> ends = {48, 50, 100};
  std::optional<const aclIntArray*> other_ends;  // passed for them
  int64_t window = 32, step = 16, type = 0;
  std::string layout = "TND";

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    const IntArray made(ends);
    const aclIntArray* array = other_ends.value_or(made.handle());
    return aclnnNsaCompressGetWorkspaceSize(x_at, w_at, array, const_cast<char*>(layout.data()),
                                            window, step, type, const_cast<aclTensor*>(y_at), size,
                                            executor);
  }
};

constexpr TensorParameter<Call> kParameters[] = {{"input", &Call::x_at, &Call::x},
                                                 {"weight", &Call::w_at, &Call::w},
                                                 {"output", &Call::y_at, &Call::y}};

// Phase one looks at the type later than at pointers and handles.
Call with_wrong_type() {
  Call call;
  call.type = 7;
  return call;
}

TEST(NsaCompress, ErrorTableNullAndHandles) {
  expect_status(Call(), 0, {});
  expect_nulls_refused(kParameters, with_wrong_type);
  expect_wrong_handles_refused(kParameters, with_wrong_type);
  Call foreign = with_wrong_type();
  foreign.other_ends = reinterpret_cast<const aclIntArray*>(foreign.w_at);
  expect_status(foreign, kInvalid, {named<Call>("actSeqLenOptional"), "aclTensor"});
}

TEST(NsaCompress, ErrorTableDtypesAndFormats) {
  for (const aclDataType dtype : {ACL_FLOAT, ACL_DOUBLE, ACL_INT16}) {
    refused_with(&Call::x_at, Tensor({100, 2, 16}, dtype),
                 {"input", dtype_name(dtype), "FLOAT16", "BFLOAT16"});
  }
  for (const aclDataType dtype : {ACL_FLOAT, ACL_BF16}) {
    refused_with(&Call::w_at, Tensor({32, 2}, dtype), {"weight", dtype_name(dtype), "FLOAT16"});
    refused_with(&Call::y_at, Tensor({4, 2, 16}, dtype), {"output", dtype_name(dtype)});
  }
  expect_private_formats_refused(kParameters);
}

TEST(NsaCompress, ErrorTableRanksAndShapes) {
  refused_with(&Call::x_at, Tensor({100, 2, 16, 1}, ACL_FLOAT16), {"input", "4 dim", "3"});
  refused_with(&Call::w_at, Tensor({32, 2, 1}, ACL_FLOAT16), {"weight", "3 dim", "2"});
  refused_with(&Call::y_at, Tensor({4, 32}, ACL_FLOAT16), {"output", "2 dim", "3"});
  refused_with(&Call::x_at, Tensor({-100, 2, 16}, ACL_FLOAT16), {"input", "-100"});
  refused_with(&Call::x_at, Tensor({100, 129, 16}, ACL_FLOAT16), {"input", "[100,129,16]", "128"});
  refused_with(&Call::x_at, Tensor({100, 2, 24}, ACL_FLOAT16), {"input", "[100,2,24]", "16"});
  refused_with(&Call::x_at, Tensor({100, 2, 272}, ACL_FLOAT16), {"input", "[100,2,272]", "256"});
  refused_with(&Call::w_at, Tensor({32, 3}, ACL_FLOAT16), {"weight", "[32,3]", "input"});
  refused_with(&Call::y_at, Tensor({4, 3, 16}, ACL_FLOAT16), {"output", "[4,3,16]", "input"});
  refused_with(&Call::y_at, Tensor({4, 2, 32}, ACL_FLOAT16), {"output", "[4,2,32]", "input"});
}

TEST(NsaCompress, ErrorTableAttributesAndSequences) {
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
  refused(&Call::step, 48, {"compressBlockSize is 32", "compressStride 48"});
  refused(&Call::window, 144, {"compressBlockSize is 144", "at most 128"});
  for (const int64_t wrong : {1, 2, -1}) {
    refused(&Call::type, wrong, {"actSeqLenType", std::to_string(wrong), "only 0 is supported"});
  }
  for (const char* wrong : {"BSND", "tnd", "", "TN", "TND "}) {
    refused(&Call::layout, wrong, {"layoutOptional", wrong, "TND"});
  }
  using Ends = std::vector<int64_t>;
  refused(&Call::ends, Ends{}, {"actSeqLenOptional", "empty"});
  Call without;
  without.other_ends = nullptr;
  expect_status(without, kInvalid, {named<Call>("actSeqLenOptional"), "null"});
  refused(&Call::ends, Ends{-1, 100}, {"actSeqLenOptional[0] is -1", "at least 0"});
  refused(&Call::ends, Ends{50, 48, 100}, {"actSeqLenOptional[1] is 48", "at least 50"});
  refused(&Call::ends, Ends{48, 101}, {"actSeqLenOptional[1] is 101", "at most 100"});
  refused(&Call::window, 48, {"weight", "[32,2]", "[48,2]", "compressBlockSize"});
  refused(&Call::ends, Ends{100}, {"output", "[4,2,16]", "[5,2,16]", "windows"});
  refused(&Call::ends, Ends{48}, {"output", "[4,2,16]", "[2,2,16]", "windows"});
}

TEST(NsaCompress, ErrorTableSizesBoundsOverlap) {
  const int64_t huge[] = {int64_t{1} << 59, 2, 16}, strides[] = {0, 0, 0};
  const aclTensor* x =
      aclCreateTensor(huge, 3, ACL_FLOAT16, strides, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  Call sizes;
  sizes.x_at = x;
  expect_status(sizes, kInvalid, {"input", std::to_string(huge[0])});
  EXPECT_EQ(aclDestroyTensor(x), 0);
  refused_with(&Call::y_at, Tensor({4, 2, 16}, ACL_FLOAT16, Dims{16, 0, 1}), {"output"});
  Call bounds;
  const int64_t x_dims[] = {100, 2, 16}, far[] = {1000000, 16, 1};
  aclTensor* const beyond = aclCreateTensor(x_dims, 3, ACL_FLOAT16, far, 0, ACL_FORMAT_ND, nullptr,
                                            0, bounds.x.address());
  bounds.x_at = beyond;
  expect_status(bounds, kInvalid, {"input", "allocation"});
  EXPECT_EQ(aclDestroyTensor(beyond), 0);
  const Tensor memory({100, 2, 16}, ACL_FLOAT16);  // y in the middle of x
  const int64_t dims[] = {4, 2, 16}, dense[] = {32, 16, 1};
  aclTensor* inside = aclCreateTensor(dims, 3, ACL_FLOAT16, dense, 320, ACL_FORMAT_ND, nullptr, 0,
                                      memory.address());
  Call overlap;
  overlap.x_at = memory.handle();
  overlap.y_at = inside;
  expect_status(overlap, kInvalid, {"output", "input"});
  EXPECT_EQ(aclDestroyTensor(inside), 0);
}

}  // namespace
}  // namespace aclgrad::test

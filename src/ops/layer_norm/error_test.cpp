// SPDX-License-Identifier: Apache-2.0
// What LayerNorm refuses: the README's error table, row by row.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "aclnnop/aclnn_layer_norm.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

// Arguments of phase one, any of which a row of the error table replaces.
struct Call {
  Tensor x{{2, 4}, ACL_FLOAT}, weight{{4}, ACL_FLOAT}, bias{{4}, ACL_FLOAT};
  Tensor y{{2, 4}, ACL_FLOAT}, mean{{2, 1}, ACL_FLOAT}, rstd{{2, 1}, ACL_FLOAT};
  IntArray normalized{std::vector<int64_t>{4}};

  const aclTensor *x_at = x.handle(), *weight_at = weight.handle(), *bias_at = bias.handle(),
                  *y_at = y.handle(), *mean_at = mean.handle(), *rstd_at = rstd.handle();
  const aclIntArray* normalized_at = normalized.handle();
  int32_t mode = 0;

  aclnnStatus plain(uint64_t* size, aclOpExecutor** executor) const {
    return aclnnLayerNormGetWorkspaceSize(
        x_at, normalized_at, weight_at, bias_at, 1e-5, const_cast<aclTensor*>(y_at),
        const_cast<aclTensor*>(mean_at), const_cast<aclTensor*>(rstd_at), size, executor);
  }
  aclnnStatus with_mode(uint64_t* size, aclOpExecutor** executor) const {
    return aclnnLayerNormWithImplModeGetWorkspaceSize(
        x_at, normalized_at, weight_at, bias_at, 1e-5, const_cast<aclTensor*>(y_at),
        const_cast<aclTensor*>(mean_at), const_cast<aclTensor*>(rstd_at), mode, size, executor);
  }
  void mode_refused(aclnnStatus status, std::initializer_list<std::string> substrings) {
    SCOPED_TRACE(*substrings.begin());
    expect_refused(
        [&](uint64_t* size, aclOpExecutor** executor) { return with_mode(size, executor); }, status,
        substrings);
  }
  // By both functions, alike.
  void refused(aclnnStatus status, std::initializer_list<std::string> substrings) {
    mode_refused(status, substrings);
    expect_refused([&](uint64_t* size, aclOpExecutor** executor) { return plain(size, executor); },
                   status, substrings);
  }
};

constexpr aclnnStatus kNull = 161001, kInvalid = 161002;
constexpr const aclTensor* Call::*kTensors[] = {&Call::x_at, &Call::weight_at, &Call::bias_at,
                                                &Call::y_at, &Call::mean_at,   &Call::rstd_at};
constexpr const char* kNames[] = {"input", "weightOptional",  "biasOptional",
                                  "out",   "meanOutOptional", "rstdOutOptional"};

void expect_replaced_refused(size_t which, const Tensor& tensor,
                             std::initializer_list<std::string> substrings) {
  Call call;
  call.*kTensors[which] = tensor.handle();
  call.refused(kInvalid, substrings);
}

TEST(LayerNorm, ErrorTableNullsAndHandles) {
  for (const size_t which : {0u, 3u}) {
    Call call;
    call.*kTensors[which] = nullptr;
    call.mode_refused(kNull, {std::string("aclnnLayerNormWithImplMode: ") + kNames[which], "null"});
    call.refused(kNull, {": " + std::string(kNames[which]) + " is null"});
  }
  Call no_shape;
  no_shape.normalized_at = nullptr;
  no_shape.refused(kNull, {"normalizedShape", "null"});
  Call call;
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  EXPECT_EQ(call.plain(nullptr, &executor), kNull);
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(call.with_mode(&size, nullptr), kNull);
  expect_message(take_message(), {"aclnnLayerNormWithImplMode: executor"});
  EXPECT_EQ(size, 7u);
  for (size_t which = 0; which < std::size(kTensors); ++which) {
    Call wrong_kind;
    wrong_kind.*kTensors[which] =
        reinterpret_cast<const aclTensor*>(wrong_kind.normalized.handle());
    wrong_kind.refused(kInvalid, {kNames[which], "aclIntArray"});
    Tensor dead({2, 4}, ACL_FLOAT);
    wrong_kind.*kTensors[which] = dead.handle();
    dead.destroy_handle();
    wrong_kind.refused(kInvalid, {kNames[which], "destroyed"});
  }
}

TEST(LayerNorm, ErrorTableDtypes) {
  expect_replaced_refused(0, Tensor({2, 4}, ACL_DOUBLE), {"input", "DOUBLE", "BFLOAT16"});
  expect_replaced_refused(1, Tensor({4}, ACL_FLOAT16), {"weightOptional", "FLOAT16", "FLOAT"});
  expect_replaced_refused(2, Tensor({4}, ACL_BF16), {"biasOptional", "BFLOAT16", "FLOAT"});
  Call call;
  const Tensor half_x({2, 4}, ACL_FLOAT16), half_bias({4}, ACL_FLOAT16);
  call.x_at = half_x.handle();
  call.bias_at = half_bias.handle();
  call.refused(kInvalid, {"biasOptional", "FLOAT16", "weightOptional"});
  call.weight_at = nullptr;
  call.refused(0, {""});
  expect_replaced_refused(3, Tensor({2, 4}, ACL_INT8), {"out", "INT8", "FLOAT16"});
  expect_replaced_refused(4, Tensor({2}, ACL_INT32), {"meanOutOptional", "INT32"});
  expect_replaced_refused(5, Tensor({2}, ACL_INT64), {"rstdOutOptional", "INT64"});
}

TEST(LayerNorm, ErrorTableFormatsAndRanks) {
  for (size_t which = 0; which < std::size(kTensors); ++which) {
    Call call;
    const Tensor* tensors[] = {&call.x, &call.weight, &call.bias, &call.y, &call.mean, &call.rstd};
    for (const aclFormat format : {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_NZ}) {
      aclTensor* other = tensors[which]->make_handle(format);
      call.*kTensors[which] = other;
      call.refused(kInvalid, {kNames[which], "format"});
      EXPECT_EQ(aclDestroyTensor(other), 0);
    }
    aclTensor* other = tensors[which]->make_handle(ACL_FORMAT_NCHW);
    call.*kTensors[which] = other;
    call.refused(0, {""});
    EXPECT_EQ(aclDestroyTensor(other), 0);
    expect_replaced_refused(which, Tensor(Dims(9, 1), ACL_FLOAT), {kNames[which], "9", "8"});
    expect_replaced_refused(which, Tensor({-2, 4}, ACL_FLOAT), {kNames[which], "[-2,4]"});
  }
  Call none;
  const IntArray empty({});
  none.normalized_at = empty.handle();
  none.refused(kInvalid, {"normalizedShape", "0 entries"});
  Call many;
  const IntArray three({1, 2, 4});
  many.normalized_at = three.handle();
  many.refused(kInvalid, {"normalizedShape", "3 entries", "[2,4]"});
}

TEST(LayerNorm, ErrorTableShapes) {
  Call tail;
  const IntArray five({5});
  tail.normalized_at = five.handle();
  tail.refused(kInvalid, {"normalizedShape", "[5]", "[2,4]"});
  Call front;  // every entry counts
  const IntArray three_four({3, 4});
  front.normalized_at = three_four.handle();
  front.refused(kInvalid, {"normalizedShape", "[3,4]", "[2,4]"});
  expect_replaced_refused(1, Tensor({5}, ACL_FLOAT), {"weightOptional", "[5]", "[4]"});
  expect_replaced_refused(2, Tensor({1, 4}, ACL_FLOAT), {"biasOptional", "[1,4]", "[4]"});
  expect_replaced_refused(3, Tensor({8}, ACL_FLOAT), {"out", "[8]", "[2,4]"});
  expect_replaced_refused(4, Tensor({4}, ACL_FLOAT), {"meanOutOptional", "4 elements", "2"});
  expect_replaced_refused(5, Tensor({1, 1}, ACL_FLOAT), {"rstdOutOptional", "1 element", "2"});
}

TEST(LayerNorm, ErrorTableImplMode) {
  for (const int32_t mode : {-1, 3, 1000}) {
    Call call;
    call.mode = mode;
    call.mode_refused(kInvalid, {"implMode is " + std::to_string(mode), "0, 1 or 2"});
  }
  const Tensor x({2, 4}, ACL_FLOAT16), weight({4}, ACL_FLOAT16), bias({4}, ACL_FLOAT16),
      y({2, 4}, ACL_FLOAT16), mean({2}, ACL_FLOAT16), rstd({2}, ACL_FLOAT16);
  const Tensor* halves[] = {&x, &weight, &bias, &y, &mean, &rstd};
  for (const size_t wide : {0u, 3u, 4u, 5u}) {  // weight and bias below
    Call call;
    call.mode = 2;
    for (size_t i = 0; i < 6; ++i) {
      if (i != wide && !(wide == 0 && i < 3)) call.*kTensors[i] = halves[i]->handle();
    }
    call.mode_refused(kInvalid, {"implMode is 2", kNames[wide], "FLOAT16"});
  }
  Call call;
  call.mode = 2;
  for (size_t i = 0; i < 6; ++i) call.*kTensors[i] = halves[i]->handle();
  call.mode_refused(0, {""});
  call.weight_at = call.weight.handle();
  call.bias_at = call.bias.handle();
  call.mode_refused(kInvalid, {"implMode is 2", "weightOptional", "FLOAT16"});
  call.weight_at = nullptr;
  call.mode_refused(kInvalid, {"implMode is 2", "biasOptional", "FLOAT16"});
}

// The tensor `which` becomes this view of the memory of tensor `source`.
void expect_view_refused(size_t which, size_t source, const Dims& dims, const Dims& strides,
                         std::initializer_list<std::string> substrings) {
  Call call;
  const Tensor* tensors[] = {&call.x, &call.weight, &call.bias, &call.y, &call.mean, &call.rstd};
  const int64_t storage = tensors[source]->numel();
  aclTensor* view = aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT, strides.data(), 0,
                                    ACL_FORMAT_ND, &storage, 1, tensors[source]->address());
  call.*kTensors[which] = view;
  call.refused(kInvalid, substrings);
  EXPECT_EQ(aclDestroyTensor(view), 0);
}

TEST(LayerNorm, ErrorTableSizesBoundsOverlap) {
  constexpr int64_t kHuge = int64_t{1} << 61;
  expect_view_refused(0, 0, {kHuge, 4}, {4, 1}, {"input", std::to_string(kHuge)});
  expect_view_refused(0, 0, {2, 4}, {1000000, 1}, {"input", "allocation"});
  expect_view_refused(3, 3, {2, 4}, {1000000, 1}, {"out", "allocation"});
  expect_view_refused(3, 3, {2, 4}, {1, 1}, {"out", "[1,1]"});
  expect_view_refused(3, 0, {2, 4}, {4, 1}, {"out", "input"});  // not even in place
  expect_view_refused(4, 1, {2}, {1}, {"meanOutOptional", "weightOptional"});
  expect_view_refused(5, 4, {2}, {1}, {"rstdOutOptional", "meanOutOptional"});
}

}  // namespace
}  // namespace aclgrad::test

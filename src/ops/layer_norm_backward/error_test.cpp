// SPDX-License-Identifier: Apache-2.0
// What LayerNormBackward refuses: the README's error table, row by row.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aclnnop/aclnn_layer_norm_backward.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {
namespace {

// Arguments of phase one, any of which a row of the error table replaces.
struct Call {
  Tensor dy{{2, 4}, ACL_FLOAT}, x{{2, 4}, ACL_FLOAT}, mean{{2}, ACL_FLOAT}, rstd{{2}, ACL_FLOAT};
  Tensor weight{{4}, ACL_FLOAT}, bias{{4}, ACL_FLOAT};
  Tensor dx{{2, 4}, ACL_FLOAT}, dgamma{{4}, ACL_FLOAT}, dbeta{{4}, ACL_FLOAT};
  IntArray normalized{std::vector<int64_t>{4}};
  BoolArray mask{std::vector<bool>{true, true, true}};

  const aclTensor *dy_at = dy.handle(), *x_at = x.handle(), *mean_at = mean.handle(),
                  *rstd_at = rstd.handle(), *weight_at = weight.handle(), *bias_at = bias.handle();
  const aclIntArray* normalized_at = normalized.handle();
  const aclBoolArray* mask_at = mask.handle();
  aclTensor *dx_at = dx.handle(), *dgamma_at = dgamma.handle(), *dbeta_at = dbeta.handle();

  void refused(aclnnStatus status, std::initializer_list<std::string> substrings) {
    SCOPED_TRACE(*substrings.begin());
    std::vector<std::string> all(substrings);
    expect_refused(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnLayerNormBackwardGetWorkspaceSize(dy_at, x_at, normalized_at, mean_at,
                                                        rstd_at, weight_at, bias_at, mask_at, dx_at,
                                                        dgamma_at, dbeta_at, size, executor);
        },
        status, substrings);
  }
};

constexpr aclnnStatus kNull = 161001, kInvalid = 161002;

TEST(LayerNormBackward, ErrorTableNull) {
  const auto with_null = [](auto member, const char* name) {
    Call call;
    call.*member = nullptr;
    call.refused(kNull, {std::string("aclnnLayerNormBackward: ") + name, "null"});
  };
  with_null(&Call::dy_at, "gradOut");
  with_null(&Call::x_at, "input");
  with_null(&Call::normalized_at, "normalizedShape");
  with_null(&Call::mean_at, "mean");
  with_null(&Call::rstd_at, "rstd");
  with_null(&Call::mask_at, "outputMask");
  Call call;
  uint64_t size = 7;
  aclOpExecutor* executor = nullptr;
  const auto plan = [&](uint64_t* size_at, aclOpExecutor** executor_at) {
    return aclnnLayerNormBackwardGetWorkspaceSize(
        call.dy_at, call.x_at, call.normalized_at, call.mean_at, call.rstd_at, call.weight_at,
        call.bias_at, call.mask_at, call.dx_at, call.dgamma_at, call.dbeta_at, size_at,
        executor_at);
  };
  EXPECT_EQ(plan(nullptr, &executor), kNull);
  EXPECT_EQ(executor, nullptr);
  EXPECT_EQ(plan(&size, nullptr), kNull);
  EXPECT_EQ(size, 7u);
}

TEST(LayerNormBackward, ErrorTableHandlesAndMask) {
  for (auto member : {&Call::dy_at, &Call::x_at, &Call::mean_at, &Call::rstd_at, &Call::weight_at,
                      &Call::bias_at}) {
    Call call;
    call.*member = reinterpret_cast<const aclTensor*>(call.normalized.handle());
    call.refused(kInvalid, {"aclnnLayerNormBackward: ", "aclIntArray"});
    Tensor dead({2, 4}, ACL_FLOAT);
    call.*member = dead.handle();
    dead.destroy_handle();
    call.refused(kInvalid, {"aclnnLayerNormBackward: ", "destroyed"});
  }
  Call call;
  const BoolArray two({true, true});
  call.mask_at = two.handle();
  call.refused(kInvalid, {"outputMask", "3", "2"});
  const auto missing = [](auto member, const char* name) {
    Call without;
    without.*member = nullptr;
    without.refused(kNull, {name, "null", "outputMask"});
  };
  missing(&Call::dx_at, "gradInputOut");
  missing(&Call::dgamma_at, "gradWeightOut");
  missing(&Call::dbeta_at, "gradBiasOut");
}

TEST(LayerNormBackward, ErrorTableDtypes) {
  const auto wrong = [](auto member, const Dims& dims, aclDataType dtype,
                        std::initializer_list<std::string> text) {
    Call call;
    const Tensor other(dims, dtype);
    call.*member = other.handle();
    call.refused(kInvalid, text);
  };
  wrong(&Call::dy_at, {2, 4}, ACL_DOUBLE, {"gradOut", "DOUBLE", "FLOAT"});
  wrong(&Call::x_at, {2, 4}, ACL_FLOAT16, {"input", "FLOAT16", "FLOAT"});
  wrong(&Call::mean_at, {2}, ACL_INT32, {"mean", "INT32"});
  wrong(&Call::rstd_at, {2}, ACL_INT64, {"rstd", "INT64"});
  wrong(&Call::weight_at, {4}, ACL_FLOAT16, {"weightOptional", "FLOAT16", "FLOAT"});
  wrong(&Call::bias_at, {4}, ACL_BOOL, {"biasOptional", "BOOL"});
  wrong(&Call::dx_at, {2, 4}, ACL_DOUBLE, {"gradInputOut", "DOUBLE"});
  wrong(&Call::dgamma_at, {4}, ACL_INT8, {"gradWeightOut", "INT8"});
  wrong(&Call::dbeta_at, {4}, ACL_UINT8, {"gradBiasOut", "UINT8"});
  // A masked-off output: its dtype is checked, its shape is not.
  Call call;
  const BoolArray mask({true, false, true});
  call.mask_at = mask.handle();
  const Tensor wrong_dtype({4}, ACL_INT8);
  call.dgamma_at = wrong_dtype.handle();
  call.refused(kInvalid, {"gradWeightOut", "INT8"});
  const Tensor wrong_shape({77}, ACL_FLOAT);
  call.dgamma_at = wrong_shape.handle();
  call.refused(0, {""});
}

TEST(LayerNormBackward, ErrorTableFormatsAndRanks) {
  for (const aclFormat format : {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z, ACL_FORMAT_FRACTAL_NZ,
                                 ACL_FORMAT_NDC1HWC0, ACL_FORMAT_FRACTAL_NZ_C0_16}) {
    Call call;
    aclTensor* other = call.x.make_handle(format);
    call.x_at = other;
    call.refused(kInvalid, {"input", "format"});
    EXPECT_EQ(aclDestroyTensor(other), 0);
  }
  for (const aclFormat format :
       {ACL_FORMAT_NCHW, ACL_FORMAT_NHWC, ACL_FORMAT_NCL, ACL_FORMAT_NCDHW, ACL_FORMAT_NDHWC,
        ACL_FORMAT_HWCN, ACL_FORMAT_NC, ACL_FORMAT_UNDEFINED}) {
    Call call;
    aclTensor* other = call.x.make_handle(format);
    call.x_at = other;
    call.refused(0, {""});
    EXPECT_EQ(aclDestroyTensor(other), 0);
  }
  Call nine;
  const Tensor deep(Dims(9, 1), ACL_FLOAT);
  nine.dy_at = nine.x_at = deep.handle();
  nine.refused(kInvalid, {"gradOut", "9", "8"});
  Call none;
  const IntArray empty({});
  none.normalized_at = empty.handle();
  none.refused(kInvalid, {"normalizedShape", "0 entries"});
  Call many;
  const IntArray three({1, 2, 4});
  many.normalized_at = three.handle();
  many.refused(kInvalid, {"normalizedShape", "3 entries", "[2,4]"});
}

TEST(LayerNormBackward, ErrorTableShapes) {
  const auto wrong = [](auto member, const Dims& dims, std::initializer_list<std::string> text) {
    Call call;
    const Tensor other(dims, ACL_FLOAT);
    call.*member = other.handle();
    call.refused(kInvalid, text);
  };
  wrong(&Call::dy_at, {4, 2}, {"gradOut", "[4,2]", "[2,4]"});
  Call tail;
  const IntArray five({5});
  tail.normalized_at = five.handle();
  tail.refused(kInvalid, {"normalizedShape", "[5]", "[2,4]"});
  wrong(&Call::weight_at, {5}, {"weightOptional", "[5]", "[4]"});
  wrong(&Call::bias_at, {1, 4}, {"biasOptional", "[1,4]", "[4]"});
  wrong(&Call::mean_at, {4, 1}, {"mean", "[4,1]", "4 elements", "2", "[2,4]"});
  wrong(&Call::rstd_at, {2, 1}, {"rstd", "[2,1]", "[2]"});
  wrong(&Call::dx_at, {8}, {"gradInputOut", "[8]", "[2,4]"});
  wrong(&Call::dgamma_at, {3}, {"gradWeightOut", "[3]", "4"});
  wrong(&Call::dbeta_at, {5, 1}, {"gradBiasOut", "[5,1]", "4"});
}

TEST(LayerNormBackward, ErrorTableSizesBoundsOverlap) {
  const int64_t huge[] = {int64_t{1} << 61, 4}, still[] = {0, 0};
  aclTensor* const endless =
      aclCreateTensor(huge, 2, ACL_FLOAT, still, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  Call sizes;
  sizes.dy_at = sizes.x_at = sizes.dx_at = endless;
  sizes.refused(kInvalid, {"input", std::to_string(huge[0]), "2^63-1"});
  EXPECT_EQ(aclDestroyTensor(endless), 0);
  const Tensor small({2, 4}, ACL_FLOAT);
  const int64_t shape[] = {2, 4}, far[] = {1000000, 1};
  aclTensor* const beyond =
      aclCreateTensor(shape, 2, ACL_FLOAT, far, 0, ACL_FORMAT_ND, nullptr, 0, small.address());
  Call bounds;
  bounds.x_at = beyond;
  bounds.refused(kInvalid, {"input", "allocation"});
  EXPECT_EQ(aclDestroyTensor(beyond), 0);
  Call call;
  call.dx_at = const_cast<aclTensor*>(call.dy_at);
  call.refused(0, {""});  // the permitted in-place use
  call.dgamma_at = call.dbeta_at;
  call.refused(kInvalid, {"gradWeightOut", "gradBiasOut"});
  Call self;
  const Tensor folded({2, 4}, ACL_FLOAT, Dims{1, 1});
  self.dx_at = folded.handle();
  self.refused(kInvalid, {"gradInputOut"});
}

}  // namespace
}  // namespace aclgrad::test

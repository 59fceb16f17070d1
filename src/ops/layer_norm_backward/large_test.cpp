// SPDX-License-Identifier: Apache-2.0
// LayerNormBackward of operands that do not fit the caches: stores past them, batches of wide rows,
// long sums, small workspaces.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/layer_norm_backward/test_problem.h"
#include "support/random.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

// Outputs that do not fit the cache bypass it: rows of whole lines, and rows that are gathered
// first.
TEST(LayerNormBackward, StreamedOutputsAreRight) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  run_and_check({190001, 24}, all_of(ACL_FLOAT));
  run_and_check({140001, 61}, all_of(ACL_BF16));
  run_and_check({42000, 200}, all_of(ACL_FLOAT16));
  run_and_check({4200, 1001}, all_of(ACL_FLOAT));
  // Of the stage several together, two, and one; or joined in registers.
  run_and_check({2100, 4095}, all_of(ACL_BF16));
  run_and_check({520, 8191}, all_of(ACL_FLOAT));
  run_and_check({261, 16383}, all_of(ACL_FLOAT));
  // More than what rows are gathered in.
  run_and_check({261, 20001}, all_of(ACL_FLOAT));
  run_and_check({261, 40001}, all_of(ACL_BF16));
  Options segmented = all_of(ACL_FLOAT);
  segmented.normalized = 2;
  for (const Dims& dims : {Dims{4200, 7, 143}, Dims{4200, 8, 128}}) {
    expect_like_contiguous(dims, segmented, {Form::kPadded, Form::kPermuted, Form::kContiguous});
    expect_like_contiguous(dims, segmented, {Form::kContiguous, Form::kPadded, Form::kPadded});
  }
}

// Rows of whole lines past the caches, in every dtype and on every target.
TEST(LayerNormBackward, StreamedLinesHaveTheSameBitsEverywhere) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
    SCOPED_TRACE(dtype_short_name(dtype));
    Problem problem({dtype == ACL_FLOAT ? 4200 : 8400, 1024}, all_of(dtype));
    ASSERT_TRUE(problem.run_it().ok());
    problem.expect_right(problem.exact());
    expect_same_bits_everywhere([&] { return problem.run_it(); },
                                {&problem.dx, &problem.dgamma, &problem.dbeta});
  }
}

// Rows that share lines and rows of whole ones, in each order that visits may have, on every
// target: a NaN, rows that take FP64, one whose mean is 0 and padding are among them.
TEST(LayerNormBackward, StreamedRowsBesideUnusualOnesAreRight) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const std::vector<std::pair<Dims, aclDataType>> cases = {
      {{135001, 33}, ACL_FLOAT},  {{290001, 31}, ACL_BF16}, {{145001, 63}, ACL_FLOAT16},
      {{66001, 64}, ACL_FLOAT},   {{44010, 192}, ACL_BF16}, {{8201, 1023}, ACL_FLOAT16},
      {{11001, 384}, ACL_FLOAT},  {{4103, 2112}, ACL_BF16}, {{3301, 1299}, ACL_FLOAT},
      {{3901, 1101}, ACL_FLOAT},  {{4103, 2201}, ACL_BF16}, {{3203, 2689}, ACL_BF16},
      {{3202, 2703}, ACL_FLOAT16}};
  for (const auto& [dims, dtype] : cases) {
    SCOPED_TRACE(std::to_string(dims[1]) + " columns");
    const auto rows = static_cast<size_t>(dims[0]);
    const size_t line = dtype == ACL_FLOAT ? 16 : 32;
    Options options = all_of(dtype);
    if (static_cast<size_t>(dims[1]) % line != 0) options.out = Arrangement::kOffset;
    Problem problem(dims, options);
    const auto cols = static_cast<size_t>(dims[1]);
    std::vector<double> x = problem.x.values(), dy = problem.dy.values();
    std::vector<double> mean = problem.mean.values();
    x[1000 * cols + 7] = std::numeric_limits<double>::quiet_NaN();
    for (size_t row : {size_t{2000}, size_t{2001}, rows - 1}) {
      mean[row] = 0.0;
      for (size_t c = 0; c < cols; ++c) {
        x[row * cols + c] *= dtype == ACL_FLOAT16 ? 0x1p-20 : 1e-38;
        dy[row * cols + c] *= dtype == ACL_FLOAT16 ? 0x1p-20 : 1e-38;
      }
    }
    mean[3000] = 0.0;
    for (size_t row = 2500; row < 2600; row += 3) {  // padding
      mean[row] = 0.0;
      std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(row * cols), cols, 0.0);
      std::fill_n(dy.begin() + static_cast<std::ptrdiff_t>((row + 1) * cols), cols, 0.0);
    }
    problem.x.fill(x);
    problem.dy.fill(dy);
    problem.mean.fill(mean);
    const Reference exact = problem.exact();
    const Tensor* const outputs[] = {&problem.dx, &problem.dgamma, &problem.dbeta};
    std::vector<std::vector<uint8_t>> bits;
    for_each_target([&](const std::string& target) {
      SCOPED_TRACE(target);
      ASSERT_TRUE(problem.run_it().ok());
      problem.expect_right(exact);
      EXPECT_TRUE(problem.dx.untouched_outside());
      for (size_t i = 0; i < std::size(outputs); ++i) {
        if (bits.size() < std::size(outputs)) bits.push_back(outputs[i]->bits());
        expect_same_bits("another target's", outputs[i]->bits(), bits[i]);
      }
    });
  }
}

// The same in place and with gaps between rows, or with one row for all.
TEST(LayerNormBackward, StreamedRowsInOtherViewsHaveTheSameBits) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  Options options = all_of(ACL_FLOAT);
  for (const Dims& in_place : {Dims{4401, 1024}, Dims{3301, 1299}, Dims{261, 20001}}) {
    SCOPED_TRACE(std::to_string(in_place[1]) + " columns");
    Problem apart(in_place, options);
    ASSERT_TRUE(apart.run_it().ok());
    for (const bool on_dy : {true, false}) {
      Problem same(in_place, options);
      const Tensor& out = on_dy ? same.dy : same.x;
      ASSERT_TRUE(same.run_it(out.handle()).ok());
      expect_same_bits("in place", out.bits(), apart.dx.bits());
      expect_same_bits("gradWeightOut", same.dgamma.bits(), apart.dgamma.bits());
    }
  }
  const Dims dims = {4401, 1024};
  Problem apart(dims, options);
  ASSERT_TRUE(apart.run_it().ok());
  options.dy_strides = {1040, 1};
  options.dx_strides = {1031, 1};
  Problem spaced(dims, options);
  ASSERT_TRUE(spaced.run_it().ok());
  expect_same_bits("with gaps", spaced.dx.bits(), apart.dx.bits());
  expect_same_bits("gradWeightOut", spaced.dgamma.bits(), apart.dgamma.bits());
  options.x_strides = {0, 1};
  options.dx_strides = {};
  Problem repeated(dims, options);
  ASSERT_TRUE(repeated.run_it().ok());
  expect_same_bits_everywhere([&] { return repeated.run_it(); },
                              {&repeated.dx, &repeated.dgamma, &repeated.dbeta});
}

// Wide rows pass in batches of a row block, or of half of one, where dx is wanted.
TEST(LayerNormBackward, BatchesOfWideRowsGiveTheSumsOfAllRows) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const auto& [dims, dtype] :
       {std::pair(Dims{40, 110001}, ACL_FLOAT), std::pair(Dims{50, 240001}, ACL_FLOAT),
        std::pair(Dims{75, 120001}, ACL_BF16)}) {
    SCOPED_TRACE(std::to_string(dims[1]) + " columns");
    Problem batched(dims, all_of(dtype));
    ASSERT_TRUE(batched.run_it().ok());
    batched.expect_right(batched.exact());
    Options without_dx = all_of(dtype);
    without_dx.want[0] = false;
    Problem together(dims, without_dx);
    ASSERT_TRUE(together.run_it().ok());
    expect_same_bits("dgamma", batched.dgamma.bits(), together.dgamma.bits());
    expect_same_bits("dbeta", batched.dbeta.bits(), together.dbeta.bits());
  }
}

TEST(LayerNormBackward, AMillionTermsAndConstantColumnsHoldTheTolerance) {
  // A row of two elements occupies sixteen threads of a GPU, which take minutes to emulate.
  const int64_t many = aclgrad_has_device_queues() ? 50000 : 1000000;
  for (const Dims& dims : {Dims{many, 2}, Dims{2, 1000000}}) {
    run_and_check(dims, Options());
    Problem constant(dims, Options());
    constant.dy.fill_constant(0.1);
    constant.x.fill_constant(1.1);
    constant.mean.fill_constant(1.0);
    constant.rstd.fill_constant(1.0);
    constant.gamma.fill_constant(1.0);
    ASSERT_TRUE(constant.run_it().ok());
    constant.expect_right(constant.exact());
  }
}

// The workspace that phase one plans for tensors whose addresses are not known yet.
uint64_t planned_workspace(int64_t rows, int64_t cols, aclDataType dtype, aclDataType dx_dtype,
                           const std::array<bool, 3>& want) {
  const auto tensor = [](std::vector<int64_t> dims, aclDataType type) {
    return aclCreateTensor(dims.data(), dims.size(), type, nullptr, 0, ACL_FORMAT_ND, dims.data(),
                           dims.size(), nullptr);
  };
  aclTensor* tensors[] = {tensor({rows, cols}, dtype),  tensor({rows, cols}, dtype),
                          tensor({rows, 1}, ACL_FLOAT), tensor({rows, 1}, ACL_FLOAT),
                          tensor({cols}, dtype),        tensor({rows, cols}, dx_dtype),
                          tensor({cols}, dtype),        tensor({cols}, dtype)};
  const auto [dy, x, mean, rstd, gamma, dx, dgamma, dbeta] = tensors;
  aclIntArray* normalized_shape = aclCreateIntArray(&cols, 1);
  aclBoolArray* mask = aclCreateBoolArray(want.data(), want.size());
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  require(
      aclnnLayerNormBackwardGetWorkspaceSize(dy, x, normalized_shape, mean, rstd, gamma, nullptr,
                                             mask, dx, dgamma, dbeta, &workspace, &executor),
      "aclnnLayerNormBackwardGetWorkspaceSize");
  require(aclSetAclOpExecutorRepeatable(executor), "aclSetAclOpExecutorRepeatable");
  require(aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor");
  for (aclTensor* each : tensors) aclDestroyTensor(each);
  aclDestroyIntArray(normalized_shape);
  aclDestroyBoolArray(mask);
  return workspace;
}

TEST(LayerNormBackward, LargeOperandsHaveAWorkspaceOfAtMostATwentiethOfThem) {
  // Chains and row numbers of a GPU take up to a sixth: its memory is not the limit.
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's plan";
  std::vector<std::pair<int64_t, int64_t>> shapes = {
      {8192, 4096}, {2048, 12288}, {32768, 768},  {200704, 192}, {400000, 64},  {1024, 20000},
      {2000, 8000}, {300, 60000},  {20, 600000},  {64, 200000},  {12000000, 1}, {40, 110000},
      {67, 200000}, {51, 240000},  {100, 240000}, {1, 33000001}, {2, 9000001},  {1000, 6000},
      {193, 65536}, {257, 65535},  {31, 2000001}, {35, 228592},  {8192, 2048},  {145, 55939}};
  const uint64_t seed = seed_of_test(20261129);
  SCOPED_TRACE(replay(seed));
  Random random(seed);
  for (int i = 0; i < 300; ++i) {
    const auto rows = static_cast<int64_t>(std::exp2(random.uniform(0, i % 2 == 0 ? 6 : 18)));
    shapes.emplace_back(rows, random.integer(6000000, 40000000) / rows);
  }
  for (const auto& [rows, cols] : shapes) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
      for (int outputs = 1; outputs < 8; ++outputs) {
        const std::array<bool, 3> want{(outputs & 1) != 0, (outputs & 2) != 0, (outputs & 4) != 0};
        for (const aclDataType dx : {dtype, ACL_BF16}) {
          const double element = dtype == ACL_FLOAT ? 4 : 2, dx_element = dx == ACL_FLOAT ? 4 : 2;
          const double operands = static_cast<double>(rows) * static_cast<double>(cols) *
                                  (2 * element + (want[0] ? dx_element : 0));
          if (operands < 64e6) continue;
          EXPECT_LE(20 * static_cast<double>(planned_workspace(rows, cols, dtype, dx, want)),
                    operands)
              << rows << "x" << cols << " " << dtype_short_name(dtype) << ", dx "
              << dtype_short_name(dx) << ", outputs " << outputs;
        }
      }
    }
  }
}

// Without dx a slab's totals are more beside 16-bit operands, and there is memory for fewer of them
// at a time than there are slabs: the same bits, by however many threads.
TEST(LayerNormBackward, FewerRegionsThanSlabsGiveTheSameBits) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's plan";
  const Dims dims = {4101, 8001};
  Problem all(dims, all_of(ACL_BF16));
  const Outcome with_dx = all.run_it();
  ASSERT_TRUE(with_dx.ok()) << with_dx;
  for (const bool dgamma : {true, false}) {
    Options options = all_of(ACL_BF16);
    options.want[0] = false;
    options.want[1] = dgamma;
    Problem problem(dims, options);
    const Outcome outcome = problem.run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    EXPECT_LT(outcome.workspace_size, with_dx.workspace_size);
    expect_same_bits("gradBiasOut", problem.dbeta.bits(), all.dbeta.bits());
    if (dgamma) expect_same_bits("gradWeightOut", problem.dgamma.bits(), all.dgamma.bits());
    expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.dbeta});
  }
}

// gamma of a few long rows is prepared panel by panel: the bits of each row alone, for which it is
// prepared at once. One of them takes FP64.
TEST(LayerNormBackward, GammaByPanelGivesTheSameBits) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's plan";
  const auto row_of = [](const Tensor& from, int64_t row, Tensor& to) {
    const std::vector<double> values = from.values();
    const auto begin = values.begin() + row * to.numel();
    to.fill({begin, begin + to.numel()});
  };
  for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
    const int64_t cols = dtype == ACL_FLOAT ? 2700003 : 5400003;
    std::vector<std::optional<aclDataType>> kinds = {dtype};
    if (dtype == ACL_BF16) kinds.insert(kinds.end(), {ACL_FLOAT, std::nullopt});
    for (const std::optional<aclDataType>& gamma : kinds) {
      SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", gamma " +
                   (gamma ? dtype_short_name(*gamma) : "absent"));
      Options options = all_of(dtype);
      options.gamma = gamma;
      Problem problem({2, cols}, options);
      std::vector<double> x = problem.x.values(), dy = problem.dy.values();
      for (size_t i = x.size() / 2; i < x.size(); ++i) {
        x[i] *= dtype == ACL_FLOAT16 ? 0x1p-20 : 1e-38;
        dy[i] *= dtype == ACL_FLOAT16 ? 0x1p-20 : 1e-38;
      }
      problem.x.fill(x);
      problem.dy.fill(dy);
      problem.mean.fill({problem.mean.values()[0], 0.0});
      const Outcome outcome = problem.run_it();
      ASSERT_TRUE(outcome.ok()) << outcome;
      EXPECT_LT(outcome.workspace_size, static_cast<uint64_t>(cols));
      if (gamma == dtype) problem.expect_right(problem.exact());
      const std::vector<uint8_t> bits = problem.dx.bits();
      for (int64_t row = 0; row < 2; ++row) {
        Problem alone({1, cols}, options);
        row_of(problem.x, row, alone.x);
        row_of(problem.dy, row, alone.dy);
        row_of(problem.mean, row, alone.mean);
        row_of(problem.rstd, row, alone.rstd);
        alone.gamma.fill(problem.gamma.values());
        const Outcome at_once = alone.run_it();
        ASSERT_TRUE(at_once.ok()) << at_once;
        EXPECT_GT(at_once.workspace_size, static_cast<uint64_t>(4 * cols));
        const auto begin = bits.begin() + row * std::ssize(bits) / 2;
        expect_same_bits("gradInputOut", {begin, begin + std::ssize(bits) / 2}, alone.dx.bits());
      }
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

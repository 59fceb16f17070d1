// SPDX-License-Identifier: Apache-2.0
// LayerNorm of outputs that do not fit the caches: stores past them, rows that share lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/layer_norm/test_problem.h"
#include "runtime/services.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

// Outputs beyond the cache are written past it, but for the ends of rows whose lines are not whole.
// Every row is shown to be what the same row gives on its own.
void expect_bits_of_single_rows(aclDataType dtype, int64_t rows, int64_t cols,
                                Arrangement arrangement) {
  Tensor x({rows, cols}, dtype, arrangement);
  Tensor y({rows, cols}, dtype, arrangement);
  Tensor weight({cols}, dtype), bias({cols}, dtype);
  Random random(7);
  const auto numbers = [&](const Tensor& tensor, int64_t count) {  // 2^-3 to 2^2, of either sign
    std::vector<uint8_t> bytes(static_cast<size_t>(count) * tensor.element_size());
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(random.bits());
      if (i % tensor.element_size() == tensor.element_size() - 1) {
        bytes[i] = bytes[i] % 2 != 0 ? 0x3F : 0xBE;
      }
    }
    return bytes;
  };
  const std::vector<uint8_t> bytes = numbers(x, rows * cols);
  x.fill_bits(bytes);
  weight.fill_bits(numbers(weight, cols));
  bias.fill_bits(numbers(bias, cols));
  const IntArray normalized({cols});
  const auto layer_norm = [&](const Tensor& from, const Tensor& to) {
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnLayerNormGetWorkspaceSize(from.handle(), normalized.handle(), weight.handle(),
                                                bias.handle(), 1e-5, to.handle(), nullptr, nullptr,
                                                size, executor);
        },
        aclnnLayerNorm);
  };
  ASSERT_TRUE(layer_norm(x, y).ok());
  EXPECT_TRUE(y.untouched_outside());
  const std::vector<uint8_t> all = y.bits();
  const auto row_bytes = static_cast<std::ptrdiff_t>(static_cast<size_t>(cols) * x.element_size());
  for (const int64_t row :
       {int64_t{0}, int64_t{1}, int64_t{31}, int64_t{32}, int64_t{777}, rows / 2, rows - 1}) {
    if (row >= rows) continue;
    Tensor one_x({1, cols}, dtype), one_y({1, cols}, dtype);
    one_x.fill_bits({bytes.begin() + row * row_bytes, bytes.begin() + (row + 1) * row_bytes});
    ASSERT_TRUE(layer_norm(one_x, one_y).ok());
    expect_same_bits("row " + std::to_string(row),
                     {all.begin() + row * row_bytes, all.begin() + (row + 1) * row_bytes},
                     one_y.bits());
  }
}

TEST(LayerNorm, LargeOutputsHaveTheBitsOfSmallOnes) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const aclDataType dtype : kFloats) {
    // An odd number of them, beyond the 16 MiB from which outputs stream.
    const auto rows = [&](int64_t cols) {
      return (int64_t{17} << 20) / (cols * int64_t{dtype == ACL_FLOAT ? 4 : 2}) | 1;
    };
    for (const int64_t cols : {1003, 4113}) {
      expect_bits_of_single_rows(dtype, rows(cols), cols, Arrangement::kOffset);
    }
    for (const int64_t cols : {768, 8224, 8, 24, 33, 48, 63, 64, 80, 97, 112, 128}) {
      expect_bits_of_single_rows(dtype, rows(cols), cols, Arrangement::kContiguous);
    }
  }
  // Wide: some batches of rows, and one of all of them.
  expect_bits_of_single_rows(ACL_BF16, 30, 300001, Arrangement::kOffset);
  expect_bits_of_single_rows(ACL_FLOAT16, 3, 2200000, Arrangement::kContiguous);
}

// Of more than a panel, and the rest of a panel under a vector.
TEST(LayerNorm, LargeLongRowsThatAreNotWholeLines) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const aclDataType dtype : kFloats) {
      expect_bits_of_single_rows(dtype, 1101, 8199, Arrangement::kOffset);
    }
    expect_bits_of_single_rows(ACL_FLOAT, 2201, 2049, Arrangement::kContiguous);
  });
}

// Short rows beyond the cache, whose slabs are written by several threads at once: rows of whole
// registers but not of whole steps (FP32 72), of both, and of neither.
TEST(LayerNorm, LargeShortRowsHaveTheSameBitsOnAnyNumberOfThreads) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const std::pair<aclDataType, int64_t> kinds[] = {{ACL_FLOAT, 72},    {ACL_FLOAT, 80},
                                                   {ACL_FLOAT, 63},    {ACL_FLOAT16, 112},
                                                   {ACL_FLOAT16, 120}, {ACL_BF16, 99}};
  for (const auto& [dtype, cols] : kinds) {
    SCOPED_TRACE(std::to_string(cols) + " columns");
    const int64_t rows = (int64_t{17} << 20) / (cols * int64_t{dtype == ACL_FLOAT ? 4 : 2});
    Problem problem({rows, cols}, all_of(dtype));
    problem.run_and_check();
    expect_same_bits_everywhere([&] { return problem.run_it(); },
                                {&problem.y, &problem.mean, &problem.rstd});
  }
}

// FP32 rows that share lines, beyond the cache; two of them are not ordinary.
void expect_rows_that_share_lines(int64_t rows, int64_t cols, Arrangement out) {
  SCOPED_TRACE(std::to_string(cols) + " columns");
  Options options = all_of(ACL_FLOAT);
  options.out = out;
  Problem problem({rows, cols}, options);
  std::vector<double> x = problem.x.values();
  x[static_cast<size_t>(1000 * cols + 7)] = std::numeric_limits<double>::quiet_NaN();
  std::fill_n(x.begin() + 1001 * cols, cols, 3e38);
  problem.x.fill(x);
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    problem.run_and_check();
  });
}
TEST(LayerNorm, LargeRowsThatAreNotWholeLines) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  expect_rows_that_share_lines(20003, 259, Arrangement::kOffset);
}
// Sixteen of them are whole lines.
TEST(LayerNorm, LargeShortRowsThatAreNotWholeLines) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  expect_rows_that_share_lines(190003, 24, Arrangement::kContiguous);
  expect_rows_that_share_lines(190003, 24, Arrangement::kOffset);
  expect_rows_that_share_lines(130003, 41, Arrangement::kContiguous);
  // Each is, and goes the same way on some machines.
  expect_rows_that_share_lines(140003, 32, Arrangement::kContiguous);
}

// Some forty rows so long that gamma and beta as FP32 would be more than 5 % of x and y: each task
// prepares them for its panels.
TEST(LayerNorm, WeightsOfFewLongRowsTakeLittleWorkspace) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's plan";
  for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16}) {
    const auto tensor = [](std::vector<int64_t> dims, aclDataType type) {
      return aclCreateTensor(dims.data(), dims.size(), type, nullptr, 0, ACL_FORMAT_ND, dims.data(),
                             dims.size(), nullptr);
    };
    for (int64_t rows = 30; rows < 45; ++rows) {
      const int64_t element = dtype == ACL_FLOAT ? 4 : 2;
      for (int64_t cols = 32000000 / rows / element + 1; cols < 1200000; cols += 250001) {
        aclTensor* tensors[] = {tensor({rows, cols}, dtype), tensor({cols}, dtype),
                                tensor({cols}, dtype), tensor({rows, cols}, dtype)};
        const auto [x, gamma, beta, y] = tensors;
        aclIntArray* shape = aclCreateIntArray(&cols, 1);
        uint64_t workspace = 0;
        aclOpExecutor* executor = nullptr;
        require(aclnnLayerNormGetWorkspaceSize(x, shape, gamma, beta, 1e-5, y, nullptr, nullptr,
                                               &workspace, &executor),
                "aclnnLayerNormGetWorkspaceSize");
        EXPECT_LE(static_cast<int64_t>(20 * workspace), 2 * element * rows * cols)
            << dtype_short_name(dtype) << " " << rows << "x" << cols;
        require(aclSetAclOpExecutorRepeatable(executor), "aclSetAclOpExecutorRepeatable");
        require(aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor");
        for (aclTensor* each : tensors) aclDestroyTensor(each);
        aclDestroyIntArray(shape);
      }
    }
  }
  expect_bits_of_single_rows(ACL_BF16, 36, 450001, Arrangement::kContiguous);
  expect_bits_of_single_rows(ACL_BF16, 44, 450001, Arrangement::kContiguous);
}

TEST(LayerNorm, AMillionTermsHoldTheTolerance) {
  // A row of five elements occupies 32 threads of a GPU, which take minutes to emulate.
  const int64_t many = aclgrad_has_device_queues() ? 20000 : 200000;
  for (const Dims& dims : {Dims{many, 5}, Dims{2, 1000000}}) {
    Problem problem(dims, Options());
    problem.run_and_check();
    problem.x.fill_constant(0.1);
    problem.run_and_check();
  }
}

}  // namespace
}  // namespace aclgrad::test

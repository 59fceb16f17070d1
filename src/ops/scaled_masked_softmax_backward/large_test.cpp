// SPDX-License-Identifier: Apache-2.0
// ScaledMaskedSoftmaxBackward of outputs that do not fit the caches, and long rows.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ops/scaled_masked_softmax_backward/test_problem.h"
#include "runtime/services.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

Outcome run_slice(const PlainRows& dy, const PlainRows& y, const PlainRows& mask,
                  const PlainRows& out, int64_t first, int64_t count) {
  aclTensor* tensors[] = {dy.slice(first, count), y.slice(first, count), mask.slice(first, count),
                          out.slice(0, count)};
  Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
            tensors[0], tensors[1], tensors[2], 0.3, false, tensors[3], size, executor);
      },
      aclnnScaledMaskedSoftmaxBackward);
  for (aclTensor* tensor : tensors) static_cast<void>(aclDestroyTensor(tensor));
  return outcome;
}

// Outputs that do not fit the cache are written past it, in whole lines: the same bits as from a
// few rows at a time, and nothing else is touched.
TEST(ScaledMaskedSoftmaxBackward, AnOutputLargerThanTheCacheHasTheBitsOfItsRows) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  const Dims widths = {1, 7, 16, 23, 100, 1001, 4096};
  for (const int64_t cols : widths) {
    for (const aclDataType dtype : kFloats) {
      const int64_t count = rows_beyond_the_cache(cols, dtype);
      for (const int64_t lead : {0, 3}) {
        SCOPED_TRACE(std::string(dtype_short_name(dtype)) + ", S2 " + std::to_string(cols) +
                     ", offset " + std::to_string(lead));
        const PlainRows dy(count, cols, dtype, 0, 1), y(count, cols, dtype, 0, 2);
        const PlainRows mask(count, cols, ACL_BOOL, 0, 3), out(count, cols, dtype, lead, 4);
        const auto run_rows = [&](const PlainRows& to, int64_t first, int64_t rows) {
          return run_slice(dy, y, mask, to, first, rows);
        };
        const std::vector<uint8_t> bits = expect_bits_of_rows(out, count, run_rows);
        if (lead == 0) {
          ASSERT_TRUE(run_rows(y, 0, count).ok());
          EXPECT_TRUE(y.now() == bits) << "in place of y";
          const PlainRows same(count, cols, dtype, 0, 2);  // as y was
          ASSERT_TRUE(run_slice(dy, same, mask, dy, 0, count).ok());
          EXPECT_TRUE(dy.now() == bits) << "in place of dy";
          continue;
        }
        for_each_target([&](const std::string& name) {
          ASSERT_TRUE(run_rows(out, 0, count).ok());
          EXPECT_EQ(std::memcmp(out.now().data(), bits.data(), bits.size()), 0) << name;
        });
      }
    }
  }
}

// The same of rows with a NaN or Inf and of rows that take FP64 (but for FP16, which has none),
// which take no turns with the rows beside them, or stand among eight that are written together.
TEST(ScaledMaskedSoftmaxBackward, UnusualRowsOfALargeOutputAreRight) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's caches";
  for (const auto& [dtype, cols] : {std::pair<aclDataType, size_t>{ACL_FLOAT, 1024},
                                    {ACL_BF16, 1024},
                                    {ACL_FLOAT, 1001},
                                    {ACL_BF16, 1001},
                                    {ACL_FLOAT16, 1001},
                                    {ACL_BF16, 100},
                                    {ACL_FLOAT16, 100}}) {
    const auto rows = static_cast<size_t>(rows_beyond_the_cache(static_cast<int64_t>(cols), dtype));
    SCOPED_TRACE(dtype_short_name(dtype));
    Problem problem({1, 1, static_cast<int64_t>(rows), static_cast<int64_t>(cols)}, all_of(dtype));
    std::vector<double> dy = problem.dy.values(), y = problem.y.values();
    dy[100 * cols + 5] = std::numeric_limits<double>::quiet_NaN();
    dy[103 * cols - 1] = std::numeric_limits<double>::infinity();
    for (const size_t row : {size_t{0}, size_t{1000}, size_t{1001}, rows - 2, rows - 1}) {
      for (size_t c = 0; c < cols; ++c) {
        dy[row * cols + c] *= 1e-30;
        y[row * cols + c] = 30.0;
      }
    }
    problem.dy.fill(dy);
    problem.y.fill(y);
    ASSERT_TRUE(problem.run_it().ok());
    problem.expect_right();
    expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.dx});
  }
}

TEST(ScaledMaskedSoftmaxBackward, AMillionRowsAndConstantRowsHoldTheTolerance) {
  run_and_check({1, 1, 1000000, 3}, Options());
  for (const int64_t cols : {16, 1024, 4096}) {
    for (const aclDataType dtype : kFloats) {
      Problem constant({1, 1, 2, cols}, all_of(dtype));
      constant.dy.fill_constant(0.1);
      constant.y.fill_constant(0.1);
      ASSERT_TRUE(constant.run_it().ok());
      constant.expect_right();
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

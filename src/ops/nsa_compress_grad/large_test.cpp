// SPDX-License-Identifier: Apache-2.0
// NsaCompressGrad of operands that do not fit the caches: stores past them, long sums, many
// sequences, small workspaces.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/nsa_compress_grad/test_problem.h"
#include "runtime/services.h"
#include "support/random.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

// So many visits to a slab that a GPU's blocks have their sums of dw in shared memory several times
// over.
TEST(NsaCompressGrad, BlocksOfManyVisits) {
  for (const aclDataType dtype : kFloats) {
    Problem({3000, 2, 32, 1040, 528, {}}, dtype).run_and_check();
    Problem({9000, 1, 16, 32, 16, {}}, dtype).run_and_check();
  }
}

// More than half of a usual last-level cache: dx is written past the caches, straight away where
// all its rows are whole lines, or half ones of one head that follow each other, else through a
// buffer, a few heads at a time. One row stands for all of x, one for all of dy, so that only dx
// takes memory; and so a small problem, whose dx stays in the caches, has the rows that the first
// sequence of the large one must have.
TEST(NsaCompressGrad, OutputsThatBypassTheCaches) {
  constexpr int64_t kFirst = 4000;  // tokens of the first sequence
  struct Shape {
    int64_t heads, width, window;
  };
  // 11x48: ten heads leave together, visited five by five. 10x16: two heads make a line, of 3x16
  // they do not.
  for (const auto& [heads, width, window] : {Shape{2, 128, 32},
                                             {3, 48, 32},
                                             {11, 48, 48},
                                             {10, 16, 32},
                                             {3, 16, 64},
                                             {1, 16, 32},
                                             {5, 32, 32},
                                             {2, 272, 32}}) {
    // A GPU has no such way past its caches: an emulated one need not be kept busy for minutes.
    const int64_t elements = aclgrad_has_device_queues() ? 2400000 : 9300000;
    const int64_t tokens = elements / (heads * width);
    for (const aclDataType dtype : kFloats) {
      SCOPED_TRACE(std::to_string(heads) + "x" + std::to_string(width));
      const Dims weights = {window, heads};
      Tensor w(weights, dtype);
      w.fill_normal(2);
      Tensor row({1, heads, width}, dtype);
      const std::vector<double> row_values = row.fill_uniform(1, -1.0, 1.0).values();
      const auto repeated = [&, heads = heads, width = width](int64_t count) {
        Tensor tensor = Tensor::broadcast({count, heads, width}, dtype, {0});
        std::vector<double> values(static_cast<size_t>(tensor.numel()));
        for (size_t i = 0; i < values.size(); ++i) values[i] = row_values[i % row_values.size()];
        tensor.fill(values);
        return tensor;
      };
      const Tensor x = repeated(tokens), few_x = repeated(kFirst);
      const auto run_on = [&, window = window](const Tensor& from, const Tensor& dx,
                                               const Tensor& dw, const Dims& ends) {
        const int64_t rows = dx.dims()[0];
        const Tensor dy = repeated(std::ssize(window_starts(rows, window, 16, ends)));
        const IntArray array(ends);
        const Outcome outcome = run(
            [&](uint64_t* size, aclOpExecutor** executor) {
              return aclnnNsaCompressGradGetWorkspaceSize(dy.handle(), from.handle(), w.handle(),
                                                          array.handle(), window, 16, 0, nullptr,
                                                          dx.handle(), dw.handle(), size, executor);
            },
            aclnnNsaCompressGrad);
        ASSERT_TRUE(outcome.ok()) << outcome;
      };
      const auto run_into = [&](const Tensor& dx, const Tensor& dw, const Dims& ends) {
        run_on(dx.dims()[0] == tokens ? x : few_x, dx, dw, ends);
      };
      const Tensor small({kFirst, heads, width}, dtype), small_dw(weights, dtype);
      run_into(small, small_dw, {kFirst});
      const std::vector<uint8_t> first = small.bits();

      const Dims rows = {tokens, heads, width}, ends = {kFirst, tokens - 10};
      const Tensor other(rows, dtype, Arrangement::kOffset), other_dw(weights, dtype);
      run_into(other, other_dw, ends);
      const std::vector<uint8_t> dx_bits = other.bits(), dw_bits = other_dw.bits();
      expect_same_bits("inputGradOut of the first sequence",
                       {dx_bits.begin(), dx_bits.begin() + std::ssize(first)}, first);
      const Tensor padded(rows, dtype, Arrangement::kRowPadded);
      Tensor dw(weights, dtype);
      run_into(padded, dw, ends);
      expect_same_bits("padded inputGradOut", padded.bits(), dx_bits);
      expect_same_bits("weightGradOut", dw.bits(), dw_bits);
      const Tensor large(rows, dtype);
      for_each_target([&](const std::string& name) {
        run_into(large, dw, ends);
        expect_same_bits(name + " inputGradOut", large.bits(), dx_bits);
        expect_same_bits(name + " weightGradOut", dw.bits(), dw_bits);
      });
      if (width % 32 != 0 && !aclgrad_has_device_queues()) {  // half lines
        const Tensor reversed(rows, dtype, Arrangement::kReversedRows);
        run_into(reversed, dw, ends);
        expect_same_bits("reversed inputGradOut", reversed.bits(), dx_bits);
        Tensor same(rows, dtype);
        same.fill(x.values());
        dw.poison();
        run_on(same, same, dw, ends);
        expect_same_bits("inputGradOut in place", same.bits(), dx_bits);
        expect_same_bits("weightGradOut in place", dw.bits(), dw_bits);
        EXPECT_TRUE(reversed.untouched_outside() && same.untouched_outside());
      }
      EXPECT_TRUE(large.untouched_outside() && padded.untouched_outside() &&
                  other.untouched_outside());
    }
  }
}

// Phase one only: the tensors have no addresses yet.
TEST(NsaCompressGrad, WorkspaceOfLargeProblemsIsSmall) {
  std::vector<Case> shapes = {{65536, 4, 128, 32, 16, {}},
                              {65536, 4, 128, 128, 16, {}},
                              {1 << 20, 1, 64, 64, 32, {}},
                              {1 << 22, 1, 16, 1024, 16, {}},
                              {2048, 128, 192, 32, 16, {}}};
  // Windows as long as the data, whose heads pass in batches; not on a GPU.
  if (!aclgrad_has_device_queues()) {
    shapes.insert(shapes.end(), {{65536, 16, 16, 65536, 16, {}},
                                 {64815, 22, 16, 55248, 32, {}},
                                 {12184, 50, 32, 11056, 208, {}},
                                 {38178, 46, 16, 14816, 64, {}},
                                 // Windows leave tokens out.
                                 {55244, 19, 16, 44448, 33328, {}},
                                 {60000, 10, 32, 36000, 30000, {}}});
  }
  for (const Case& shape : shapes) {
    const int64_t windows = (shape.tokens - shape.window) / shape.step + 1;
    const auto made = [](const Dims& dims) {
      return aclCreateTensor(dims.data(), dims.size(), ACL_BF16, nullptr, 0, ACL_FORMAT_ND, nullptr,
                             0, nullptr);
    };
    const Dims rows = {shape.tokens, shape.heads, shape.width},
               weights = {shape.window, shape.heads};
    aclTensor* tensors[] = {made({windows, shape.heads, shape.width}), made(rows), made(weights),
                            made(rows), made(weights)};
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnNsaCompressGradGetWorkspaceSize(tensors[0], tensors[1], tensors[2], nullptr,
                                                   shape.window, shape.step, 0, nullptr, tensors[3],
                                                   tensors[4], &size, &executor),
              0)
        << take_message();
    const double operands =
        2.0 * static_cast<double>((2 * shape.tokens + windows) * shape.heads * shape.width);
    EXPECT_LE(static_cast<double>(size), 0.05 * operands) << describe(shape, ACL_BF16);
    EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
    for (aclTensor* tensor : tensors) EXPECT_EQ(aclDestroyTensor(tensor), 0);
  }
}

// Windows so long that FP64 sums for all heads would be 15 % of the operands: a few heads at a
// time, all of which have the tokens behind the last window in common.
TEST(NsaCompressGrad, HeadsInBatchesAreRight) {
  if (aclgrad_has_device_queues()) GTEST_SKIP() << "of the CPU's plan";
  Problem problem({66304, 17, 16, 60000, 2000, {}}, ACL_BF16, {.dx = Arrangement::kRowPadded});
  const Outcome outcome = problem.run_it();
  ASSERT_TRUE(outcome.ok()) << outcome;
  EXPECT_LE(outcome.workspace_size, problem.x.storage_bytes() / 10);
  problem.expect_right();
  EXPECT_TRUE(problem.dx.untouched_outside());
  const KeptBits kept({&problem.dx, &problem.dw});
  for_each_thread_count({3}, [&](int) {
    kept.poison();
    ASSERT_TRUE(problem.run_it().ok());
    kept.expect("dx and dw");
  });
}

TEST(NsaCompressGrad, AMillionTermsAndConstantsHoldTheTolerance) {
  for (const aclDataType dtype : kFloats) {
    Problem problem({1000000, 1, 16, 32, 16, {}}, dtype);  // 62500 windows, 16 terms in each
    if (dtype == ACL_BF16) problem.run_and_check();
    Problem wide({2000, 1, 1024, 64, 16, {}}, dtype);
    Problem chains({6000, 1, 16, 4096, 16, {}}, dtype);  // 256 windows a token
    for (Problem* each : {&problem, &wide, &chains}) {
      each->dy.fill_constant(0.1);
      each->x.fill_constant(0.1);
      each->w.fill_constant(0.1);
      each->run_and_check();
    }
  }
}

TEST(NsaCompressGrad, AHundredThousandSequences) {
  Random random(5);
  std::vector<int64_t> ends(100000);
  int64_t end = 0;
  for (int64_t& each : ends) {
    each = end += random.chance(0.1) ? random.integer(30, 50) : random.integer(0, 3);
  }
  Problem problem({end + 3, 1, 16, 32, 16, ends}, ACL_BF16);
  ASSERT_GT(problem.starts.size(), 8000u);
  problem.run_and_check();
}

}  // namespace
}  // namespace aclgrad::test

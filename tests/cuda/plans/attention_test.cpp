// SPDX-License-Identifier: Apache-2.0
// Of the launches of the softmaxes on a GPU: every element of a row is one thread's, neighbours
// that are taken together are a thread's, and every row is some block's.
#include "cuda/plans/covered.h"
#include "kernels/cuda/attention_plan.h"
#include "ops/scaled_masked_softmax/cases.h"
#include "ops/scaled_masked_softmax/plan.h"
#include "ops/scaled_masked_softmax/tree.h"
#include "ops/scaled_masked_softmax_backward/cases.h"
#include "ops/scaled_masked_softmax_backward/plan.h"

namespace aclgrad::test {
namespace {

using cuda::AttentionPlan;
using cuda::AttentionTuning;

// Whether a thread's two places are neighbours, and the elements that stand together behind the
// whole ones.
struct Kernel {
  const char* name;
  const AttentionTuning& tuning;
  int group;
  bool paired;
};
const Kernel kKernels[] = {
    {"forward", scaled_masked_softmax::kTuning, scaled_masked_softmax::kPairCols, true},
    {"backward", scaled_masked_softmax_backward::kTuning, cuda::kVector, true},
    {"backward, one by one", scaled_masked_softmax_backward::kTuning, cuda::kVector, false}};

int element_of(const Kernel& kernel, int cols, int part, int step, int lane, int k) {
  const int strip = part * static_cast<int>(kChain) + step;
  const int place = cuda::place_in_strip(kernel.paired, lane, k);
  return cuda::element_in_groups(cols, kernel.group, strip * cuda::kStrip + place);
}

void expect_row(const Kernel& kernel, int cols) {
  const AttentionPlan plan = cuda::plan_attention(kernel.tuning, 1, cols);
  const std::string name = std::string(kernel.name) + ", " + std::to_string(cols) + " columns";
  Covered row(cols);
  if (plan.width > 0) {
    EXPECT_EQ(cuda::kWarpLanes % plan.width, 0) << name;
    for (int lane = 0; lane < plan.width; ++lane) {
      if (lane < cols) row.take(lane);
    }
  }
  for (int part = 0; plan.width == 0 && part < plan.warps_of_row; ++part) {
    for (int step = 0; step < plan.steps; ++step) {
      for (int lane = 0; lane < cuda::kWarpLanes; ++lane) {
        const int first = element_of(kernel, cols, part, step, lane, 0);
        const int second = element_of(kernel, cols, part, step, lane, 1);
        if (first >= 0) row.take(first);
        if (second >= 0) row.take(second);
        if (!kernel.paired || cols % 2 != 0) continue;
        EXPECT_EQ(second, first < 0 ? -1 : first + 1) << name;
        EXPECT_NE(first % 2, 1) << name;
      }
    }
  }
  row.expect_each_once(name);
}

TEST(AttentionPlan, EveryElementOfARowOnce) {
  for (const Kernel& kernel : kKernels) {
    for (int cols = 1; cols <= scaled_masked_softmax::kMaxCols; cols += cols < 300 ? 1 : 7) {
      expect_row(kernel, cols);
    }
    for (const int cols : {1023, 1024, 1025, 2048, 2049, 4095, 4096}) expect_row(kernel, cols);
  }
}

void expect_rows(const Kernel& kernel, int64_t rows, int64_t cols) {
  const AttentionPlan plan = cuda::plan_attention(kernel.tuning, rows, cols);
  const std::string name =
      std::string(kernel.name) + ", " + std::to_string(rows) + "x" + std::to_string(cols);
  int64_t at_once = plan.launch.threads / cuda::kWarpLanes;
  if (plan.width > 0) at_once *= cuda::kWarpLanes / plan.width;
  if (plan.warps_of_row > 1) {
    EXPECT_EQ(plan.warps_of_row, at_once) << name;
    at_once = 1;
  }
  expect_launch(plan.launch, rows, at_once, name);
}

TEST(AttentionPlan, EveryRowOnce) {
  for (const Kernel& kernel : kKernels) {
    for (const auto& shape : scaled_masked_softmax::test_shapes()) {
      expect_rows(kernel, shape.batches * shape.heads * shape.rows, shape.cols);
    }
    for (const auto& shape : scaled_masked_softmax_backward::test_shapes()) {
      expect_rows(kernel, shape.batches * shape.heads * shape.rows, shape.cols);
    }
    for (const auto& shapes :
         {scaled_masked_softmax::bench_shapes(), scaled_masked_softmax_backward::bench_shapes()}) {
      for (const std::string& shape : shapes) {
        const auto [batches, heads, rows, cols] = numbers_of<4>(shape);
        expect_rows(kernel, batches * heads * rows, cols);
      }
    }
    for (const int64_t cols : {1, 9, 20, 100, 1000, 4096}) {
      expect_rows(kernel, (int64_t{1} << 31) + 3, cols);
      expect_rows(kernel, int64_t{1} << 50, cols);
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

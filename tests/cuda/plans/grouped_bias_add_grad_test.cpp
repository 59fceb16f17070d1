// SPDX-License-Identifier: Apache-2.0
// Of the launches of GroupedBiasAddGrad on a GPU: every column and every row of a group is some
// thread's once, and what a block shares fits.
#include "base/dtype.h"
#include "cuda/plans/covered.h"
#include "ops/grouped_bias_add_grad/cases.h"
#include "ops/grouped_bias_add_grad/plan.h"

namespace aclgrad::test {
namespace {

using namespace grouped_bias_add_grad;

constexpr aclDataType kDtypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

struct Shape {
  int64_t groups, rows, cols;
  bool has_ends;
};
std::string name_of(const Shape& shape, aclDataType dtype, bool aligned) {
  return std::to_string(shape.groups) + "x" + std::to_string(shape.rows) + "x" +
         std::to_string(shape.cols) + (shape.has_ends ? " with ends, " : ", ") +
         dtype_short_name(dtype) + (aligned ? ", aligned" : "");
}

// Rows of a group by the lanes of a unit.
void expect_rows_once(const Shape& shape, const CudaPlan& plan, const std::string& name) {
  const int bits = std::countr_zero(static_cast<uint64_t>(plan.fold));
  Covered rows(shape.rows);
  for (int64_t chain = 0; chain < plan.chains; ++chain) {
    for (int64_t row = 0; row < plan.fold; ++row) {
      const int64_t first = chain * kChainRows * plan.fold;
      const int64_t count = rows_of_lane(shape.rows, first, row, bits);
      for (int64_t i = 0; i < count; ++i) rows.take(first + row + i * plan.fold);
    }
  }
  rows.expect_each_once(name);
}

void expect_plan(const Shape& shape, aclDataType dtype, bool aligned) {
  const auto size = static_cast<int64_t>(dtype_size(dtype));
  if (aligned && shape.cols * size % kCudaTuning.access_bytes != 0) return;
  const std::string name = name_of(shape, dtype, aligned);
  Problem problem;
  problem.groups = shape.groups;
  problem.rows = shape.rows;
  problem.cols = shape.cols;
  problem.dy.dtype = dtype;
  problem.ends.dtype = shape.has_ends ? ACL_INT64 : ACL_DT_UNDEFINED;
  Plan cut;
  cut.block_rows = block_rows(shape.cols, size);
  cut.partial_rows = shape.rows > cut.block_rows ? 1 : 0;
  const CudaPlan plan = plan_cuda(problem, cut, aligned);

  EXPECT_GE(plan.tiles * plan.tile_cols, shape.cols) << name;
  EXPECT_LT((plan.tiles - 1) * plan.tile_cols, shape.cols) << name;
  const int64_t width = plan.wide ? kCudaTuning.access_bytes / size : 1;
  EXPECT_EQ(plan.tile_cols % width, 0) << name;
  EXPECT_LE(kCudaTuning.sums * int64_t{sizeof(float)}, int64_t{cuda::kSharedBytes});
  if (plan.form == Form::kRows) {
    EXPECT_LE(plan.tile_cols, kCudaTuning.sums) << name;
    EXPECT_LE(plan.tile_cols, int64_t{kCudaTuning.threads} * kCudaTuning.own_cols) << name;
    // Short rows are one block's.
    if (shape.cols <= kShortRow) {
      EXPECT_EQ(plan.tiles, 1) << name;
    }
  }
  if (plan.form != Form::kRows && plan.form != Form::kLongRows) {
    EXPECT_EQ(plan.tiles, 1) << name;
    EXPECT_LE(plan.fold * shape.cols, plan.unit) << name;
    EXPECT_EQ(static_cast<int>(kCudaTuning.threads) % plan.unit, 0) << name;
    if (shape.rows < 100000) expect_rows_once(shape, plan, name);
  }
  int64_t at_once = 1;
  int64_t pieces = expected_items(problem, cut) * plan.tiles;
  if (plan.form == Form::kShortGroups || plan.form == Form::kFewRows) {
    at_once = static_cast<int>(kCudaTuning.threads) / plan.unit;
    if (plan.form == Form::kFewRows) at_once *= kCudaTuning.groups_at_once;
    pieces = shape.groups;
  }
  expect_launch(plan.sums, pieces, at_once, name);
}

void expect_plans(const Shape& shape) {
  for (const aclDataType dtype : kDtypes) {
    for (const bool aligned : {false, true}) expect_plan(shape, dtype, aligned);
  }
}

TEST(GroupedBiasAddGradPlan, EveryRowAndColumnOnce) {
  for (const Case& each : test_cases()) {
    int64_t rows = 0;
    for (const int64_t size : each.sizes) rows += size;
    expect_plans({static_cast<int64_t>(each.sizes.size()), rows, each.cols, true});
  }
  for (const std::vector<int64_t>& shape : equal_cases()) {
    expect_plans({shape[0], shape[1], shape[2], false});
  }
  for (const int64_t rows : narrow_rows()) {
    for (int64_t cols = 1; cols <= 16; ++cols) {
      expect_plans({3, rows, cols, false});
      expect_plans({20000, rows, cols, false});
    }
  }
}

TEST(GroupedBiasAddGradPlan, EveryNumberOfColumns) {
  for (int64_t cols = 1; cols < 2200; ++cols) {
    expect_plans({7, 3000, cols, true});
    expect_plans({7, 300, cols, false});
  }
}

TEST(GroupedBiasAddGradPlan, BenchShapes) {
  for (const std::string& shape : bench_shapes()) {
    const bool has_ends = shape.find("-g") != std::string::npos;
    const auto [first, second, third] = numbers_of<3>(shape);
    if (has_ends) {
      expect_plans({32, first, second, true});
    } else {
      expect_plans({first, second, third, false});
    }
  }
}

TEST(GroupedBiasAddGradPlan, MoreThanTwoToTheThirtyOne) {
  for (const int64_t cols : {1, 3, 24, 100, 2880}) {
    expect_plans({2048, int64_t{1} << 31, cols, true});
    expect_plans({(int64_t{1} << 31) + 3, 5, cols, false});
    expect_plans({5, (int64_t{1} << 33) + 3, cols, false});
  }
}

// What place.cuh counts on.
TEST(GroupedBiasAddGradPlan, OneBlockPlacesAllGroups) {
  EXPECT_EQ(kMostGroups % kCudaTuning.place_threads, 0u);
  EXPECT_LE(kMostGroups * sizeof(int64_t), cuda::kSharedBytes);
}

}  // namespace
}  // namespace aclgrad::test

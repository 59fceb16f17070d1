// SPDX-License-Identifier: Apache-2.0
// Of the launch of Embedding on a GPU: every unit of every row is copied once.
#include "cuda/plans/covered.h"
#include "ops/embedding/cases.h"
#include "ops/embedding/plan.h"

namespace aclgrad::test {
namespace {

using namespace embedding;

constexpr int64_t kFewUnits = 2000000;

void expect_plan(int64_t rows, int64_t units) {
  const CudaPlan plan = plan_cuda(rows, units);
  const std::string name = std::to_string(rows) + " rows of " + std::to_string(units) + " units";
  const int64_t at_once = static_cast<int64_t>(kTuning.threads) / plan.threads_of_row;
  expect_launch(plan.copy, rows * plan.parts, at_once, name);
  expect_launch(plan.search, 1, 1, name);
  Covered row(units < kFewUnits ? units : 0);
  int64_t last = 0;
  for (int64_t part = units < kFewUnits ? 0 : plan.parts - 1; part < plan.parts; ++part) {
    for (int lane = 0; lane < plan.threads_of_row; ++lane) {
      for (int i = 0; i < kTuning.accesses; ++i) {
        const int64_t unit =
            first_unit(part, plan.threads_of_row, lane) + int64_t{i} * plan.threads_of_row;
        if (unit >= units) continue;
        last = std::max(last, unit);
        if (units < kFewUnits) row.take(unit);
      }
    }
  }
  EXPECT_EQ(last, units - 1) << name;
  if (units < kFewUnits) row.expect_each_once(name);
}

TEST(EmbeddingPlan, EveryUnitOnce) {
  for (const Shape& shape : test_shapes()) {
    for (const int64_t units_of_element : {1, 2}) {
      expect_plan(shape.rows, shape.cols * units_of_element);
      if (shape.cols % 8 == 0) expect_plan(shape.rows, shape.cols / 8);
    }
  }
  for (const std::string& shape : bench_shapes()) {
    const auto [rows, table_rows, cols] = numbers_of<3>(shape);
    for (const int64_t elements : {1, 4, 8}) expect_plan(rows, cols / elements);
  }
}

TEST(EmbeddingPlan, MoreThanTwoToTheThirtyOne) {
  expect_plan((int64_t{1} << 31) + 5, 513);
  expect_plan((int64_t{1} << 40) + 1, 1);
  expect_plan(3, (int64_t{1} << 33) + 7);
}

}  // namespace
}  // namespace aclgrad::test

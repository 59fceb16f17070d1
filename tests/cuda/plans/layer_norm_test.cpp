// SPDX-License-Identifier: Apache-2.0
// Of the launches of LayerNorm and LayerNormBackward on a GPU: every row and column has its thread,
// shared memory and workspace are large enough, and not too large.
#include "cuda/plans/covered.h"
#include "ops/layer_norm/cases.h"
#include "ops/layer_norm/plan.h"
#include "ops/layer_norm_backward/cases.h"
#include "ops/layer_norm_backward/plan.h"

namespace aclgrad::test {
namespace {

constexpr int kWarp = 32;

std::vector<std::array<int64_t, 2>> shapes_of(const std::vector<std::string>& bench) {
  std::vector<std::array<int64_t, 2>> shapes;
  for (const std::string& name : bench) shapes.push_back(numbers_of<2>(name));
  for (const int64_t rows : {1, 15, 31, 32, 100, 4096, 7680, 8192, 8448, 14336, 16384, 1000000}) {
    for (const int64_t cols : {4, 8, 24, 120, 768, 1024, 1032, 4096, 8192, 12288, 16384, 16392}) {
      shapes.push_back({rows, cols});
    }
  }
  return shapes;
}

void expect_held(int64_t rows, int64_t cols) {
  using namespace layer_norm;
  const std::string name = std::to_string(rows) + "x" + std::to_string(cols);
  const GpuPlan plan = plan_on_gpu(rows, cols);
  const int64_t warps = kGpu.warps;
  EXPECT_GT(plan.blocks, 0) << name;
  switch (plan.kind) {
    case RowKind::kHeld:
      EXPECT_GE(kGpu.held[plan.held].elements * kWarp, cols) << name;
      EXPECT_LE((plan.blocks - 1) * warps, rows - 1) << name;
      break;
    case RowKind::kWarp:
      EXPECT_EQ(plan.panels, 1) << name;
      EXPECT_GE(plan.blocks * warps, rows) << name;
      break;
    case RowKind::kBlock:
      EXPECT_EQ(plan.blocks, rows) << name;
      EXPECT_LE(plan.warps_of_row, warps) << name;
      EXPECT_LE(static_cast<size_t>(plan.panels) * sizeof(Moments), cuda::kSharedBytes) << name;
      break;
    case RowKind::kApart:
      EXPECT_GE(plan.blocks * warps, rows * plan.panels) << name;
      break;
  }
}

TEST(LayerNormPlan, EveryNumberHasItsThread) {
  for (const int64_t count : {int64_t{1}, int64_t{31}, int64_t{257}, (int64_t{1} << 40) + 1}) {
    const std::string name = std::to_string(count);
    expect_launch(layer_norm::plan_warps(count), count, layer_norm::kGpu.warps, name);
    expect_launch(layer_norm::plan_threads(count), count, int64_t{kWarp} * layer_norm::kGpu.warps,
                  name);
  }
}

TEST(LayerNormBackwardPlan, VisitsCoverRowsColumnsAndSums) {
  using namespace layer_norm_backward;
  const auto expect = [](int64_t rows, int64_t cols) {
    if (rows * cols == 0) return;
    const std::string name = std::to_string(rows) + "x" + std::to_string(cols);
    const VisitPlan plan = plan_visits(rows, cols);
    const int64_t chunks = chunks_of(cols);
    EXPECT_GE(chunks * kChunk, cols) << name;
    expect_launch(plan.sums, rows * chunks, kVisits.threads / kTeam, name);
    if (chunks > 1) expect_launch(plan.rows, rows, kVisits.threads / kWarp, name);
    expect_launch(plan.columns, ceil_div(rows, kRowBlock) * cols, kVisits.threads, name);
    expect_launch(plan_join(cols), 2 * cols, kJoinCols, name);
    EXPECT_EQ(plan_join(cols).threads, static_cast<unsigned>(kVisits.join_warps * kWarp)) << name;
    EXPECT_EQ(plan.panel_chunks, is_wide(rows, cols) ? kPanel / kChunk : chunks) << name;
  };
  EXPECT_EQ(kPanel % kChunk, 0);
  for (const auto& shape : layer_norm_backward::test_shapes()) expect(shape.rows, shape.cols);
  for (const auto& [rows, cols] : shapes_of(layer_norm_backward::bench_shapes())) {
    expect(rows, cols);
  }
  expect(int64_t{1} << 40, 5);
  expect(2, int64_t{1} << 40);
}

TEST(LayerNormPlan, EveryRowHasItsThreads) {
  for (const auto& shape : layer_norm::test_shapes()) expect_held(shape.rows, shape.cols);
  for (const auto& [rows, cols] : shapes_of(layer_norm::bench_shapes())) expect_held(rows, cols);
  expect_held(int64_t{1} << 40, 5);
  expect_held((int64_t{1} << 32) + 1, 8193);
  expect_held(2, int64_t{1} << 40);
}

void expect_staged(int64_t rows, int64_t cols, int64_t element, bool columns, int64_t shared) {
  using namespace layer_norm_backward;
  const std::string name = std::to_string(rows) + "x" + std::to_string(cols) + " of " +
                           std::to_string(element) + ", " + std::to_string(shared) + " shared";
  const StagedPlan plan = plan_staged(rows, cols, element, columns, shared);
  if (!plan.possible) return;
  const int64_t accesses = cols * element / 16;
  EXPECT_LE(plan.shared, shared) << name;
  EXPECT_EQ(plan.shared,
            SharedLayout(plan, static_cast<int>(cols), static_cast<int>(element)).bytes)
      << name;
  EXPECT_EQ(plan.threads % kWarp, 0) << name;
  EXPECT_LE(plan.threads, kStaged.most_threads) << name;
  // Every access of a row block has a thread, every row of a stage one that reads its statistics.
  if (plan.accesses == 1) {
    EXPECT_LE(plan.groups * accesses, plan.threads) << name;
  } else {
    EXPECT_EQ(plan.groups, 1) << name;
    EXPECT_GE(int64_t{plan.threads} * plan.accesses, accesses) << name;
  }
  EXPECT_LE(plan.accesses, element == 4 ? 8 : 4) << name;
  EXPECT_LE(plan.rows(), plan.threads) << name;
  EXPECT_EQ(kRowBlock % plan.stage_rows, 0) << name;
  // Units are whole row blocks, and slabs where they leave totals.
  EXPECT_EQ(plan.unit_rows % kRowBlock, 0) << name;
  EXPECT_EQ(plan.units, ceil_div(rows, plan.unit_rows)) << name;
  EXPECT_TRUE(columns || !plan.parts.slab_totals) << name;
  if (plan.parts.slab_totals) {
    EXPECT_EQ(plan.unit_rows, slab_rows(rows, cols)) << name;
    EXPECT_EQ(plan.parts.count, plan.units) << name;
  } else {
    EXPECT_EQ(plan.parts.count, row_blocks_of(rows)) << name;
    EXPECT_EQ(plan.parts.per_slab * kRowBlock, slab_rows(rows, cols)) << name;
  }
  Problem problem;
  problem.rows = rows;
  problem.cols = cols;
  problem.want_dbeta = columns;
  const auto number = static_cast<int64_t>(plan.parts.slab_totals ? sizeof(double) : sizeof(float));
  if (columns) {
    EXPECT_GE(scratch_on_gpu(problem).parts, plan.parts.count * 2 * cols * number) << name;
  }
}

TEST(LayerNormBackwardPlan, StagesFitAndCoverTheirRows) {
  for (const int64_t shared : {0, 48, 99, 163, 227}) {
    for (const int64_t element : {2, 4}) {
      for (const bool columns : {false, true}) {
        const auto expect = [&](int64_t rows, int64_t cols) {
          if (cols * element % 16 != 0) return;
          expect_staged(rows, cols, element, columns, shared << 10);
        };
        for (const auto& shape : layer_norm_backward::test_shapes()) {
          expect(shape.rows, shape.cols);
        }
        for (const auto& [rows, cols] : shapes_of(layer_norm_backward::bench_shapes())) {
          expect(rows, cols);
        }
        expect((int64_t{1} << 40) + 1, 8);
        // Slabs of two row blocks, the last one of one or two.
        for (int64_t rows = 3585; rows < 4200; rows += 5) expect(rows, 512);
      }
    }
  }
}

// Whatever the speed of the visits, rows of these lengths come from memory once on an H200.
TEST(LayerNormBackwardPlan, UsualRowsAreStaged) {
  for (const int64_t rows : {4096, 16384}) {
    for (const int64_t cols : {128, 512, 768, 1024, 4096, 8192, 12288, 16384}) {
      for (const int64_t element : {2, 4}) {
        EXPECT_TRUE(layer_norm_backward::plan_staged(rows, cols, element, true, int64_t{227} << 10)
                        .possible)
            << rows << "x" << cols << " of " << element;
      }
    }
  }
}

}  // namespace
}  // namespace aclgrad::test

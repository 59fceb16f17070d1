// SPDX-License-Identifier: Apache-2.0
// Of the launch of NsaCompressGrad on a GPU: every visit is one block's, every weight and every
// uncovered token too, and what a block keeps has room.
#include "cuda/plans/covered.h"
#include "ops/nsa_compress_grad/cases.h"
#include "ops/nsa_compress_grad/plan.h"

namespace aclgrad::test {
namespace {

using namespace nsa_compress_grad;

// What the CPU makes of the sequences.
void place(const Case& shape, nsa_compress_grad::Problem& problem) {
  const std::vector<int64_t> whole = {shape.tokens};
  int64_t begin = 0, covered = 0;
  for (const int64_t end : shape.ends.empty() ? whole : shape.ends) {
    const int64_t length = end - begin;
    if (length >= shape.window) {
      covered += (length - shape.window) / shape.step * shape.step + shape.window;
    }
    begin = end;
  }
  problem.groups = covered / kGroup;
  problem.gap_tokens = shape.tokens - covered;
}

void expect_plan(const Case& shape, bool pairs_fit) {
  nsa_compress_grad::Problem problem;
  problem.tokens = shape.tokens;
  problem.heads = shape.heads;
  problem.width = shape.width;
  problem.window = shape.window;
  problem.step = shape.step;
  place(shape, problem);
  Plan cpu;
  if (problem.groups > 0) {
    cpu.slab_groups = slab_groups(problem.groups, shape.window, shape.heads, shape.width);
    cpu.slabs = ceil_div(problem.groups, cpu.slab_groups);
  }
  const CudaPlan plan = plan_cuda(problem, cpu, pairs_fit);
  const std::string name = std::to_string(shape.tokens) + "x" + std::to_string(shape.heads) + "x" +
                           std::to_string(shape.width) + "-l" + std::to_string(shape.window) +
                           "-d" + std::to_string(shape.step);
  expect_launch(plan.visit, cpu.slabs * shape.heads, 1, name);
  expect_launch(plan.join, plan.join_blocks + plan.gap_blocks, 1, name);
  EXPECT_EQ(plan.join_blocks * kGroup, shape.heads * shape.window) << name;
  EXPECT_GE(plan.gap_blocks * plan.gap_tokens, problem.gap_tokens) << name;
  EXPECT_LT((plan.gap_blocks - 1) * plan.gap_tokens, problem.gap_tokens) << name;
  EXPECT_LE(cpu.slabs, kMostSlabs) << name;
  if (cpu.slabs > 0) {
    EXPECT_GE(cpu.slabs * cpu.slab_groups, problem.groups) << name;
    EXPECT_LT((cpu.slabs - 1) * cpu.slab_groups, problem.groups) << name;
  }
  EXPECT_EQ(plan.shared_weights, shape.window <= kCudaTuning.shared_window) << name;
  EXPECT_GE(plan.segments * kSegment, shape.width) << name;
  if (plan.windows == 0) {
    EXPECT_EQ(plan.teams, kGroup) << name;
    return;
  }
  EXPECT_LE(plan.teams, visit_tuning(plan.windows, plan.pairs).most_teams) << name;
  EXPECT_TRUE(pairs_fit) << name;
  EXPECT_GE(plan.windows, plan.most_windows) << name;
  EXPECT_GE(plan.pairs * kPairColumns, std::min(shape.width, kSegment)) << name;
  EXPECT_GT(plan.chunk, 0) << name;
  EXPECT_LE(plan.chunk * plan.windows * kGroup, kCudaTuning.value_floats) << name;
  // Two teams a warp.
  EXPECT_EQ(plan.teams % 2, 0) << name;
}

TEST(NsaCompressGradPlan, EveryShape) {
  for (const Case& each : test_cases()) {
    for (const bool pairs_fit : {false, true}) expect_plan(each, pairs_fit);
  }
  for (const std::string& shape : bench_shapes()) {
    const auto [tokens, heads, width] = numbers_of<3>(shape);
    for (const int64_t window : {32, 64, 128}) {
      expect_plan({tokens, heads, width, window, 16, {}}, true);
    }
  }
}

TEST(NsaCompressGradPlan, MoreThanTwoToTheThirtyOne) {
  expect_plan({(int64_t{1} << 31) + 3, 4, 128, 32, 16, {}}, true);
  expect_plan({int64_t{1} << 36, 128, 256, 128, 16, {int64_t{1} << 35}}, true);
  expect_plan({100000, int64_t{1} << 32, 16, 4096, 16, {64}}, false);
}

}  // namespace
}  // namespace aclgrad::test

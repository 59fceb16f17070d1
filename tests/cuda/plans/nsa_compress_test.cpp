// SPDX-License-Identifier: Apache-2.0
// Of the launch of NsaCompress on a GPU: every column of every window and head is computed once.
#include <vector>

#include "cuda/plans/covered.h"
#include "ops/nsa_compress/cases.h"
#include "ops/nsa_compress/plan.h"

namespace aclgrad::test {
namespace {

using namespace nsa_compress;

void expect_plan(int64_t windows, int64_t heads, int64_t width, int64_t columns) {
  const std::string name = std::to_string(windows) + "x" + std::to_string(heads) + "x" +
                           std::to_string(width) + " by " + std::to_string(columns);
  const int64_t pieces = windows * heads * (width / columns);
  expect_launch(plan_cuda(windows, heads, width, columns), pieces, kTuning.threads, name);
  const Piece last = piece_at(pieces - 1, heads, width, columns);
  EXPECT_EQ(last.window, windows - 1) << name;
  EXPECT_EQ(last.head, heads - 1) << name;
  EXPECT_EQ(last.column, width - columns) << name;
  if (pieces > 2000000) return;
  Covered all(windows * heads * width);
  for (int64_t i = 0; i < pieces; ++i) {
    const Piece piece = piece_at(i, heads, width, columns);
    for (int64_t c = 0; c < columns; ++c) {
      all.take((piece.window * heads + piece.head) * width + piece.column + c);
    }
  }
  all.expect_each_once(name);
}

TEST(NsaCompressPlan, EveryColumnOnce) {
  for (const Case& each : test_cases()) {
    const int64_t windows = (each.tokens - each.window) / each.step + 1;
    for (const int64_t columns : {1, kTuning.columns}) {
      if (windows > 0) expect_plan(windows, each.heads, each.width, columns);
    }
  }
  for (const std::string& shape : bench_shapes()) {
    const auto [tokens, heads, width] = numbers_of<3>(shape);
    expect_plan(tokens / 16, heads, width, kTuning.columns);
  }
}

TEST(NsaCompressPlan, EveryWindowIsInOneLaunch) {
  for (const int64_t count : {1, 127, 128, 129, 1000}) {
    std::vector<Sequence> all;
    for (int64_t i = 0, window = 0; i < count; window += 1 + i % 3, ++i) {
      all.push_back({100 * i, window, 1 + i % 3});
    }
    int64_t window = 0;
    for (int64_t first = 0; first < count;) {
      const Part part = part_from(all, first);
      ASSERT_GT(part.sequences, 0);
      EXPECT_LE(part.sequences, kTuning.most_sequences);
      EXPECT_EQ(part.first_window, window);
      window += part.windows;
      first += part.sequences;
    }
    EXPECT_EQ(window, all.back().first_window + all.back().windows) << count;
  }
}

TEST(NsaCompressPlan, MoreThanTwoToTheThirtyOne) {
  expect_plan((int64_t{1} << 31) + 3, 4, 128, 8);
  expect_plan(int64_t{1} << 40, 128, 256, 1);
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// The blocks of [B, N, S1, S2]: every row is in one of them, once, whichever way it is gone
// through.
#include "kernels/cpu/attention_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace aclgrad {
namespace {

struct Offsets {
  int64_t x = 0, mask = 0;

  void add(const Offsets& step, int64_t count) {
    x += step.x * count;
    mask += step.mask * count;
  }
  bool operator==(const Offsets&) const = default;
};
using Block = AttentionBlock<Offsets>;
using Nest = AttentionNest<Offsets>;
using OffsetSteps = std::array<Offsets, 3>;

// How often a row with these offsets of x and of the mask was met.
using Met = std::map<std::pair<int64_t, int64_t>, int>;

struct Case {
  AttentionCounts all;
  int64_t cols;
  OffsetSteps steps;
};

// Dense tensors; a mask that repeats itself over heads; padded rows and heads that lie backwards;
// one row a block; several batches a block with a rest.
const Case kCases[] = {
    {{2, 3, 512}, 512, {{{786432, 786432}, {262144, 262144}, {512, 512}}}},
    {{3, 4, 700}, 256, {{{716800, 179200}, {179200, 0}, {256, 256}}}},
    {{2, 5, 9}, 100, {{{5000, 900}, {-1000, 0}, {104, 100}}}},
    {{2, 2, 3}, 100000, {{{600000, 600000}, {300000, 300000}, {100000, 100000}}}},
    {{7, 2, 32}, 256, {{{16384, 16384}, {8192, 8192}, {256, 256}}}},
};

Met rows_of(const Case& one) {
  Met met;
  for (int64_t b = 0; b < one.all[0]; ++b) {
    for (int64_t n = 0; n < one.all[1]; ++n) {
      for (int64_t i = 0; i < one.all[2]; ++i) {
        Offsets here;
        here.add(one.steps[0], b);
        here.add(one.steps[1], n);
        here.add(one.steps[2], i);
        ++met[{here.x, here.mask}];
      }
    }
  }
  return met;
}

TEST(AttentionBlocks, AWalkMeetsEveryRowOnce) {
  for (const Case& one : kCases) {
    const AttentionBlocks cut = cut_attention(one.all, one.cols);
    Met met;
    for (int64_t index = 0; index < cut.blocks(); ++index) {
      AttentionWalk<Offsets> walk(attention_block(cut, one.all, one.steps, index));
      const Offsets first = walk.here();
      for (int64_t row = 0; row < walk.rows(); ++row) {
        ++met[{walk.here().x, walk.here().mask}];
        walk.advance();
      }
      EXPECT_EQ(walk.here(), first) << "behind the last row stands the first";
    }
    EXPECT_EQ(met, rows_of(one));
  }
}

TEST(AttentionBlocks, ANestMeetsEveryRowOnce) {
  for (const Case& one : kCases) {
    const AttentionBlocks cut = cut_attention(one.all, one.cols);
    Met met;
    for (int64_t index = 0; index < cut.blocks(); ++index) {
      const Block block = attention_block(cut, one.all, one.steps, index);
      const Nest nest(block);
      for (int64_t i = 0; i < nest.loops[0].count; ++i) {
        for (int64_t j = 0; j < nest.loops[1].count; ++j) {
          for (int64_t k = 0; k < nest.loops[2].count; ++k) {
            Offsets here = block.first;
            here.add(nest.loops[0], i);
            here.add(nest.loops[1], j);
            here.add(nest.loops[2], k);
            ++met[{here.x, here.mask}];
          }
        }
      }
    }
    EXPECT_EQ(met, rows_of(one));
  }
}

TEST(AttentionBlocks, RowsAreCutBeforeHeadsAndHeadsBeforeBatches) {
  const AttentionBlocks rows = cut_attention({2, 3, 512}, 512);
  EXPECT_EQ(rows.rows, 64);
  EXPECT_EQ(rows.heads, 1);
  EXPECT_EQ(rows.batches, 1);
  EXPECT_EQ(rows.blocks(), 48);
  const AttentionBlocks batches = cut_attention({7, 2, 32}, 256);
  EXPECT_EQ(batches.rows, 32);
  EXPECT_EQ(batches.heads, 2);
  EXPECT_EQ(batches.batches, 2);
  EXPECT_EQ(batches.blocks(), 4);
}

TEST(AttentionBlocks, FourMillionElementsAreEnoughForSixtyFourCores) {
  EXPECT_EQ(cut_attention({1, 1, 4000000}, 1).blocks(), 64);
  EXPECT_EQ(cut_attention({4, 8, 256}, 512).blocks(), 64);
  const AttentionBlocks large = cut_attention({8, 16, 512}, 512);
  EXPECT_EQ(large.rows, 128);
  EXPECT_EQ(large.blocks(), 512);
}

TEST(AttentionBlocks, HeadsThatShareRowsOfTheMaskFollowEachOther) {
  const Case& one = kCases[1];
  const AttentionBlocks cut = cut_attention(one.all, one.cols);
  ASSERT_EQ(cut.heads, 1);
  const auto first_mask = [&](int64_t index) {
    return attention_block(cut, one.all, one.steps, index).first.mask;
  };
  for (int64_t head = 1; head < 4; ++head) EXPECT_EQ(first_mask(head), first_mask(0));
  EXPECT_NE(first_mask(4), first_mask(0));
}

TEST(AttentionBlocks, LoopsThatStepAsOneAreJoined) {
  const AttentionCounts all = {2, 5, 9};
  const AttentionBlocks cut = cut_attention(all, 100);
  ASSERT_EQ(cut.blocks(), 1);
  const auto innermost = [&](const OffsetSteps& steps) {
    return Nest(attention_block(cut, all, steps, 0)).loops[2].count;
  };
  EXPECT_EQ(innermost({{{4500, 4500}, {900, 900}, {100, 100}}}), 90);
  EXPECT_EQ(innermost({{{4500, 900}, {900, 0}, {100, 100}}}), 9) << "the mask begins again";
  EXPECT_EQ(innermost({{{9000, 4500}, {900, 900}, {100, 100}}}), 45) << "between batches is a gap";
}

}  // namespace
}  // namespace aclgrad

// SPDX-License-Identifier: Apache-2.0
// How the rows of tensors [B, N, S1, S2] are cut into blocks, and two ways through a block: row by
// row (AttentionWalk), or in runs of rows that are as long as the strides allow (AttentionNest).
//
// Both go over several tensors at once. A kernel names their offsets in a struct of its own:
//
//   struct Offsets {
//     int64_t x = 0, mask = 0, y = 0;  // in elements
//     void add(const Offsets& step, int64_t count);
//     bool operator==(const Offsets&) const = default;
//   };
#ifndef ACLGRAD_KERNELS_CPU_ATTENTION_BLOCKS_H_
#define ACLGRAD_KERNELS_CPU_ATTENTION_BLOCKS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/checked.h"

namespace aclgrad {

// Elements of one block: 20 to 60 us of one core's work (Granite Rapids, from memory), so that a
// smaller problem is not shared and 64 cores have something to do at 4 million elements.
// Rows that follow each other in memory come first: in runs of 8 rows of 16 heads the hardware
// reads ahead in vain (1.3x the time of the gradient, 8x16x512x512 on one core of a Zen 4).
inline constexpr int64_t kLeastAttentionBlock = 32768;
inline constexpr int64_t kMostAttentionBlock = 65536;
inline constexpr int64_t kManyAttentionBlocks = 64;

// Blocks of `rows` neighbouring rows of `heads` heads of `batches` batches. Blocks of heads that
// share rows of the mask follow each other.
struct AttentionBlocks {
  int64_t batches = 0, heads = 0, rows = 0;                   // of one block
  int64_t batch_blocks = 0, head_blocks = 0, row_blocks = 0;  // how many of them
  int64_t blocks() const { return batch_blocks * head_blocks * row_blocks; }
};

// Batches, heads and rows of a head, or one number for each of these.
using AttentionCounts = std::array<int64_t, 3>;

// As many neighbouring rows as make a block; if those are all rows, more heads; then batches. Of a
// shape without a 0.
inline AttentionBlocks cut_attention(const AttentionCounts& all, int64_t cols) {
  const int64_t block =
      std::clamp(saturating_product({all[0], all[1], all[2], cols}) / kManyAttentionBlocks,
                 kLeastAttentionBlock, kMostAttentionBlock);
  const auto share = [&](int64_t count, int64_t unit, int64_t& blocks) {
    const int64_t most = std::max(block / unit, int64_t{1});
    blocks = ceil_div(count, most);
    return ceil_div(count, blocks);
  };
  AttentionBlocks cut;
  cut.rows = share(all[2], cols, cut.row_blocks);
  cut.heads = share(all[1], cut.rows * cols, cut.head_blocks);
  cut.batches = share(all[0], cut.heads * cut.rows * cols, cut.batch_blocks);
  return cut;
}

// One block. The last one of a batch or a head may have less than the cut says.
template <class Offsets>
struct AttentionBlock {
  Offsets first;                 // of the block's first row
  std::array<Offsets, 3> steps;  // to the next batch, head, row
  AttentionCounts counts;
};

template <class Offsets>
AttentionBlock<Offsets> attention_block(const AttentionBlocks& cut, const AttentionCounts& all,
                                        const std::array<Offsets, 3>& steps, int64_t index) {
  const AttentionCounts at = {index / cut.head_blocks / cut.row_blocks, index % cut.head_blocks,
                              index / cut.head_blocks % cut.row_blocks};
  const AttentionCounts size = {cut.batches, cut.heads, cut.rows};
  AttentionBlock<Offsets> block{{}, steps, {}};
  for (size_t i = 0; i < 3; ++i) {
    block.counts[i] = std::min(size[i], all[i] - at[i] * size[i]);
    block.first.add(steps[i], at[i] * size[i]);
  }
  return block;
}

// Goes through the rows of a block: rows of a head, heads of a batch, batches.
template <class Offsets>
class AttentionWalk {
 public:
  explicit AttentionWalk(const AttentionBlock<Offsets>& block) : block_(block) {}

  int64_t rows() const { return block_.counts[0] * block_.counts[1] * block_.counts[2]; }
  const Offsets& here() const { return block_.first; }

  // To the next row; behind the last one it stands at the first one again.
  void advance() {
    for (size_t i = 3; i-- > 0;) {
      block_.first.add(block_.steps[i], 1);
      if (++done_[i] < block_.counts[i]) return;
      block_.first.add(block_.steps[i], -block_.counts[i]);
      done_[i] = 0;
    }
  }

 private:
  AttentionBlock<Offsets> block_;  // `first` is the row where the walk stands
  AttentionCounts done_ = {0, 0, 0};
};

// `count` steps over the rows, and what each adds to the offsets.
template <class Offsets>
struct AttentionSteps : Offsets {
  int64_t count = 1;

  bool continues(const AttentionSteps& inner) const {
    Offsets whole;
    whole.add(inner, inner.count);
    return static_cast<const Offsets&>(*this) == whole;
  }
};

// The rows of a block as nested loops, outermost first. Loops that step as one are joined, so that
// the innermost is a run of rows as long as the strides allow.
template <class Offsets>
struct AttentionNest {
  using Steps = AttentionSteps<Offsets>;
  Steps loops[3];

  explicit AttentionNest(const AttentionBlock<Offsets>& block) {
    for (size_t i = 0; i < 3; ++i) add_inner({block.steps[i], block.counts[i]});
  }

 private:
  void add_inner(const Steps& steps) {
    if (steps.count == 1) return;
    if (loops[2].continues(steps) && loops[2].count != 1) {
      const int64_t count = loops[2].count * steps.count;
      loops[2] = steps;
      loops[2].count = count;
      return;
    }
    loops[0] = loops[1];
    loops[1] = loops[2];
    loops[2] = steps;
  }
};

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_ATTENTION_BLOCKS_H_

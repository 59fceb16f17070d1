// SPDX-License-Identifier: Apache-2.0
// The way through the rows of a block.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_WALK_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_WALK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/scaled_masked_softmax/problem.h"

namespace aclgrad::scaled_masked_softmax {

// Where a row lies, as offsets in elements.
struct Offsets {
  int64_t x = 0, mask = 0, y = 0;

  void add(const Offsets& step, int64_t count) {
    x += step.x * count;
    mask += step.mask * count;
    y += step.y * count;
  }
};

// Goes through the rows of a block: rows of a head, heads of a batch, batches.
class Walk {
 public:
  Walk(const Problem& problem, const Plan& plan, int64_t index) {
    // Blocks of heads that share rows of the mask are neighbours.
    const int64_t block[3] = {index / plan.head_blocks / plan.row_blocks, index % plan.head_blocks,
                              index / plan.head_blocks % plan.row_blocks};
    const int64_t size[3] = {plan.batches, plan.heads, plan.rows};
    const int64_t all[3] = {problem.batches, problem.heads, problem.rows};
    for (size_t i = 0; i < 3; ++i) {
      step_[i] = {problem.x.strides[i], problem.mask.strides[i], problem.y.strides[i]};
      count_[i] = std::min(size[i], all[i] - block[i] * size[i]);
      here_.add(step_[i], block[i] * size[i]);
    }
  }
  int64_t rows() const { return count_[0] * count_[1] * count_[2]; }
  // Rows of this head from here on.
  int64_t rows_of_head() const { return count_[2] - done_[2]; }
  const Offsets& here() const { return here_; }

  // To the next row; behind the last one it stands at the first one again.
  void advance() {
    for (size_t i = 3; i-- > 0;) {
      here_.add(step_[i], 1);
      if (++done_[i] < count_[i]) return;
      here_.add(step_[i], -count_[i]);
      done_[i] = 0;
    }
  }

 private:
  Offsets here_;
  Offsets step_[3];
  int64_t count_[3];
  int64_t done_[3] = {0, 0, 0};
};

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_WALK_H_

// SPDX-License-Identifier: Apache-2.0
// Blocks of rows that are folded (tree.h): several of them are read as one wide row.

#if defined(ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_FOLDED_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_FOLDED_ROWS_INL_H_
#undef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_FOLDED_ROWS_INL_H_
#else
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_FOLDED_ROWS_INL_H_
#endif

#include <algorithm>

#include "base/checked.h"
#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/grouped_bias_add_grad/blocks-inl.h"
#include "ops/grouped_bias_add_grad/chains-inl.h"
#include "ops/grouped_bias_add_grad/job.h"
#include "ops/grouped_bias_add_grad/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::grouped_bias_add_grad {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

// Totals of a block whose rows are folded: padding its rows to vectors at most doubles a 16-bit
// wide row.
constexpr size_t kFoldedTotals = kWideRowBytes;

// A chain whose last row has only the first `count` of `width` columns; both are a vector at least.
template <class T>
void add_ragged_chain(Chain<T>& chain, int64_t count, int64_t width, double* totals) {
  const int64_t whole = count - count % kVector;
  sum_chain(chain, 0, whole, adding_to(totals));
  const size_t last = chain.count - 1;
  int64_t col = whole;
  if (whole < count) {
    const int64_t at = std::min(whole, width - kVector);
    F32x16 sum = zero16();
    for (size_t r = 0; r < last; ++r) sum = add(sum, load16(chain.row[r] + at));
    add_to(totals + whole,
           add(sum, load_first(chain.row[last] + at, static_cast<size_t>(count - at))));
    col += kVector;
  }
  chain.count = last;
  chain.down = false;
  if (last == 0 || col >= width) return;
  if (width - col >= kVector) {
    sum_chain(chain, col, width, adding_to(totals + col));
  } else {
    sum_strip<1>(chain, col, width - kVector, 0, 0, adding_to(totals));
  }
}

// The totals of a block's wide rows, where rows follow each other without gaps. The last one may be
// incomplete.
template <class T>
void add_dense_rows(const Job& job, const Block<T>& block, int64_t width, double* totals) {
  const int64_t cols = job.problem.cols;
  const int64_t step = block.fold * cols;
  const int64_t complete = block.rows / block.fold;
  const int64_t rest = block.rows - complete * block.fold;
  const int64_t wide_rows = complete + (rest > 0 ? 1 : 0);
  Chain<T> chain;
  chain.stride = step;
  chain.next_step = kChainRows * step;
  const bool down = goes_down<T>(wide_rows, width);
  for (int64_t wide = 0; wide < wide_rows; wide += kChainRows) {
    chain.count = static_cast<size_t>(std::min(kChainRows, wide_rows - wide));
    for (size_t i = 0; i < chain.count; ++i) {
      chain.row[i] = block.first + (wide + static_cast<int64_t>(i)) * step;
    }
    chain.down = down;
    // Where groups follow each other, what lies a chain further on is always wanted.
    look_ahead(chain, job.contiguous ? kChainRows : complete - wide - kChainRows);
    if (rest > 0 && wide + kChainRows >= wide_rows) {
      add_ragged_chain(chain, rest * cols, width, totals);
    } else {
      sum_chain(chain, 0, width, adding_to(totals));
    }
  }
}

// The same for rows with gaps: each row of the wide rows by itself.
template <class T>
void add_spaced_rows(const Job& job, const Block<T>& block, int64_t pitch, double* totals) {
  const int64_t cols = job.problem.cols;
  const int64_t stride = job.problem.row_stride();
  for (int64_t row = 0; row < std::min(block.fold, block.rows); ++row) {
    const int64_t wide_rows = ceil_div(block.rows - row, block.fold);
    double* own = totals + row * pitch;
    const auto keep = adding_to(own);
    sum_rows(block.first + row * stride, block.fold * stride, wide_rows, 0, 0, cols, keep, keep,
             keep);
    align_totals(own, cols);
  }
}

// Joins `rows` rows of totals into the first, halving their number again and again.
void fold_totals(double* totals, int64_t rows, int64_t pitch) {
  while (rows > 1) {
    const int64_t kept = ceil_div(rows, 2);
    const double* from = totals + kept * pitch;
    for (int64_t i = 0; i < (rows - kept) * pitch; ++i) totals[i] += from[i];
    rows = kept;
  }
}

// A block of short rows. Whichever way they are read, the same numbers are added in the same order.
template <class T>
void sum_short_rows(const Job& job, const Block<T>& block) {
  const int64_t cols = job.problem.cols;
  const int64_t pitch = job.dense ? cols : round_up(cols, kVector);
  const int64_t fold = std::min(block.fold, block.rows);  // the last block of a group may be short
  const int64_t used = round_up(fold * pitch, kVector);
  alignas(64) double totals[kFoldedTotals];
  std::fill(totals, totals + used, 0.0);
  if (job.dense) {
    add_dense_rows(job, block, fold * cols, totals);
    align_totals(totals, fold * cols);
  } else {
    add_spaced_rows(job, block, pitch, totals);
  }
  fold_totals(totals, fold, pitch);
  finish(job, block, totals, 0, 0, cols);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::grouped_bias_add_grad
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

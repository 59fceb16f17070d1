// SPDX-License-Identifier: Apache-2.0
// Short rows of a block, some at a time, as if they followed each other without a gap: where they
// do not, they are copied.
#ifndef ACLGRAD_KERNELS_CPU_DENSE_ROWS_H_
#define ACLGRAD_KERNELS_CPU_DENSE_ROWS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/lane_count.h"

namespace aclgrad {

// Whole sixteens of rows that make at most so many elements.
inline size_t rows_of_portion(size_t elements, size_t cols) {
  return std::max(elements / cols / kLanes, size_t{1}) * kLanes;
}

// The rows of a block in one tensor. Steps are in elements: to the next batch, head, row.
template <class T>
class DenseRows {
 public:
  DenseRows(T* first, const std::array<int64_t, 3>& steps, const AttentionCounts& counts,
            size_t cols)
      : first_(first), steps_(steps), counts_(counts), cols_(cols) {
    const int64_t row = static_cast<int64_t>(cols);
    if (counts[2] != 1 && steps[2] != row) return;
    piece_ = counts[2];
    if (counts[1] != 1 && steps[1] != piece_ * row) return;
    piece_ *= counts[1];
    if (counts[0] != 1 && steps[0] != piece_ * row) return;
    piece_ *= counts[0];
  }

  // `step` is the tensor's part of the block's steps.
  template <class Offsets>
  DenseRows(T* first, const AttentionBlock<Offsets>& block, int64_t Offsets::*step, size_t cols)
      : DenseRows(first, {block.steps[0].*step, block.steps[1].*step, block.steps[2].*step},
                  block.counts, cols) {}

  int64_t rows() const { return counts_[0] * counts_[1] * counts_[2]; }
  // All of them follow each other.
  bool is_dense() const { return piece_ == rows(); }

  T* at(int64_t row) const {
    const int64_t head = row / counts_[2];
    return first_ + row % counts_[2] * steps_[2] + head % counts_[1] * steps_[1] +
           head / counts_[1] * steps_[0];
  }
  // `count` rows from `row` on without a gap, filled up to whole sixteens with zeros: where they
  // lie, or in the buffer.
  template <class E>
  const E* read(int64_t row, int64_t count, E* buffer) const {
    const auto taken = static_cast<size_t>(count);
    const size_t all = (taken + kLanes - 1) / kLanes * kLanes;
    if (is_dense() && taken == all) return at(row);
    const int64_t of_batch = counts_[1] * counts_[2];
    for (int64_t done = 0; done < count;) {
      const int64_t left = std::min(count - done, of_batch - (row + done) % of_batch);
      // The same rows for every head are fetched once.
      const int64_t fetched = steps_[1] == 0 ? std::min(left, counts_[2]) : left;
      E* here = buffer + static_cast<size_t>(done) * cols_;
      each_piece(row + done, fetched, [&](T* from, int64_t offset, size_t bytes) {
        std::memcpy(static_cast<void*>(here + offset), from, bytes);
      });
      for (int64_t again = fetched; again < left; again *= 2) {
        const auto rows = static_cast<size_t>(std::min(again, left - again));
        std::memcpy(static_cast<void*>(here + static_cast<size_t>(again) * cols_), here,
                    rows * cols_ * sizeof(E));
      }
      done += left;
    }
    std::memset(static_cast<void*>(buffer + taken * cols_), 0, (all - taken) * cols_ * sizeof(E));
    return buffer;
  }
  template <class E>
  void write(int64_t row, int64_t count, const E* dense) const {
    each_piece(row, count, [&](T* here, int64_t offset, size_t bytes) {
      std::memcpy(static_cast<void*>(here), dense + offset, bytes);
    });
  }

 private:
  template <class Copy>
  void each_piece(int64_t row, int64_t count, Copy&& copy) const {
    const auto cols = static_cast<int64_t>(cols_);
    for (int64_t done = 0; done < count;) {
      T* here = at(row + done);
      const int64_t of_head = counts_[2] - (row + done) % counts_[2];
      if (piece_ > 1) {
        const int64_t taken = std::min(count - done, piece_ - (row + done) % piece_);
        copy(here, done * cols, static_cast<size_t>(taken) * cols_ * sizeof(T));
        done += taken;
        continue;
      }
      for (const int64_t end = std::min(count, done + of_head); done < end; ++done) {
        copy(here, done * cols, cols_ * sizeof(T));
        here += steps_[2];
      }
    }
  }

  T* first_;
  std::array<int64_t, 3> steps_;
  AttentionCounts counts_;
  size_t cols_;
  int64_t piece_ = 1;  // rows that follow each other
};

}  // namespace aclgrad

#endif  // ACLGRAD_KERNELS_CPU_DENSE_ROWS_H_

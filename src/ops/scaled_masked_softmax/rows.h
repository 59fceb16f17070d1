// SPDX-License-Identifier: Apache-2.0
// One run, and where the rows of a block lie, for all instruction sets alike.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_ROWS_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention_blocks.h"
#include "ops/scaled_masked_softmax/problem.h"
#include "ops/scaled_masked_softmax/tree.h"

namespace aclgrad::scaled_masked_softmax {

// One run as the kernels see it.
struct Job {
  const Problem& problem;
  const Plan& plan;
  const Addresses& at;
  size_t cols;
  size_t padded;       // to whole pairs
  double factor;       // abs(scale) / log(2)
  float sign;          // of the scale
  bool usual;          // the factor leaves room for FP32 corrections
  bool streaming;      // y does not fit the cache
  bool lines_in_rows;  // all rows of y begin and end with lines
};

// A row with this largest element is usual, see tree.h.
inline bool is_usual(const Job& job, float largest) {
  const float exponent = largest * static_cast<float>(job.factor);
  return job.usual && exponent > kLowestUsual && exponent < kHighestUsual;
}

// Where a row lies, as offsets in elements.
struct Offsets {
  int64_t x = 0, mask = 0, y = 0;

  void add(const Offsets& step, int64_t count) {
    x += step.x * count;
    mask += step.mask * count;
    y += step.y * count;
  }
  bool operator==(const Offsets&) const = default;
};
using Walk = AttentionWalk<Offsets>;

// A row's first elements.
template <class T>
struct Row {
  const T* x;
  const uint8_t* mask;
  T* y;
};

template <class T>
Row<T> row_at(const Job& job, const Offsets& here) {
  return {static_cast<const T*>(job.at.x) + here.x,
          static_cast<const uint8_t*>(job.at.mask) + here.mask, static_cast<T*>(job.at.y) + here.y};
}

// What the elements of a row are multiplied by after exp(): 1 / sum, in two parts.
struct Quotient {
  float high, low;
};
inline Quotient one_over(double sum) {
  const double exact = 1.0 / sum;
  const auto high = static_cast<float>(exact);
  return {high, static_cast<float>(exact - static_cast<double>(high))};
}

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_ROWS_H_

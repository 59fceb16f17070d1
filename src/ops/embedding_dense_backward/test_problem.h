// SPDX-License-Identifier: Apache-2.0
// A problem of EmbeddingDenseBackward with random data, its two phases and what it must give.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "ops/embedding_dense_backward/cases.h"
#include "ops/embedding_dense_backward/reference.h"
#include "support/compare.h"
#include "support/random.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

using embedding_dense_backward::Shape;

inline constexpr aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
inline constexpr aclDataType kIndexTypes[] = {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE,
                                              ACL_INT32, ACL_INT64,   ACL_INT16,
                                              ACL_INT8,  ACL_UINT8,   ACL_BOOL};
inline constexpr uint64_t kNoPadding = ~uint64_t{0};
inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType grad = ACL_FLOAT, out = ACL_FLOAT, indices = ACL_INT64;
  uint64_t padding = kNoPadding;
  bool scale = false;
  Arrangement grad_in = Arrangement::kContiguous;
  Arrangement indices_in = Arrangement::kContiguous;
  Arrangement out_in = Arrangement::kContiguous;
};

inline Options all_of(aclDataType dtype) {
  Options options;
  options.grad = options.out = dtype;
  return options;
}

// The tensors of one problem with random data, and its two phases.
struct Problem {
  Problem(const Dims& grad_dims, const Dims& indices_dims, int64_t table_rows,
          const Options& chosen, uint64_t seed = 1)
      : options(chosen),
        num_weights(static_cast<uint64_t>(table_rows)),
        grad(grad_dims, chosen.grad, chosen.grad_in),
        indices(indices_dims, chosen.indices, chosen.indices_in),
        out({table_rows, grad_dims.back()}, chosen.out, chosen.out_in) {
    grad.fill_normal(seed);
    const int64_t last = chosen.indices == ACL_BOOL ? std::min<int64_t>(table_rows, 2) : table_rows;
    indices.fill_integers(seed + 1, 0, last - 1);
  }
  Problem(const Shape& shape, const Options& chosen, uint64_t seed = 1)
      : Problem({shape.rows, shape.cols}, {shape.rows}, shape.table_rows, chosen, seed) {}

  Outcome run_it() {
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
              grad.handle(), indices.handle(), num_weights, options.padding, options.scale,
              out.handle(), size, executor);
        },
        aclnnEmbeddingDenseBackward);
  }
  // Gradients whose sums show the order of the additions.
  void show_order() {
    const std::vector<double> rows = indices.values();
    const auto cols = static_cast<size_t>(grad.dims().back());
    grad.fill_cancelling(
        7, [&](size_t i) { return static_cast<size_t>(rows[i / cols]) * cols + i % cols; });
  }
  void expect_right() const {
    embedding_dense_backward::ReferenceProblem p;
    p.cols = static_cast<size_t>(grad.dims().back());
    p.table_rows = num_weights;
    p.padding = options.padding;
    p.scale_by_frequency = options.scale;
    p.dy = grad.values();
    p.indices = indices.values();
    if (indices.dtype() == ACL_BOOL) {
      for (double& index : p.indices) index = index != 0 ? 1 : 0;
    }
    const auto r = embedding_dense_backward::reference(p);
    expect_close("out", out, r.dw, r.magnitude, static_cast<double>(r.most_terms));
  }
  void run_and_check() {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }

  Options options;
  uint64_t num_weights;
  Tensor grad, indices, out;
};

// Indices that make runs of these lengths, in an order without pattern.
inline std::vector<double> runs_of(const std::vector<int64_t>& lengths, uint64_t seed) {
  std::vector<double> indices;
  for (size_t v = 0; v < lengths.size(); ++v) {
    indices.insert(indices.end(), static_cast<size_t>(lengths[v]), static_cast<double>(v));
  }
  Random random(seed);
  for (size_t i = indices.size(); i > 1; --i) {
    std::swap(indices[i - 1],
              indices[static_cast<size_t>(random.integer(0, static_cast<int64_t>(i) - 1))]);
  }
  return indices;
}

}  // namespace aclgrad::test

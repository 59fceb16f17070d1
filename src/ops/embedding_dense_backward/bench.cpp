// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "bench/bench.h"
#include "ops/embedding_dense_backward/cases.h"

namespace aclgrad::bench {
namespace {

// Row v of the table is drawn with a weight of about 1 / (v + 1), as words of a text are when the
// vocabulary is ordered by frequency.
std::vector<double> zipf_indices(int64_t count, int64_t table_rows) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<double> indices(static_cast<size_t>(count));
  for (double& index : indices) {
    index = std::floor(std::pow(static_cast<double>(table_rows) + 1.0, uniform(random))) - 1.0;
  }
  return indices;
}

struct Tensors {
  Tensors(int64_t rows, int64_t table_rows, int64_t cols, aclDataType dtype)
      : dy({rows, cols}, dtype), indices({rows}, ACL_INT64), dw({table_rows, cols}, dtype) {
    indices.fill(zipf_indices(rows, table_rows));
  }
  int64_t bytes() const { return dy.bytes() + indices.bytes() + dw.bytes(); }

  Tensor dy, indices, dw;
};

Problem make(aclDataType dtype, const std::string& shape) {
  const Dims dims = parse_dims(shape, 3);
  if (dims[1] < 1) throw std::invalid_argument("expected a table of at least one row");
  const auto table_rows = static_cast<uint64_t>(dims[1]);
  auto t = std::make_shared<Tensors>(dims[0], dims[1], dims[2], dtype);
  return {[t, table_rows](uint64_t* size, aclOpExecutor** executor) {
            return aclnnEmbeddingDenseBackwardGetWorkspaceSize(t->dy.handle(), t->indices.handle(),
                                                               table_rows, ~uint64_t{0}, false,
                                                               t->dw.handle(), size, executor);
          },
          aclnnEmbeddingDenseBackward, t->bytes(), static_cast<double>(t->dy.numel())};
}

[[maybe_unused]] const bool added =
    add({"embedding_dense_backward", make, embedding_dense_backward::bench_shapes()});

}  // namespace
}  // namespace aclgrad::bench

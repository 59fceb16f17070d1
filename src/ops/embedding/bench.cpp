// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>

#include "aclnnop/aclnn_embedding.h"
#include "bench/bench.h"
#include "ops/embedding/cases.h"

namespace aclgrad::bench {
namespace {

// Row v of the table is drawn with a weight of about 1 / (v + 1), as words of a text are when the
// vocabulary is ordered by frequency.
std::vector<double> indices_of_text(int64_t count, int64_t table_rows) {
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
      : table({table_rows, cols}, dtype), indices({rows}, ACL_INT64), y({rows, cols}, dtype) {
    const std::vector<double> drawn = indices_of_text(rows, table_rows);
    indices.fill(drawn);
    std::vector<bool> used(static_cast<size_t>(table_rows), false);
    for (const double index : drawn) used[static_cast<size_t>(index)] = true;
    used_rows = std::count(used.begin(), used.end(), true);
  }
  // Table rows that nobody looks up are not read.
  int64_t bytes() const {
    return y.bytes() / indices.numel() * used_rows + indices.bytes() + y.bytes();
  }

  Tensor table, indices, y;
  int64_t used_rows = 0;
};

Problem make(aclDataType dtype, const std::string& shape) {
  const Dims dims = parse_dims(shape, 3);
  if (dims[0] < 1 || dims[1] < 1 || dims[2] < 1) {
    throw std::invalid_argument("expected a table and indices that are not empty");
  }
  auto t = std::make_shared<Tensors>(dims[0], dims[1], dims[2], dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnEmbeddingGetWorkspaceSize(t->table.handle(), t->indices.handle(),
                                                  t->y.handle(), size, executor);
          },
          aclnnEmbedding, t->bytes()};
}

[[maybe_unused]] const bool added = add({"embedding", make, embedding::bench_shapes()});

}  // namespace
}  // namespace aclgrad::bench

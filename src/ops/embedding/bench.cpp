// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "aclnnop/aclnn_embedding.h"
#include "bench/bench.h"
#include "bench/lookups.h"
#include "ops/embedding/cases.h"

namespace aclgrad::bench {
namespace {

struct Tensors {
  Tensors(const LookupShape& shape, aclDataType dtype)
      : table({shape.table_rows, shape.width}, dtype),
        indices({shape.count}, ACL_INT64),
        y({shape.count, shape.width}, dtype) {
    const std::vector<double> drawn = indices_of(shape);
    indices.fill(drawn);
    std::vector<bool> used(static_cast<size_t>(shape.table_rows), false);
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

void check(aclDataType, const std::string& shape) {
  if (parse_lookups(shape).by_frequency) {
    throw std::invalid_argument("shape '" + shape + "': -freq is for gradients");
  }
}

Problem make(aclDataType dtype, const std::string& shape) {
  check(dtype, shape);
  auto t = std::make_shared<Tensors>(parse_lookups(shape), dtype);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnEmbeddingGetWorkspaceSize(t->table.handle(), t->indices.handle(),
                                                  t->y.handle(), size, executor);
          },
          aclnnEmbedding, t->bytes()};
}

[[maybe_unused]] const bool added =
    add({"embedding", check, make, in_dtypes(kAllFloats, embedding::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "bench/bench.h"
#include "bench/lookups.h"
#include "ops/embedding_dense_backward/cases.h"

namespace aclgrad::bench {
namespace {

struct Tensors {
  Tensors(const LookupShape& shape, aclDataType dtype)
      : dy({shape.count, shape.width}, dtype),
        indices({shape.count}, ACL_INT64),
        dw({shape.table_rows, shape.width}, dtype) {
    indices.fill(indices_of(shape));
  }
  int64_t bytes() const { return dy.bytes() + indices.bytes() + dw.bytes(); }

  Tensor dy, indices, dw;
};

void check(aclDataType, const std::string& shape) { parse_lookups(shape); }

Problem make(aclDataType dtype, const std::string& shape) {
  const LookupShape lookups = parse_lookups(shape);
  const auto table_rows = static_cast<uint64_t>(lookups.table_rows);
  const bool by_frequency = lookups.by_frequency;
  auto t = std::make_shared<Tensors>(lookups, dtype);
  return {[t, table_rows, by_frequency](uint64_t* size, aclOpExecutor** executor) {
            return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
                t->dy.handle(), t->indices.handle(), table_rows, ~uint64_t{0}, by_frequency,
                t->dw.handle(), size, executor);
          },
          aclnnEmbeddingDenseBackward, t->bytes(), static_cast<double>(t->dy.numel())};
}

[[maybe_unused]] const bool added =
    add({"embedding_dense_backward", check, make,
         in_dtypes(kAllFloats, embedding_dense_backward::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

// SPDX-License-Identifier: Apache-2.0
// The bits of EmbeddingDenseBackward: all shapes and dtypes, runs of every length around the
// chains, the long runs and the segments, rows that are aligned and others.
#include <algorithm>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "operators.h"
#include "ops/embedding_dense_backward/cases.h"

namespace aclgrad::test {
namespace {

struct Dtypes {
  aclDataType grad, out;
};

// `runs`: how often each table row occurs; empty: any indices.
void print_case(std::string name, int64_t rows, int64_t table_rows, int64_t cols, Dtypes dtypes,
                Arrangement arrangement, bool scale, const std::vector<int64_t>& runs) {
  Tensor grad({rows, cols}, dtypes.grad, arrangement), indices({rows}, ACL_INT64);
  Tensor out({table_rows, cols}, dtypes.out, arrangement);
  grad.fill_normal(1);
  indices.fill_integers(2, 0, table_rows - 1);
  if (!runs.empty()) {
    std::vector<double> values;
    for (size_t row = 0; row < runs.size(); ++row) {
      values.insert(values.end(), static_cast<size_t>(runs[row]), static_cast<double>(row));
    }
    // Coprime to the number of indices, so every one is met.
    constexpr size_t kStep = 7919;
    std::vector<double> mixed(values.size());
    for (size_t i = 0; i < mixed.size(); ++i) mixed[i] = values[i * kStep % values.size()];
    indices.fill(mixed);
  }
  const Outcome outcome = run(
      [&](uint64_t* size, aclOpExecutor** executor) {
        return aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad.handle(), indices.handle(),
                                                           static_cast<uint64_t>(table_rows), 1,
                                                           scale, out.handle(), size, executor);
      },
      aclnnEmbeddingDenseBackward);
  name = std::string("embedding_dense_backward/") + dtype_short_name(dtypes.grad) + "-" +
         dtype_short_name(dtypes.out) + "/" + name + "x" + std::to_string(cols) + " " +
         arrangement_name(arrangement) + (scale ? " scaled" : "");
  print_digest(name, outcome, out);
}

}  // namespace

void print_embedding_dense_backward() {
  const std::vector<int64_t> runs = {1,    2,    15,   0,    16,   17,   31,   32,   33,
                                     63,   64,   65,   66,   129,  511,  0,    1023, 1024,
                                     1025, 2047, 2048, 2049, 3071, 3072, 4100, 1,    0};
  int64_t rows = 0;
  for (const int64_t length : runs) rows += length;
  for (const aclDataType dtype : kFloats) {
    const Dtypes same{dtype, dtype};
    for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kRowPadded}) {
      for (const auto& shape : embedding_dense_backward::test_shapes()) {
        print_case(std::to_string(shape.rows) + "x" + std::to_string(shape.table_rows), shape.rows,
                   shape.table_rows, shape.cols, same, arrangement, false, {});
      }
      for (const int64_t cols : {1, 19, 64, 400}) {
        print_case("runs", rows, std::ssize(runs), cols, same, arrangement, cols == 64, runs);
      }
    }
    for (const aclDataType out : kFloats) {
      print_case("mixed", 500, 40, 72, {dtype, out}, Arrangement::kContiguous, true, {});
    }
  }
}

}  // namespace aclgrad::test

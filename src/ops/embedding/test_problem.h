// SPDX-License-Identifier: Apache-2.0
// A problem of Embedding with random data, its two phases and what it must give.
#pragma once

#include <algorithm>
#include <vector>

#include "aclnnop/aclnn_embedding.h"
#include "ops/embedding/cases.h"
#include "ops/embedding/reference.h"
#include "support/compare.h"
#include "support/random.h"
#include "support/run.h"
#include "support/tensor.h"

namespace aclgrad::test {

using embedding::Shape;

inline constexpr aclDataType kDtypes[] = {ACL_BF16,  ACL_FLOAT,  ACL_FLOAT16,   ACL_INT64,
                                          ACL_INT32, ACL_INT16,  ACL_INT8,      ACL_UINT8,
                                          ACL_BOOL,  ACL_DOUBLE, ACL_COMPLEX64, ACL_COMPLEX128};
// One of every size.
inline constexpr aclDataType kSizes[] = {ACL_INT8, ACL_BF16, ACL_FLOAT, ACL_DOUBLE, ACL_COMPLEX128};

// What a problem may choose; the defaults are the plain case.
struct Options {
  aclDataType dtype = ACL_FLOAT, indices = ACL_INT64;
  Arrangement table_in = Arrangement::kContiguous;
  Arrangement indices_in = Arrangement::kContiguous;
  Arrangement out_in = Arrangement::kContiguous;
};

inline Options all_of(aclDataType dtype) {
  Options options;
  options.dtype = dtype;
  return options;
}

inline Dims with_last(Dims dims, int64_t last) {
  dims.push_back(last);
  return dims;
}

// The tensors of one problem with random bytes in the table, and its two phases.
struct Problem {
  Problem(const Dims& indices_dims, int64_t table_rows, int64_t cols, const Options& chosen,
          uint64_t seed = 1)
      : table({table_rows, cols}, chosen.dtype, chosen.table_in),
        indices(indices_dims, chosen.indices, chosen.indices_in),
        out(with_last(indices_dims, cols), chosen.dtype, chosen.out_in) {
    std::vector<uint8_t> bytes(static_cast<size_t>(table.numel()) * table.element_size());
    Random random(seed);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
    table.fill_bits(bytes);
    indices.fill_integers(seed + 1, 0, std::max<int64_t>(table_rows, 1) - 1);
  }
  Problem(const Shape& shape, const Options& chosen, uint64_t seed = 1)
      : Problem({shape.rows}, shape.table_rows, shape.cols, chosen, seed) {}

  Outcome run_it() {
    return run(
        [&](uint64_t* size, aclOpExecutor** executor) {
          return aclnnEmbeddingGetWorkspaceSize(table.handle(), indices.handle(), out.handle(),
                                                size, executor);
        },
        aclnnEmbedding);
  }
  void expect_right() const {
    const auto table_rows = static_cast<size_t>(table.dims()[0]);
    const auto r = embedding::reference(table.bits(), table_rows,
                                        static_cast<size_t>(table.dims()[1]) * table.element_size(),
                                        indices.values(), table.dtype());
    expect_same_bits("out", out.bits(), r.y);
    EXPECT_TRUE(out.untouched_outside()) << "bytes outside the view were written";
  }
  void run_and_check() {
    const Outcome outcome = run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    expect_right();
  }

  Tensor table, indices, out;
};

}  // namespace aclgrad::test

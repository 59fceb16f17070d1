// SPDX-License-Identifier: Apache-2.0
// The bits of Embedding: rows of every alignment, NaNs among them.
#include <limits>

#include "aclnnop/aclnn_embedding.h"
#include "operators.h"

namespace aclgrad::test {

void print_embedding() {
  constexpr int64_t kRows = 50, kTable = 17;
  for (const int64_t cols : {1, 3, 8, 20, 64, 257, 4096}) {
    for (const aclDataType dtype : {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_INT8}) {
      for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kRowPadded}) {
        Tensor table({kTable, cols}, dtype, arrangement), indices({kRows}, ACL_INT64);
        Tensor y({kRows, cols}, dtype, arrangement);
        std::vector<double> values = integer_values(kTable * cols, 1, 0, 100);
        if (dtype != ACL_INT8) values[0] = std::numeric_limits<double>::quiet_NaN();
        table.fill(values);
        indices.fill_integers(2, 0, kTable - 1);
        const Outcome outcome = run(
            [&](uint64_t* size, aclOpExecutor** executor) {
              return aclnnEmbeddingGetWorkspaceSize(table.handle(), indices.handle(), y.handle(),
                                                    size, executor);
            },
            aclnnEmbedding);
        print_digest(std::string("embedding/") + dtype_short_name(dtype) + "/" +
                         std::to_string(cols) + " " + arrangement_name(arrangement),
                     outcome, y);
      }
    }
  }
}

}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// Looking rows up in a table and the table's gradient: aclnnEmbedding, then
// aclnnEmbeddingDenseBackward, which sums the gradients of all places where a row was used.
//
// Every operator is called in two phases. The first, ...GetWorkspaceSize, gets all tensors, checks
// them and says how many bytes of scratch memory the work needs; it computes nothing. The second
// gets that memory and puts the work on a stream. run() of device_tensor.h does the second phase.
#include "aclnnop/aclnn_embedding.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"

#include "../device_tensor.h"

namespace {

// A table of four words, three numbers each, and a text of four words: 1 2 1 3.
struct Example {
  DeviceTensor<float> table{{4, 3}, ACL_FLOAT, {0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};
  DeviceTensor<int64_t> words{{4}, ACL_INT64, {1, 2, 1, 3}};
  DeviceTensor<float> rows{{4, 3}, ACL_FLOAT};
};

void forward(Example& e) {
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnEmbeddingGetWorkspaceSize(e.table.get(), e.words.get(), e.rows.get(), &workspace_size,
                                       &executor),
        "aclnnEmbeddingGetWorkspaceSize");
  // An index that is not in the table would be found while running, and reported by the wait.
  run("aclnnEmbedding", aclnnEmbedding, workspace_size, executor);
}

}  // namespace

int main() {
  Device device;
  Example e;
  forward(e);
  const std::vector<float> rows = e.rows.read();
  for (size_t word = 0; word < 4; ++word) print("row", rows, word * 3, word * 3 + 3);

  // The loss is any number made of the rows. Here it is the sum of rows[i] * dy[i], so that dy is
  // its gradient.
  const std::vector<float> dy = {1, 2, 3, 4, 5, 6, 10, 20, 30, 7, 7, 7};
  DeviceTensor<float> grad({4, 3}, ACL_FLOAT, dy);
  DeviceTensor<float> grad_table({4, 3}, ACL_FLOAT);
  const uint64_t words_in_table = 4;
  const uint64_t padding = 3;  // this word stands for "nothing": its row gets no gradient
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnEmbeddingDenseBackwardGetWorkspaceSize(grad.get(), e.words.get(), words_in_table,
                                                    padding, false, grad_table.get(),
                                                    &workspace_size, &executor),
        "aclnnEmbeddingDenseBackwardGetWorkspaceSize");
  run("aclnnEmbeddingDenseBackward", aclnnEmbeddingDenseBackward, workspace_size, executor);
  const std::vector<float> gradients = grad_table.read();
  for (size_t word = 0; word < 4; ++word) {
    print("gradient of word", gradients, word * 3, word * 3 + 3);
  }

  // The round trip: nudge one number of the table and see how the loss answers.
  const size_t nudged = 4;  // the second number of word 1, which stands in the text twice
  std::vector<float> table = e.table.read();
  const double before = weighted_sum(rows, dy);
  table[nudged] += 0.5f;
  e.table.write(table);
  forward(e);
  const double after = weighted_sum(e.rows.read(), dy);
  std::printf("gradient[%zu] %g, by difference %g\n", nudged,
              static_cast<double>(gradients[nudged]), (after - before) / 0.5);
  return 0;
}

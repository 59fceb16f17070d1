// SPDX-License-Identifier: Apache-2.0
// What EmbeddingDenseBackward refuses: the README's first error table, row by row.
#include <gtest/gtest.h>

#include <string>

#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "support/error_rows.h"

namespace aclgrad::test {
namespace {

// A valid call, changed by a row of the error table.
struct Call {
  static constexpr const char* kOp = "aclnnEmbeddingDenseBackward";
  Tensor grad{{2, 4}, ACL_FLOAT}, indices{{2}, ACL_INT64}, out{{3, 4}, ACL_FLOAT};
  const aclTensor *grad_at = grad.handle(), *indices_at = indices.handle(), *out_at = out.handle();
  uint64_t num_weights = 3;

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    return aclnnEmbeddingDenseBackwardGetWorkspaceSize(
        grad_at, indices_at, num_weights, 0, false, const_cast<aclTensor*>(out_at), size, executor);
  }
};

constexpr TensorParameter<Call> kParameters[] = {{"grad", &Call::grad_at, &Call::grad},
                                                 {"indices", &Call::indices_at, &Call::indices},
                                                 {"out", &Call::out_at, &Call::out}};

TEST(EmbeddingDenseBackward, ErrorTableNullsAndHandles) {
  expect_status(Call(), 0, {});
  expect_nulls_refused(kParameters);
  expect_wrong_handles_refused(kParameters);
}

TEST(EmbeddingDenseBackward, ErrorTableDtypesFormatsRanks) {
  refused_with(&Call::grad_at, Tensor({2, 4}, ACL_DOUBLE),
               {named<Call>("grad"), "DOUBLE", "BFLOAT16"});
  refused_with(&Call::indices_at, Tensor({2}, ACL_BF16),
               {named<Call>("indices"), "BFLOAT16", "INT64"});
  refused_with(&Call::indices_at, Tensor({2}, ACL_UINT16),
               {named<Call>("indices"), "UINT16", "BOOL"});
  refused_with(&Call::out_at, Tensor({3, 4}, ACL_INT32), {named<Call>("out"), "INT32", "FLOAT16"});
  expect_private_formats_refused(kParameters);
  refused_with(&Call::grad_at, Tensor({}, ACL_FLOAT), {named<Call>("grad"), "0 dim", "1 to 8"});
  refused_with(&Call::grad_at, Tensor(Dims(9, 1), ACL_FLOAT),
               {named<Call>("grad"), "9 dim", "1 to 8"});
  refused_with(&Call::indices_at, Tensor(Dims(9, 1), ACL_INT64),
               {named<Call>("indices"), "9 dim", "0 to 8"});
  refused_with(&Call::out_at, Tensor({12}, ACL_FLOAT), {named<Call>("out"), "1 dim", "2"});
  refused_with(&Call::out_at, Tensor({3, 2, 2}, ACL_FLOAT), {named<Call>("out"), "3 dim", "2"});
  refused_with(&Call::grad_at, Tensor({-2, 4}, ACL_FLOAT),
               {named<Call>("grad"), "[-2,4]", "negative"});
}

// The tensor `which` becomes this view of the memory of tensor `source`.
void refused_as_view(size_t which, size_t source, const Dims& dims, const Dims& strides,
                     std::initializer_list<std::string> substrings) {
  Call call;
  const int64_t storage = 12;
  const Tensor& memory = call.*kParameters[source].valid;
  if (which == 2) call.num_weights = static_cast<uint64_t>(dims[0]);
  aclTensor* view = aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT, strides.data(), 0,
                                    ACL_FORMAT_ND, &storage, 1, memory.address());
  expect_view_refused(call, kParameters[which].passed, view, substrings);
}

TEST(EmbeddingDenseBackward, ErrorTableShapesSizesBoundsOverlap) {
  refused_with(&Call::indices_at, Tensor({3}, ACL_INT64),
               {named<Call>("indices"), "[3]", "2 elements"});
  refused_with(&Call::grad_at, Tensor({3, 4}, ACL_FLOAT),
               {named<Call>("indices"), "3 elements", "[3,4]"});
  refused_with(&Call::out_at, Tensor({4, 4}, ACL_FLOAT), {named<Call>("out"), "[4,4]", "[3,4]"});
  refused_with(&Call::out_at, Tensor({3, 5}, ACL_FLOAT), {named<Call>("out"), "[3,5]", "[3,4]"});
  Call many;
  many.num_weights = ~uint64_t{0};
  expect_status(many, kInvalid, {named<Call>("out"), "[3,4]", "18446744073709551615"});
  constexpr int64_t kHuge = int64_t{1} << 61;
  refused_as_view(0, 0, {kHuge, 4}, {4, 1}, {named<Call>("grad"), std::to_string(kHuge)});
  refused_as_view(2, 2, {kHuge, 4}, {4, 1}, {named<Call>("out"), std::to_string(kHuge)});
  refused_as_view(0, 0, {2, 4}, {1000000, 1}, {named<Call>("grad"), "allocation"});
  refused_as_view(2, 2, {3, 4}, {1000000, 1}, {named<Call>("out"), "allocation"});
  refused_as_view(2, 2, {3, 4}, {0, 1}, {named<Call>("out"), "[0,1]"});
  refused_as_view(2, 0, {3, 4}, {4, 1}, {named<Call>("out"), "grad"});
  refused_as_view(2, 1, {3, 4}, {4, 1}, {named<Call>("out"), "indices"});
}

}  // namespace
}  // namespace aclgrad::test

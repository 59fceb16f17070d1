// SPDX-License-Identifier: Apache-2.0
// What Embedding refuses: the README's first error table, row by row.
#include <gtest/gtest.h>

#include <string>

#include "aclnnop/aclnn_embedding.h"
#include "support/error_rows.h"

namespace aclgrad::test {
namespace {

// A valid call, changed by a row of the error table.
struct Call {
  static constexpr const char* kOp = "aclnnEmbedding";
  Tensor table{{3, 4}, ACL_FLOAT}, indices{{2}, ACL_INT64}, out{{2, 4}, ACL_FLOAT};
  const aclTensor *table_at = table.handle(), *indices_at = indices.handle(),
                  *out_at = out.handle();

  aclnnStatus plan(uint64_t* size, aclOpExecutor** executor) const {
    return aclnnEmbeddingGetWorkspaceSize(table_at, indices_at, const_cast<aclTensor*>(out_at),
                                          size, executor);
  }
};

constexpr TensorParameter<Call> kParameters[] = {{"weight", &Call::table_at, &Call::table},
                                                 {"indices", &Call::indices_at, &Call::indices},
                                                 {"out", &Call::out_at, &Call::out}};

TEST(Embedding, ErrorTableNullsAndHandles) {
  expect_status(Call(), 0, {});
  expect_nulls_refused(kParameters);
  expect_wrong_handles_refused(kParameters);
}

TEST(Embedding, ErrorTableDtypesFormatsRanks) {
  for (const aclDataType dtype : {ACL_UINT16, ACL_UINT32, ACL_UINT64, ACL_COMPLEX32, ACL_STRING}) {
    refused_with(&Call::table_at, Tensor({3, 4}, dtype),
                 {named<Call>("weight"), dtype_name(dtype)});
  }
  for (const aclDataType dtype : {ACL_FLOAT, ACL_INT16, ACL_UINT8, ACL_BOOL}) {
    refused_with(&Call::indices_at, Tensor({2}, dtype),
                 {named<Call>("indices"), dtype_name(dtype), "INT32", "INT64"});
  }
  refused_with(&Call::out_at, Tensor({2, 4}, ACL_FLOAT16),
               {named<Call>("out"), "FLOAT16", "weight"});
  expect_private_formats_refused(kParameters);
  refused_with(&Call::table_at, Tensor({12}, ACL_FLOAT), {named<Call>("weight"), "1 dim", "2"});
  refused_with(&Call::table_at, Tensor({3, 2, 2}, ACL_FLOAT),
               {named<Call>("weight"), "3 dim", "2"});
  refused_with(&Call::table_at, Tensor({-3, 4}, ACL_FLOAT),
               {named<Call>("weight"), "[-3,4]", "negative"});
  refused_with(&Call::indices_at, Tensor(Dims(8, 1), ACL_INT64),
               {named<Call>("indices"), "8 dim", "0 to 7"});
  refused_with(&Call::out_at, Tensor({}, ACL_FLOAT), {named<Call>("out"), "0 dim", "1 to 8"});
  refused_with(&Call::out_at, Tensor(Dims(9, 1), ACL_FLOAT),
               {named<Call>("out"), "9 dim", "1 to 8"});
}

// The tensor `which` becomes this view of the memory of tensor `source`.
void refused_as_view(size_t which, size_t source, const Dims& dims, const Dims& strides,
                     std::initializer_list<std::string> substrings) {
  Call call;
  const int64_t storage = 12;
  const Tensor& memory = call.*kParameters[source].valid;
  aclTensor* view = aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT, strides.data(), 0,
                                    ACL_FORMAT_ND, &storage, 1, memory.address());
  expect_view_refused(call, kParameters[which].passed, view, substrings);
}

TEST(Embedding, ErrorTableShapesSizesBoundsOverlap) {
  refused_with(&Call::out_at, Tensor({3, 4}, ACL_FLOAT), {named<Call>("out"), "[3,4]", "[2,4]"});
  refused_with(&Call::out_at, Tensor({2, 5}, ACL_FLOAT), {named<Call>("out"), "[2,5]", "[2,4]"});
  refused_with(&Call::out_at, Tensor({8}, ACL_FLOAT), {named<Call>("out"), "[8]", "[2,4]"});
  refused_with(&Call::out_at, Tensor({2, 1, 4}, ACL_FLOAT),
               {named<Call>("out"), "[2,1,4]", "[2,4]"});
  constexpr int64_t kHuge = int64_t{1} << 61;
  refused_as_view(0, 0, {kHuge, 4}, {4, 1}, {named<Call>("weight"), std::to_string(kHuge)});
  refused_as_view(0, 0, {3, 4}, {1000000, 1}, {named<Call>("weight"), "allocation"});
  refused_as_view(2, 2, {2, 4}, {1000000, 1}, {named<Call>("out"), "allocation"});
  refused_as_view(2, 2, {2, 4}, {0, 1}, {named<Call>("out"), "[0,1]"});
  refused_as_view(2, 0, {2, 4}, {4, 1}, {named<Call>("out"), "weight"});
  refused_as_view(2, 1, {2, 4}, {4, 1}, {named<Call>("out"), "indices"});
}

}  // namespace
}  // namespace aclgrad::test

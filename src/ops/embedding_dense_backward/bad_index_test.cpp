// SPDX-License-Identifier: Apache-2.0
// What EmbeddingDenseBackward reports of indices that name no row: the README's table of errors in
// data.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/embedding_dense_backward/test_problem.h"
#include "support/bad_indices.h"

namespace aclgrad::test {
namespace {

void expect_reported(Problem& problem, const std::string& value, const std::string& position) {
  expect_bad_index(problem, "aclnnEmbeddingDenseBackward", problem.num_weights, value, position);
}

TEST(EmbeddingDenseBackward, BadIndexIsReportedAndEverythingElseIsRight) {
  const BadIndex rows[] = {{ACL_INT64, 5, "5"},
                           {ACL_INT64, -1, "-1"},
                           {ACL_INT64, 0x1p32, "4294967296"},
                           {ACL_INT32, 5, "5"},
                           {ACL_INT32, -1, "-1"},
                           {ACL_INT16, -300, "-300"},
                           {ACL_INT8, -128, "-128"},
                           {ACL_UINT8, 255, "255"},
                           {ACL_FLOAT, 5, "5"},
                           {ACL_FLOAT, -1, "-1"},
                           {ACL_FLOAT, kNan, "nan"},
                           {ACL_FLOAT, kInf, "inf"},
                           {ACL_FLOAT16, kNan, "nan"},
                           {ACL_DOUBLE, -kNan, "nan"},
                           {ACL_FLOAT16, 5.5, "5.5"},
                           {ACL_DOUBLE, -kInf, "-inf"},
                           {ACL_DOUBLE, 1e30, "1e+30"},
                           {ACL_DOUBLE, -1e300, "-1.0000000000000001e+300"}};
  for (const BadIndex& row : rows) {
    SCOPED_TRACE(std::string(dtype_name(row.dtype)) + " " + row.value);
    Options options;
    options.indices = row.dtype;
    options.scale = true;
    Problem problem({300, 5, 7}, options);
    std::vector<double> indices = problem.indices.values();
    indices[17] = indices[200] = row.index;
    indices[250] = row.dtype == ACL_UINT8 ? 6 : -7;
    problem.indices.fill(indices);
    expect_reported(problem, row.value, "17");
  }
  Options options;
  options.indices = ACL_BOOL;
  Problem one_row({3, 1, 2}, options);
  one_row.indices.fill_bits({0, 7, 0});
  expect_reported(one_row, "1", "1");
}

TEST(EmbeddingDenseBackward, WidestIntegersAreComparedIn64Bits) {
  expect_widest_integers_reported([] { return Problem({1, 3, 2}, Options()); }, expect_reported);
}

TEST(EmbeddingDenseBackward, LowestBadPositionForAnyNumberOfThreads) {
  expect_lowest_position_reported(
      [] {
        return Problem({100000, 10, 1}, Options());
      },
      expect_reported);
  Problem all_bad({2000, 3, 20}, Options());
  all_bad.indices.fill_constant(3);
  expect_reported(all_bad, "3", "0");
}

}  // namespace
}  // namespace aclgrad::test

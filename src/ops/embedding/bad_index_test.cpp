// SPDX-License-Identifier: Apache-2.0
// What Embedding reports of indices that name no row: the README's table of errors in data.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ops/embedding/test_problem.h"
#include "support/bad_indices.h"

namespace aclgrad::test {
namespace {

void expect_reported(Problem& problem, const std::string& value, const std::string& position) {
  expect_bad_index(problem, "aclnnEmbedding", static_cast<uint64_t>(problem.table.dims()[0]), value,
                   position);
}

TEST(Embedding, BadIndexIsReportedAndItsRowIsZero) {
  const BadIndex rows[] = {
      {ACL_INT64, 5, "5"}, {ACL_INT64, -1, "-1"}, {ACL_INT64, 0x1p32, "4294967296"},
      {ACL_INT32, 5, "5"}, {ACL_INT32, -1, "-1"}, {ACL_INT32, -0x1p31, "-2147483648"}};
  for (const BadIndex& row : rows) {
    for (const aclDataType dtype : kSizes) {
      SCOPED_TRACE(std::string(dtype_name(row.dtype)) + " " + row.value);
      Options options = all_of(dtype);
      options.indices = row.dtype;
      Problem problem({300, 5, 7}, options);
      std::vector<double> indices = problem.indices.values();
      indices[17] = indices[200] = row.index;
      indices[250] = -7;
      problem.indices.fill(indices);
      expect_reported(problem, row.value, "17");
    }
  }
  Problem no_table({3, 0, 2}, Options());  // every index is bad
  no_table.indices.fill({0, 1, 2});
  expect_reported(no_table, "0", "0");
}

TEST(Embedding, WidestIntegersAreComparedIn64Bits) {
  expect_widest_integers_reported([] { return Problem({1, 3, 2}, Options()); }, expect_reported);
}

TEST(Embedding, LowestBadPositionForAnyNumberOfThreads) {
  expect_lowest_position_reported(
      [] {
        return Problem({100000, 10, 1}, Options());
      },
      expect_reported);
  Problem wide({3, 2, 270001}, Options());  // every panel of a row meets its index
  wide.indices.fill({1, 2, -4});
  expect_reported(wide, "2", "1");
}

}  // namespace
}  // namespace aclgrad::test

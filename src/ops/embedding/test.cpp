// SPDX-License-Identifier: Apache-2.0
// Embedding through the C interface: copies of rows, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "ops/embedding/test_problem.h"
#include "support/same_bits.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

TEST(Embedding, SmallExample) {
  Problem problem({2, 2}, 3, 2, Options());
  problem.table.fill({1, 2, 3, 4, 5, 6});
  problem.indices.fill({2, 0, 2, 1});
  ASSERT_TRUE(problem.run_it().ok());
  EXPECT_EQ(problem.out.values(), (std::vector<double>{5, 6, 1, 2, 5, 6, 3, 4}));
}

// Every shape in every size of element: right on all targets and for all thread counts.
TEST(Embedding, MatchesReferenceOnEveryTargetAndThreadCount) {
  for (const Shape& shape : embedding::test_shapes()) {
    for (const aclDataType dtype : kSizes) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.table_rows) + "x" + std::to_string(shape.cols));
      Problem problem(shape, all_of(dtype));
      problem.run_and_check();
      expect_same_bits_everywhere([&] { return problem.run_it(); }, {&problem.out});
    }
  }
}

// Outputs beyond the cache are written past it, on every target and at every alignment; a bad index
// is among them.
TEST(Embedding, LargeOutputs) {
  const auto run_large = [](int64_t cols, Arrangement out, aclDataType dtype = ACL_INT8) {
    Options options = all_of(dtype);
    options.out_in = out;
    const int64_t rows = (int64_t{24} << 20) / (cols * static_cast<int64_t>(dtype_size(dtype)));
    Problem problem({rows, 50, cols}, options);
    std::vector<double> indices = problem.indices.values();
    indices[7] = 50;
    problem.indices.fill(indices);
    const Outcome outcome = problem.run_it();
    EXPECT_EQ(outcome.phase_two, 0);
    EXPECT_EQ(outcome.synchronise, ACL_ERROR_RT_AICORE_EXCEPTION);
    problem.expect_right();
  };
  for_each_target([&](const std::string&) {
    run_large(1027, Arrangement::kOffset);
    run_large(61, Arrangement::kOffset);
    run_large(33, Arrangement::kOffset, ACL_FLOAT);
    run_large(101, Arrangement::kOffset, ACL_FLOAT16);
    run_large(40, Arrangement::kContiguous, ACL_INT32);
    run_large(21, Arrangement::kOffset, ACL_FLOAT16);
    run_large(11, Arrangement::kContiguous, ACL_FLOAT);
  });
  run_large(1024, Arrangement::kContiguous);
  run_large(300, Arrangement::kRowPadded);
}

TEST(Embedding, EveryDtype) {
  uint64_t seed = 0;
  for (const aclDataType dtype : kDtypes) {
    for (const aclDataType indices : {ACL_INT32, ACL_INT64}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", indices " + dtype_name(indices));
      Options options = all_of(dtype);
      options.indices = indices;
      Problem({90, 11, 37}, options, ++seed).run_and_check();
    }
  }
}

TEST(Embedding, IndicesOfEveryRank) {
  for (const Dims& dims :
       {Dims{}, Dims{1}, Dims{24}, Dims{4, 6}, Dims{2, 1, 3}, Dims{1, 2, 3, 1, 2, 2, 1}}) {
    Problem(dims, 5, 3, Options()).run_and_check();
  }
}

TEST(Embedding, EveryStridedView) {
  for (const aclDataType dtype : kSizes) {
    for (const Arrangement in : kInputArrangements) {
      for (const Arrangement out : kOutputArrangements) {
        SCOPED_TRACE(std::string(arrangement_name(in)) + " to " + arrangement_name(out));
        Options options = all_of(dtype);
        options.table_in = in;
        options.out_in = out;
        Problem({6, 50}, 30, 21, options).run_and_check();
      }
      Options options = all_of(dtype);
      options.indices_in = in;
      options.indices = dtype == ACL_FLOAT ? ACL_INT32 : ACL_INT64;
      Problem({6, 50}, 30, 21, options).run_and_check();
    }
  }
}

// Rows of the table may lie anywhere as long as each is dense: nothing is packed then.
TEST(Embedding, NoWorkspace) {
  for (const Arrangement arrangement :
       {Arrangement::kContiguous, Arrangement::kRowPadded, Arrangement::kReversedRows}) {
    Options options;
    options.table_in = options.out_in = arrangement;
    Problem problem({300, 40, 64}, options);
    const Outcome outcome = problem.run_it();
    ASSERT_TRUE(outcome.ok()) << outcome;
    EXPECT_EQ(outcome.workspace_size, 0u);
  }
}

// A row of `cols` elements around NaNs: quiet and signalling, with payloads, of either sign, next
// to what is no NaN by one bit.
template <class Bits>
std::vector<uint8_t> nan_row(Bits infinity, size_t cols) {
  const auto sign = static_cast<Bits>(~(std::numeric_limits<Bits>::max() >> 1));
  const auto bit = [&](Bits value) { return static_cast<Bits>(infinity + value); };
  const Bits values[] = {0,         sign,
                         1,         static_cast<Bits>(infinity - 1),
                         infinity,  static_cast<Bits>(infinity | sign),
                         bit(1),    static_cast<Bits>(bit(1) | sign),
                         bit(0x55), std::numeric_limits<Bits>::max(),
                         bit(0x2A), static_cast<Bits>(std::numeric_limits<Bits>::max() >> 1)};
  std::vector<uint8_t> bytes(cols * sizeof(Bits));
  for (size_t i = 0; i < cols; ++i) {
    std::memcpy(&bytes[i * sizeof(Bits)], &values[i % std::size(values)], sizeof(Bits));
  }
  return bytes;
}

std::vector<uint8_t> nan_row(aclDataType dtype, size_t cols) {
  switch (dtype) {
    case ACL_FLOAT16:
      return nan_row<uint16_t>(0x7C00u, cols);
    case ACL_BF16:
      return nan_row<uint16_t>(0x7F80u, cols);
    case ACL_FLOAT:
      return nan_row<uint32_t>(0x7F800000u, cols);
    case ACL_COMPLEX64:
      return nan_row<uint32_t>(0x7F800000u, 2 * cols);
    case ACL_DOUBLE:
      return nan_row<uint64_t>(0x7FF0000000000000u, cols);
    default:
      return nan_row<uint64_t>(0x7FF0000000000000u, 2 * cols);
  }
}

// Rows from a single element up to several registers and a tail; strided and shifted ones too.
TEST(Embedding, NansBecomeCanonicalOnEveryTarget) {
  for (const aclDataType dtype :
       {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_DOUBLE, ACL_COMPLEX64, ACL_COMPLEX128}) {
    for (const int64_t cols : {1, 3, 5, 8, 12, 16, 31, 32, 33, 70, 131}) {
      for (const Arrangement out_in : {Arrangement::kContiguous, Arrangement::kOffset}) {
        SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(cols));
        Options options = all_of(dtype);
        options.out_in = out_in;
        Problem problem({5}, 1, cols, options);
        problem.table.fill_bits(nan_row(dtype, static_cast<size_t>(cols)));
        for_each_target([&](const std::string&) {
          problem.out.poison();
          problem.run_and_check();
        });
      }
    }
  }
}

// The same bits written out, so that they do not depend on the reference.
TEST(Embedding, CanonicalNanOfEachDtype) {
  const auto looked_up = [](aclDataType dtype, const std::vector<uint8_t>& row) {
    Problem problem({1, 1, 1}, all_of(dtype));
    problem.table.fill_bits(row);
    EXPECT_TRUE(problem.run_it().ok());
    return problem.out.bits();
  };
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(looked_up(ACL_FLOAT, {1, 0, 0xA0, 0xFF}), (Bytes{0, 0, 0xC0, 0x7F}));
  EXPECT_EQ(looked_up(ACL_FLOAT16, {1, 0xFC}), (Bytes{0, 0x7E}));
  EXPECT_EQ(looked_up(ACL_BF16, {0x81, 0xFF}), (Bytes{0xC0, 0x7F}));
  const Bytes quiet = {0, 0, 0, 0, 0, 0, 0xF8, 0x7F};
  const Bytes nan = {9, 0, 0, 0, 0, 0, 0xF0, 0xFF};
  EXPECT_EQ(looked_up(ACL_DOUBLE, nan), quiet);
  EXPECT_EQ(looked_up(ACL_COMPLEX64, {1, 0, 0x80, 0x7F, 0, 0, 0x80, 0xFF}),
            (Bytes{0, 0, 0xC0, 0x7F, 0, 0, 0x80, 0xFF}));
  Bytes imaginary(16, 0), expected(16, 0);
  std::copy(nan.begin(), nan.end(), imaginary.begin() + 8);
  std::copy(quiet.begin(), quiet.end(), expected.begin() + 8);
  EXPECT_EQ(looked_up(ACL_COMPLEX128, imaginary), expected);
}

// Floating bit patterns among integers, and bytes that are no truth value, come through as they
// are.
TEST(Embedding, IntegersAndTruthValuesAreNotLookedAt) {
  Problem truths({2, 1, 4}, all_of(ACL_BOOL));
  truths.table.fill_bits({0, 1, 2, 255});
  truths.run_and_check();
  for (const aclDataType dtype : {ACL_INT8, ACL_UINT8, ACL_INT16, ACL_INT32, ACL_INT64}) {
    Problem integers({2, 1, 40}, all_of(dtype));
    const std::vector<uint8_t> ones(40 * integers.table.element_size(), 0xFF);
    integers.table.fill_bits(ones);
    ASSERT_TRUE(integers.run_it().ok());
    const std::vector<uint8_t> got = integers.out.bits();
    EXPECT_TRUE(std::all_of(got.begin(), got.end(), [](uint8_t byte) { return byte == 0xFF; }));
  }
}

// Past the cache, in lines that begin anywhere in a row.
TEST(Embedding, NansInLargeOutputs) {
  const auto run_large = [](aclDataType dtype, int64_t cols, Arrangement out) {
    Options options = all_of(dtype);
    options.out_in = out;
    const int64_t bytes = cols * static_cast<int64_t>(dtype_size(dtype));
    Problem large({(int64_t{24} << 20) / bytes}, 3, cols, options);
    const std::vector<uint8_t> row = nan_row(dtype, static_cast<size_t>(3 * cols));
    large.table.fill_bits(row);
    large.run_and_check();
  };
  for_each_target([&](const std::string&) {
    run_large(ACL_FLOAT, 259, Arrangement::kOffset);
    run_large(ACL_FLOAT, 48, Arrangement::kOffset);
    run_large(ACL_BF16, 77, Arrangement::kOffset);
    run_large(ACL_DOUBLE, 17, Arrangement::kContiguous);
    run_large(ACL_BF16, 23, Arrangement::kOffset);
    run_large(ACL_DOUBLE, 3, Arrangement::kContiguous);
  });
  run_large(ACL_BF16, 515, Arrangement::kContiguous);
  run_large(ACL_FLOAT16, 37, Arrangement::kOffset);
  run_large(ACL_DOUBLE, 64, Arrangement::kRowPadded);
}

TEST(Embedding, EmptyTensors) {
  Problem no_indices({0}, 3, 5, Options());
  EXPECT_TRUE(no_indices.run_it().ok());
  Problem no_columns({2}, 3, 0, Options());  // no element, so the indices are not judged
  no_columns.indices.fill({0, 7});
  EXPECT_TRUE(no_columns.run_it().ok());
}

TEST(Embedding, TheCallersFloatingPointModesHaveNoInfluence) {
  Problem problem({33, 4, 10}, Options());
  problem.run_and_check();
  expect_same_bits_in_every_float_mode([&] { return problem.run_it(); }, {&problem.out});
}

}  // namespace
}  // namespace aclgrad::test

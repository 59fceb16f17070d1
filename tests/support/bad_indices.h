// SPDX-License-Identifier: Apache-2.0
// Indices that no row of a table has, in tests of the operators that look them up: phase two takes
// them, the synchronise reports the first, once, and everything else is computed.
#ifndef ACLGRAD_TESTS_SUPPORT_BAD_INDICES_H_
#define ACLGRAD_TESTS_SUPPORT_BAD_INDICES_H_

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support/device.h"
#include "support/run.h"
#include "support/targets.h"

namespace aclgrad::test {

// A row of the table of data errors.
struct BadIndex {
  aclDataType dtype;
  double index;
  const char* value;  // in the message
};

// problem: a Tensor `indices`, run_it() -> Outcome and expect_right().
template <class Problem>
void expect_bad_index(Problem& problem, const char* function, uint64_t table_rows,
                      const std::string& value, const std::string& position) {
  const Outcome outcome = problem.run_it();
  EXPECT_EQ(outcome.phase_two, 0);
  EXPECT_EQ(outcome.synchronise, 507015);
  expect_message(outcome.message, {std::string(function) + ": indices holds " + value +
                                       " at position " + position + ";",
                                   "expected 0 <= index < " + std::to_string(table_rows)});
  EXPECT_EQ(aclrtSynchronizeStream(stream()), 0) << "reported twice";
  problem.expect_right();
}

// make() gives a problem of one INT64 index of three rows; expect(problem, value, position) runs
// it.
template <class Make, class Expect>
void expect_widest_integers_reported(Make&& make, Expect&& expect) {
  for (const int64_t index : {std::numeric_limits<int64_t>::min(),
                              std::numeric_limits<int64_t>::max(), (int64_t{1} << 32) + 1}) {
    auto problem = make();
    std::vector<uint8_t> bytes(sizeof(index));
    std::memcpy(bytes.data(), &index, sizeof(index));
    problem.indices.fill_bits(bytes);
    expect(problem, std::to_string(index), "0");
  }
}

// make() gives a problem of 100000 indices of less than 20001 rows.
template <class Make, class Expect>
void expect_lowest_position_reported(Make&& make, Expect&& expect) {
  for_each_thread_count([&](int) {
    auto problem = make();
    std::vector<double> indices = problem.indices.values();
    for (const size_t at : {20001u, 40000u, 70000u, 99999u}) {
      indices[at] = static_cast<double>(at);
    }
    problem.indices.fill(indices);
    expect(problem, "20001", "20001");
  });
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_BAD_INDICES_H_

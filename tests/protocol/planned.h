// SPDX-License-Identifier: Apache-2.0
// A small problem after phase one, for the tests of phase two.
#ifndef ACLGRAD_TESTS_PROTOCOL_PLANNED_H_
#define ACLGRAD_TESTS_PROTOCOL_PLANNED_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "protocol/gate.h"
#include "protocol/small_problems.h"

namespace aclgrad::test {

class Planned {
 public:
  explicit Planned(size_t row, Arrangement arrangement = Arrangement::kContiguous,
                   uint64_t seed = 1)
      : problem(make_small_problem(row, arrangement, seed)) {
    replan();
  }
  // Phase one again, after the executor was used up.
  void replan() {
    take_message();
    EXPECT_EQ(problem.plan(&size, &executor), kOk) << take_message();
    workspace = std::make_unique<Workspace>(size);
  }
  aclnnStatus execute(aclrtStream on = stream()) const {
    take_message();
    return problem.execute(workspace->get(), size, executor, on);
  }
  aclnnStatus execute_with(void* memory, uint64_t bytes) const {
    take_message();
    return problem.execute(memory, bytes, executor, stream());
  }

  SmallProblem problem;
  uint64_t size = 0;
  aclOpExecutor* executor = nullptr;
  std::unique_ptr<Workspace> workspace;
};

// Tests that hold for each row of the table.
class EachOperator : public ::testing::TestWithParam<size_t> {
 protected:
  static size_t row() { return GetParam(); }
  static std::vector<uint8_t> expected(uint64_t seed = 1) { return expected_result(row(), seed); }

  // The call just made was refused: its status, and a message that names the function and more.
  static void expect_refusal(const Planned& planned, int status, int expected_status,
                             std::initializer_list<std::string> substrings) {
    const std::string message = take_message();
    EXPECT_EQ(status, expected_status) << message;
    expect_message(message, {planned.problem.function});
    expect_message(message, substrings);
    EXPECT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS);
    EXPECT_TRUE(planned.problem.outputs_untouched()) << "a refused call wrote";
  }
  // The executor is used up: neither can it be run nor destroyed.
  static void expect_consumed(const Planned& planned) {
    EXPECT_EQ(planned.execute(), kParamInvalid);
    EXPECT_EQ(aclDestroyAclOpExecutor(planned.executor), kInner);
    take_message();
  }
  static void expect_done(const Planned& planned, const std::vector<uint8_t>& expected_bits) {
    EXPECT_EQ(aclrtSynchronizeStream(stream()), ACL_SUCCESS) << take_message();
    EXPECT_TRUE(planned.problem.result() == expected_bits) << "other results";
    EXPECT_TRUE(planned.problem.guards_intact());
    EXPECT_TRUE(planned.workspace->guards_intact());
  }
};

inline std::string row_name(const ::testing::TestParamInfo<size_t>& info) {
  return small_problem_name(info.param);
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_PROTOCOL_PLANNED_H_

// SPDX-License-Identifier: Apache-2.0
// Errors in the data, found while running: each is reported once, by the first synchronise that
// waits for its task, and spoils nothing else.
#include <thread>

#include "protocol/planned.h"

namespace aclgrad::test {
namespace {

constexpr int kDataError = ACL_ERROR_RT_AICORE_EXCEPTION;

size_t embedding() { return small_problem_row("EmbeddingDenseBackward"); }

// An embedding gradient whose indices hold one value that names no row.
class BadCall {
 public:
  explicit BadCall(int64_t value, aclrtStream on) : planned_(embedding()) {
    planned_.problem.tensors[1]->fill({6, 1, 1, static_cast<double>(value), 3, 6, 6, 2, 5, 1});
    EXPECT_EQ(planned_.execute(on), kOk) << take_message();
  }
  const SmallProblem& problem() const { return planned_.problem; }

 private:
  Planned planned_;
};

class DataErrors : public ::testing::Test {
 protected:
  void SetUp() override { take_message(); }
  void expect_reported(int status, std::initializer_list<std::string> substrings) {
    const std::string message = take_message();
    EXPECT_EQ(status, kDataError) << message;
    expect_message(message, {"EE9999", "aclnnEmbeddingDenseBackward"});
    expect_message(message, substrings);
  }
  void expect_clean() {
    EXPECT_EQ(aclrtSynchronizeStream(own.get()), ACL_SUCCESS) << take_message();
    EXPECT_EQ(aclrtSynchronizeDevice(), ACL_SUCCESS) << take_message();
    EXPECT_EQ(take_message(), "");
  }
  aclrtEvent record() {
    aclrtEvent event = nullptr;
    require(aclrtCreateEvent(&event), "aclrtCreateEvent");
    require(aclrtRecordEvent(event, own.get()), "aclrtRecordEvent");
    return event;
  }
  OwnStream own;
};

TEST_F(DataErrors, AreReportedOnceWithPositionValueAndRange) {
  for (const int64_t value : {int64_t{7}, int64_t{-1}, int64_t{1} << 40}) {
    const BadCall bad(value, own.get());
    expect_reported(aclrtSynchronizeStream(own.get()), {"3", std::to_string(value), "7"});
    expect_clean();
    // Every other row is right: the bad one contributes nothing.
    const std::vector<double> grad = bad.problem().tensors[0]->values();
    const std::vector<double> out = bad.problem().tensors[2]->values();
    constexpr size_t kColumns = 24;
    for (size_t column = 0; column < kColumns; ++column) {
      EXPECT_EQ(out[column], 0);  // its row in the correct problem
      EXPECT_EQ(out[3 * kColumns + column], grad[4 * kColumns + column]);  // index 3, once
      EXPECT_EQ(out[2 * kColumns + column], grad[7 * kColumns + column]);  // index 2, once
    }
    EXPECT_TRUE(bad.problem().guards_intact());
  }
}

TEST_F(DataErrors, AreReportedByAnEvent) {
  const aclrtEvent before = record();
  const BadCall bad(99, own.get());
  const aclrtEvent after = record();
  EXPECT_EQ(aclrtSynchronizeEvent(before), ACL_SUCCESS) << "recorded before the task";
  expect_reported(aclrtSynchronizeEvent(after), {"99"});
  EXPECT_EQ(aclrtSynchronizeEvent(after), ACL_SUCCESS);
  expect_clean();
  EXPECT_EQ(aclrtDestroyEvent(before), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyEvent(after), ACL_SUCCESS);
}

TEST_F(DataErrors, AreReportedByTheDevice) {
  const BadCall bad(99, own.get());
  expect_reported(aclrtSynchronizeDevice(), {"99"});
  expect_clean();
}

TEST_F(DataErrors, AreNotConsumedByQueries) {
  const BadCall bad(99, own.get());
  const aclrtEvent after = record();
  aclrtStreamStatus stream_status = ACL_STREAM_STATUS_NOT_READY;
  while (stream_status != ACL_STREAM_STATUS_COMPLETE) {
    ASSERT_EQ(aclrtStreamQuery(own.get(), &stream_status), ACL_SUCCESS);
  }
  aclrtEventStatus event_status = ACL_EVENT_STATUS_NOT_READY;
  while (event_status != ACL_EVENT_STATUS_COMPLETE) {
    ASSERT_EQ(aclrtQueryEvent(after, &event_status), ACL_SUCCESS);
  }
  expect_reported(aclrtSynchronizeStream(own.get()), {"99"});
  EXPECT_EQ(aclrtDestroyEvent(after), ACL_SUCCESS);
}

TEST_F(DataErrors, TheFirstTasksIsNamedTheRestCounted) {
  const BadCall first(100, own.get());
  const BadCall second(101, own.get());
  const BadCall third(102, own.get());
  expect_reported(aclrtSynchronizeStream(own.get()), {"100", "2 more"});
  expect_clean();
}

TEST_F(DataErrors, BelongToTheirStream) {
  const BadCall bad(99, own.get());
  OwnStream other;
  const Planned good(embedding());
  ASSERT_EQ(good.execute(other.get()), kOk);
  EXPECT_EQ(aclrtSynchronizeStream(other.get()), ACL_SUCCESS);
  expect_reported(aclrtSynchronizeStream(own.get()), {"99"});
}

TEST_F(DataErrors, AreReportedToTheThreadThatWaits) {
  const BadCall bad(99, own.get());
  int status = 0;
  std::string message;
  std::thread([&] {
    status = aclrtSynchronizeStream(own.get());
    message = take_message();
  }).join();
  EXPECT_EQ(status, kDataError);
  expect_message(message, {"99"});
  EXPECT_EQ(take_message(), "");
  expect_clean();
}

TEST_F(DataErrors, DestroyingTheStreamReportsThem) {
  const BadCall bad(99, own.get());
  const aclrtStream handle = own.get();
  expect_reported(own.destroy(), {"99"});
  EXPECT_EQ(aclrtSynchronizeStream(handle), ACL_ERROR_RT_STREAM_CONTEXT)
      << "destroyed all the same";
  take_message();
}

TEST_F(DataErrors, LaterWorkRuns) {
  const BadCall bad(99, own.get());
  const Planned good(embedding());
  ASSERT_EQ(good.execute(own.get()), kOk);
  expect_reported(aclrtSynchronizeStream(own.get()), {"99"});
  EXPECT_TRUE(good.problem.result() == expected_result(embedding()));
}

TEST_F(DataErrors, OfGroupEnds) {
  struct Row {
    std::string problem;
    std::vector<double> ends;
    std::string position;
    std::string value;
  };
  const Row rows[] = {
      {"GroupedBiasAddGrad", {3, 2, 10, 12}, "1", "2"},    // decreases
      {"GroupedBiasAddGrad", {-1, 3, 10, 12}, "0", "-1"},  // negative
      {"GroupedBiasAddGrad", {3, 3, 10, 11}, "3", "11"},   // misses the last row
      {"GroupedBiasAddGrad", {3, 3, 10, 13}, "3", "13"},   // beyond the last row
      {"GroupedBiasAddGrad", {3, 3, 3000000000.0, 12}, "2", "3000000000"},
      {"GroupedBiasAddGradV2", {3, -1, 7, 2}, "1", "-1"},
      {"GroupedBiasAddGradV2", {3, 0, 7, 1}, "3", "11"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.position + " " + row.value);
    const Planned planned(small_problem_row(row.problem));
    planned.problem.tensors[1]->fill(row.ends);
    ASSERT_EQ(planned.execute(own.get()), kOk) << take_message();
    EXPECT_EQ(aclrtSynchronizeStream(own.get()), kDataError);
    expect_message(take_message(), {planned.problem.function, row.position, row.value});
    EXPECT_TRUE(planned.problem.guards_intact());
    expect_clean();
  }
}

}  // namespace
}  // namespace aclgrad::test

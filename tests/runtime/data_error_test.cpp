// SPDX-License-Identifier: Apache-2.0
// Data errors: each is reported once, by the first synchronise that waits for its task.
#include <vector>

#include "scene.h"

namespace aclgrad::test {
namespace {

constexpr aclError kDataError = ACL_ERROR_RT_AICORE_EXCEPTION;

class DataErrorTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    stream = make_stream();
  }
  void TearDown() override {
    EXPECT_EQ(aclrtDestroyStream(stream), 0) << messages();
    DeviceTest::TearDown();
  }
  void expect_reported(aclError status, const std::string& function, const std::string& text) {
    EXPECT_EQ(status, kDataError);
    const std::string all = messages();
    EXPECT_TRUE(contains(all, "Runtime_Error(EE9999): " + function + ": " + text)) << all;
  }
  aclrtStream stream = nullptr;
};

TEST_F(DataErrorTest, StreamSynchroniseReportsOnce) {
  enqueue_error(stream, "indices[3] is 9, expected 0 to 7");
  expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream",
                  "indices[3] is 9, expected 0 to 7");
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(messages(), "");
}

TEST_F(DataErrorTest, TimedSynchroniseReportsToo) {
  enqueue_error(stream, "bad");
  expect_reported(aclrtSynchronizeStreamWithTimeout(stream, 10000),
                  "aclrtSynchronizeStreamWithTimeout", "bad");
}

TEST_F(DataErrorTest, OnlyTheFirstMessageOfATask) {
  ASSERT_EQ(enqueue(stream,
                    [](DataErrors& errors) {
                      errors.report("first");
                      errors.report("second");
                    }),
            0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), kDataError);
  const std::string text = messages();
  EXPECT_TRUE(contains(text, ": first"));
  EXPECT_FALSE(contains(text, "second"));
  EXPECT_FALSE(contains(text, "more"));
}

TEST_F(DataErrorTest, SeveralTasksAreCounted) {
  enqueue_error(stream, "first");
  ASSERT_EQ(enqueue(stream, [] {}), 0);
  enqueue_error(stream, "second");
  enqueue_error(stream, "third");
  expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream",
                  "first (and 2 more tasks reported errors)");
  enqueue_error(stream, "fourth");
  enqueue_error(stream, "fifth");
  expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream",
                  "fourth (and 1 more task reported errors)");
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
}

TEST_F(DataErrorTest, QueriesDoNotConsume) {
  aclrtEvent event = make_event();
  enqueue_error(stream, "bad");
  ASSERT_EQ(aclrtRecordEvent(event, stream), 0);
  aclrtEventStatus status = ACL_EVENT_STATUS_NOT_READY;
  while (status != ACL_EVENT_STATUS_COMPLETE) ASSERT_EQ(aclrtQueryEvent(event, &status), 0);
  aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  EXPECT_EQ(aclrtQueryEventStatus(event, &recorded), 0);
  aclrtStreamStatus stream_status = ACL_STREAM_STATUS_RESERVED;
  EXPECT_EQ(aclrtStreamQuery(stream, &stream_status), 0);
  EXPECT_EQ(messages(), "");
  expect_reported(aclrtSynchronizeEvent(event), "aclrtSynchronizeEvent", "bad");
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(aclrtDestroyEvent(event), 0);
}

TEST_F(DataErrorTest, EventRecordedBeforeDoesNotReport) {
  aclrtEvent before = make_event();
  aclrtEvent after = make_event();
  ASSERT_EQ(aclrtRecordEvent(before, stream), 0);
  enqueue_error(stream, "bad");
  ASSERT_EQ(aclrtRecordEvent(after, stream), 0);
  enqueue_error(stream, "later");
  sleep_ms(5);
  EXPECT_EQ(aclrtSynchronizeEvent(before), 0);
  expect_reported(aclrtSynchronizeEvent(after), "aclrtSynchronizeEvent", "bad");
  expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream", "later");
  EXPECT_EQ(aclrtDestroyEvent(before), 0);
  EXPECT_EQ(aclrtDestroyEvent(after), 0);
}

TEST_F(DataErrorTest, DeviceSynchroniseReportsForAllStreams) {
  aclrtStream other = make_stream();
  enqueue_error(stream, "here");
  ASSERT_EQ(aclrtStreamWaitEvent(other, nullptr), ACL_ERROR_INVALID_PARAM);
  messages();
  sleep_ms(5);
  enqueue_error(other, "there");
  EXPECT_EQ(aclrtSynchronizeDevice(), kDataError);
  const std::string text = messages();
  EXPECT_TRUE(contains(text, "aclrtSynchronizeDevice: here (and 1 more task")) << text;
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(aclrtSynchronizeStream(other), 0);
  EXPECT_EQ(aclrtSynchronizeDevice(), 0);
  EXPECT_EQ(aclrtDestroyStream(other), 0);
}

TEST_F(DataErrorTest, DestroyReportsAndDestroys) {
  aclrtStream doomed = make_stream();
  enqueue_error(doomed, "bad");
  expect_reported(aclrtDestroyStream(doomed), "aclrtDestroyStream", "bad");
  expect_refused(aclrtSynchronizeStream(doomed), ACL_ERROR_RT_STREAM_CONTEXT,
                 "aclrtSynchronizeStream");
}

TEST_F(DataErrorTest, ReportedToTheThreadThatWaits) {
  enqueue_error(stream, "bad");
  std::thread([&] {
    expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream", "bad");
  }).join();
  EXPECT_EQ(messages(), "");
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
}

TEST_F(DataErrorTest, ExactlyOneOfManyWaitersIsTold) {
  for (int round = 0; round < 100; ++round) {
    enqueue_error(stream, "bad");
    std::atomic<int> told{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] { told += aclrtSynchronizeStream(stream) == kDataError; });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(told, 1);
  }
}

TEST_F(DataErrorTest, TimeOutConsumesNothing) {
  const SharedGate gate = make_gate();
  enqueue_error(stream, "bad");
  enqueue_gate(stream, gate);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(1), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  messages();
  gate->open();
  expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream", "bad");
}

// Who waits for a stream that waited for the task waits for the task: told once, whoever is first.
TEST_F(DataErrorTest, TravelsThroughEvents) {
  aclrtStream other = make_stream();
  aclrtEvent event = make_event();
  for (const bool source_first : {false, true}) {
    enqueue_error(stream, "bad");
    ASSERT_EQ(aclrtRecordEvent(event, stream), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(other, event), 0);
    aclrtStream order[] = {source_first ? stream : other, source_first ? other : stream};
    expect_reported(aclrtSynchronizeStream(order[0]), "aclrtSynchronizeStream", "bad");
    EXPECT_EQ(aclrtSynchronizeStream(order[1]), 0);
    EXPECT_EQ(aclrtSynchronizeDevice(), 0);
  }
  EXPECT_EQ(aclrtDestroyStream(other), 0);
  EXPECT_EQ(aclrtDestroyEvent(event), 0);
}

TEST_F(DataErrorTest, OtherStreamsAreClean) {
  aclrtStream other = make_stream();
  enqueue_error(stream, "bad");
  ASSERT_EQ(enqueue(other, [] {}), 0);
  sleep_ms(5);
  EXPECT_EQ(aclrtSynchronizeStream(other), 0);
  EXPECT_EQ(aclrtDestroyStream(other), 0);
  expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream", "bad");
}

TEST_F(DataErrorTest, CopiesThatWaitDoNotConsume) {
  void* memory = make_memory(8);
  char local[8] = {};
  enqueue_error(stream, "bad");
  EXPECT_EQ(aclrtMemcpyAsync(local, 8, memory, 8, ACL_MEMCPY_DEVICE_TO_HOST, stream), 0);
  expect_reported(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream", "bad");
  EXPECT_EQ(aclrtFree(memory), 0);
}

}  // namespace
}  // namespace aclgrad::test

// SPDX-License-Identifier: Apache-2.0
// Events: what a record captures, what a wait takes, status, time, reset.
#include <chrono>
#include <vector>

#include "scene.h"

namespace aclgrad::test {
namespace {

class EventTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    first = make_stream();
    second = make_stream();
    event = make_event();
  }
  void TearDown() override {
    EXPECT_EQ(aclrtDestroyStream(first), 0);
    EXPECT_EQ(aclrtDestroyStream(second), 0);
    EXPECT_EQ(aclrtDestroyEvent(event), 0);
    DeviceTest::TearDown();
  }
  aclrtEventStatus query() const {
    aclrtEventStatus status = ACL_EVENT_STATUS_RESERVED;
    EXPECT_EQ(aclrtQueryEvent(event, &status), 0);
    aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    EXPECT_EQ(aclrtQueryEventStatus(event, &recorded), 0);
    // Asked second: it may be complete by now.
    if (status == ACL_EVENT_STATUS_COMPLETE) {
      EXPECT_EQ(recorded, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    }
    return status;
  }
  aclrtEventWaitStatus query_waits() const {
    aclrtEventWaitStatus status = ACL_EVENT_WAIT_STATUS_RESERVED;
    EXPECT_EQ(aclrtQueryEventWaitStatus(event, &status), 0);
    return status;
  }

  aclrtStream first = nullptr;
  aclrtStream second = nullptr;
  aclrtEvent event = nullptr;
};

TEST_F(EventTest, NeverRecordedIsComplete) {
  EXPECT_EQ(query(), ACL_EVENT_STATUS_COMPLETE);
  EXPECT_EQ(query_waits(), ACL_EVENT_WAIT_STATUS_COMPLETE);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(first, event), 0);
  EXPECT_EQ(aclrtSynchronizeStream(first), 0);
  EXPECT_EQ(aclrtResetEvent(event, first), 0);
  float ms = -1;
  expect_refused(aclrtEventElapsedTime(&ms, event, event), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                 "aclrtEventElapsedTime");
  uint64_t timestamp = 3;
  expect_refused(aclrtEventGetTimestamp(event, &timestamp), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                 "aclrtEventGetTimestamp");
  EXPECT_EQ(ms, -1);
  EXPECT_EQ(timestamp, 3u);
}

TEST_F(EventTest, RecordCapturesWhatIsQueuedSoFar) {
  const SharedGate gate = make_gate();
  const SharedGate later = make_gate();
  enqueue_gate(first, gate);
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  enqueue_gate(first, later);
  EXPECT_EQ(query(), ACL_EVENT_STATUS_NOT_READY);
  aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_COMPLETE;
  EXPECT_EQ(aclrtQueryEventStatus(event, &recorded), 0);
  EXPECT_EQ(recorded, ACL_EVENT_RECORDED_STATUS_NOT_READY);
  float ms = 0;
  expect_refused(aclrtEventElapsedTime(&ms, event, event), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID,
                 "aclrtEventElapsedTime");
  gate->open();
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0) << "does not wait for what was queued later";
  EXPECT_EQ(query(), ACL_EVENT_STATUS_COMPLETE);
  later->open();
}

TEST_F(EventTest, PollingSeesCompletion) {
  std::atomic<bool> ran{false};
  ASSERT_EQ(enqueue(first, [&] { ran = true; }), 0);
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (query() != ACL_EVENT_STATUS_COMPLETE && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(query(), ACL_EVENT_STATUS_COMPLETE);
  EXPECT_TRUE(ran);
}

TEST_F(EventTest, StreamWaitsForTheOtherStream) {
  const SharedGate gate = make_gate();
  std::vector<int> order;
  enqueue_gate(first, gate);
  ASSERT_EQ(enqueue(first, [&] { order.push_back(1); }), 0);
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(second, event), 0);
  ASSERT_EQ(enqueue(second, [&] { order.push_back(2); }), 0);
  EXPECT_EQ(query_waits(), ACL_EVENT_WAIT_STATUS_NOT_READY);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(second, 20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  gate->open();
  EXPECT_EQ(aclrtSynchronizeStream(second), 0);
  EXPECT_EQ(query_waits(), ACL_EVENT_WAIT_STATUS_COMPLETE);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST_F(EventTest, WaitTakesTheLatestRecordAtTheTimeOfTheCall) {
  const SharedGate early = make_gate();
  const SharedGate late = make_gate();
  enqueue_gate(first, early);
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(second, event), 0);
  enqueue_gate(first, late);
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  early->open();
  EXPECT_EQ(aclrtSynchronizeStream(second), 0) << "the second record came after the wait";
  EXPECT_EQ(query(), ACL_EVENT_STATUS_NOT_READY) << "the later record replaced the first";
  late->open();
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(query(), ACL_EVENT_STATUS_COMPLETE);
}

TEST_F(EventTest, WaitOnItsOwnStream) {
  bool ran = false;
  ASSERT_EQ(enqueue(first, [&] { ran = true; }), 0);
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(first, event), 0);
  EXPECT_EQ(aclrtSynchronizeStream(first), 0);
  EXPECT_TRUE(ran);
}

TEST_F(EventTest, DestroyingIsSafeWhileOthersWait) {
  const SharedGate gate = make_gate();
  aclrtStream source = make_stream();
  aclrtEvent short_lived = make_event();
  enqueue_gate(source, gate);
  ASSERT_EQ(aclrtRecordEvent(short_lived, source), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(second, short_lived), 0);
  std::atomic<aclError> waited{-1};
  std::thread waiter([&] { waited = aclrtSynchronizeEvent(short_lived); });
  sleep_ms(10);
  EXPECT_EQ(aclrtDestroyEvent(short_lived), 0);
  expect_refused(aclrtDestroyEvent(short_lived), ACL_ERROR_RT_PARAM_INVALID, "aclrtDestroyEvent");
  std::thread opener([&] {
    sleep_ms(10);
    gate->open();
  });
  EXPECT_EQ(aclrtDestroyStream(source), 0);
  opener.join();
  waiter.join();
  EXPECT_EQ(waited, 0);
  EXPECT_EQ(aclrtSynchronizeStream(second), 0);
}

TEST_F(EventTest, RecordSurvivesItsStream) {
  aclrtStream source = make_stream();
  ASSERT_EQ(aclrtRecordEvent(event, source), 0);
  EXPECT_EQ(aclrtDestroyStream(source), 0);
  EXPECT_EQ(query(), ACL_EVENT_STATUS_COMPLETE);
  EXPECT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(aclrtStreamWaitEvent(second, event), 0);
  uint64_t timestamp = 0;
  EXPECT_EQ(aclrtEventGetTimestamp(event, &timestamp), 0);
}

TEST_F(EventTest, TimesAreMeasuredOnTheStream) {
  aclrtEvent start = make_event();
  const SharedGate gate = make_gate();
  enqueue_gate(first, gate);
  ASSERT_EQ(aclrtRecordEvent(start, first), 0);
  ASSERT_EQ(enqueue(first, [] { sleep_ms(30); }), 0);
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  sleep_ms(60);  // not measured: the stream is held
  gate->open();
  ASSERT_EQ(aclrtSynchronizeEvent(event), 0);
  float ms = 0;
  EXPECT_EQ(aclrtEventElapsedTime(&ms, start, event), 0);
  EXPECT_GE(ms, 29.9f);
  EXPECT_LT(ms, 58.0f);
  uint64_t from = 0, to = 0;
  EXPECT_EQ(aclrtEventGetTimestamp(start, &from), 0);
  EXPECT_EQ(aclrtEventGetTimestamp(event, &to), 0);
  EXPECT_NEAR(static_cast<double>(to - from), static_cast<double>(ms) * 1000, 2.0);
  expect_refused(aclrtEventElapsedTime(&ms, event, start), ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL,
                 "aclrtEventElapsedTime");
  EXPECT_EQ(aclrtEventElapsedTime(&ms, start, start), 0);
  EXPECT_EQ(ms, 0.0f);
  EXPECT_EQ(aclrtDestroyEvent(start), 0);
}

TEST_F(EventTest, ResetInStreamOrder) {
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  ASSERT_EQ(aclrtSynchronizeEvent(event), 0);
  const SharedGate gate = make_gate();
  enqueue_gate(first, gate);
  ASSERT_EQ(aclrtResetEvent(event, first), 0);
  uint64_t timestamp = 0;
  EXPECT_EQ(aclrtEventGetTimestamp(event, &timestamp), 0) << "the reset has not run";
  gate->open();
  ASSERT_EQ(aclrtSynchronizeStream(first), 0);
  EXPECT_EQ(aclrtEventGetTimestamp(event, &timestamp), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
  EXPECT_EQ(query(), ACL_EVENT_STATUS_COMPLETE) << "never recorded again";
  ASSERT_EQ(aclrtRecordEvent(event, first), 0);
  ASSERT_EQ(aclrtSynchronizeEvent(event), 0);
  EXPECT_EQ(aclrtEventGetTimestamp(event, &timestamp), 0);
}

TEST_F(EventTest, ForcedDestroyCompletesItsRecords) {
  aclrtStream source = make_stream();
  const SharedGate started = make_gate();
  const SharedGate hold = make_gate();
  ASSERT_EQ(enqueue(source,
                    [=] {
                      started->open();
                      hold->wait();
                    }),
            0);
  ASSERT_EQ(aclrtRecordEvent(event, source), 0);
  ASSERT_EQ(aclrtStreamWaitEvent(second, event), 0);
  started->wait();
  std::thread opener([&] {
    sleep_ms(10);
    hold->open();
  });
  EXPECT_EQ(aclrtDestroyStreamForce(source), 0);
  opener.join();
  EXPECT_EQ(query(), ACL_EVENT_STATUS_COMPLETE);
  EXPECT_EQ(aclrtSynchronizeStream(second), 0);
  uint64_t timestamp = 0;
  EXPECT_EQ(aclrtEventGetTimestamp(event, &timestamp), ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
}

TEST_F(EventTest, Flags) {
  for (const uint32_t flag : {0u, ACL_EVENT_SYNC, ACL_EVENT_TIME_LINE,
                              ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE, ACL_EVENT_DEVICE_USE_ONLY}) {
    for (const auto create : {&aclrtCreateEventWithFlag, &aclrtCreateEventExWithFlag}) {
      aclrtEvent made = nullptr;
      EXPECT_EQ(create(&made, flag), 0);
      EXPECT_EQ(aclrtDestroyEvent(made), 0);
    }
  }
  aclrtEvent made = nullptr;
  expect_refused(aclrtCreateEventWithFlag(&made, 0x80000000u), ACL_ERROR_RT_PARAM_INVALID,
                 "aclrtCreateEventWithFlag");
  expect_refused(aclrtCreateEventExWithFlag(&made, 0x80000000u), ACL_ERROR_RT_PARAM_INVALID,
                 "aclrtCreateEventExWithFlag");
  EXPECT_EQ(made, nullptr);
}

// A ring of streams, each waiting for the one before: the sum travels round in order.
TEST_F(EventTest, RingOfStreams) {
  constexpr size_t kStreams = 5;
  std::vector<aclrtStream> streams;
  std::vector<aclrtEvent> events;
  for (size_t i = 0; i < kStreams; ++i) {
    streams.push_back(make_stream());
    events.push_back(make_event());
  }
  std::vector<size_t> order;
  constexpr size_t kSteps = 500;
  for (size_t step = 0; step < kSteps; ++step) {
    aclrtStream stream = streams[step % kStreams];
    if (step > 0) {
      ASSERT_EQ(aclrtStreamWaitEvent(stream, events[(step - 1) % kStreams]), 0);
    }
    ASSERT_EQ(enqueue(stream, [&, step] { order.push_back(step); }), 0);
    ASSERT_EQ(aclrtRecordEvent(events[step % kStreams], stream), 0);
  }
  ASSERT_EQ(aclrtSynchronizeEvent(events[(kSteps - 1) % kStreams]), 0);
  ASSERT_EQ(order.size(), kSteps);
  for (size_t step = 0; step < kSteps; ++step) ASSERT_EQ(order[step], step);
  for (aclrtStream stream : streams) EXPECT_EQ(aclrtDestroyStream(stream), 0);
  for (aclrtEvent each : events) EXPECT_EQ(aclrtDestroyEvent(each), 0);
}

// More streams than one thread runs nested; the last one is all that is synchronised.
TEST_F(EventTest, LongChainOfStreams) {
  constexpr size_t kStreams = 200;
  std::vector<aclrtStream> streams;
  std::vector<aclrtEvent> events;
  std::vector<size_t> order;
  const SharedGate gate = make_gate();
  for (size_t i = 0; i < kStreams; ++i) {
    streams.push_back(make_stream());
    events.push_back(make_event());
    if (i == 0) enqueue_gate(streams[0], gate);
    if (i > 0) {
      ASSERT_EQ(aclrtStreamWaitEvent(streams[i], events[i - 1]), 0);
    }
    ASSERT_EQ(enqueue(streams[i], [&, i] { order.push_back(i); }), 0);
    ASSERT_EQ(aclrtRecordEvent(events[i], streams[i]), 0);
  }
  gate->open();
  ASSERT_EQ(aclrtSynchronizeStream(streams.back()), 0);
  ASSERT_EQ(order.size(), kStreams);
  for (size_t i = 0; i < kStreams; ++i) ASSERT_EQ(order[i], i);
  for (aclrtStream stream : streams) EXPECT_EQ(aclrtDestroyStream(stream), 0);
  for (aclrtEvent each : events) EXPECT_EQ(aclrtDestroyEvent(each), 0);
}

// A thread that waits for another stream's event wakes that stream's worker: no poll's delay.
TEST_F(EventTest, WaitingWakesTheOtherStream) {
  if (kSanitized) GTEST_SKIP() << "times mean nothing here";
  double best = 1e9;
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(enqueue(first, [] {}), 0);
    ASSERT_EQ(aclrtSynchronizeStream(first), 0);  // its worker polls now
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(enqueue(first, [] {}), 0);
    ASSERT_EQ(aclrtRecordEvent(event, first), 0);
    ASSERT_EQ(aclrtStreamWaitEvent(second, event), 0);
    ASSERT_EQ(aclrtSynchronizeStream(second), 0);
    const auto time = std::chrono::steady_clock::now() - start;
    best = std::min(best, std::chrono::duration<double, std::micro>(time).count());
  }
  EXPECT_LT(best, 150) << "microseconds";
}

}  // namespace
}  // namespace aclgrad::test

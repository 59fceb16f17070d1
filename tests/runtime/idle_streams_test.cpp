// SPDX-License-Identifier: Apache-2.0
// Streams of a CPU that fell idle: whom expected work wakes.
#include <unistd.h>

#include <atomic>

#include "scene.h"
#include "support/stream_threads.h"

namespace aclgrad::test {
namespace {

class IdleStreamsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (on_cuda()) GTEST_SKIP() << "streams of a GPU have no threads";
  }
};

// The thread of a stream, which has just run something.
int thread_of(aclrtStream stream) {
  std::atomic<int> thread{0};
  const SharedGate ran = make_gate();
  EXPECT_EQ(enqueue(stream,
                    [&thread, ran] {
                      thread = gettid();
                      ran->open();
                    }),
            0);
  EXPECT_TRUE(ran->wait_for(10000));
  return thread;
}

TEST_F(IdleStreamsTest, ExpectedWorkWakesTheOneThatParkedLast) {
  aclrtStream first = make_stream();
  const int first_thread = thread_of(first);
  sleeps_when_parked();
  aclrtStream second = make_stream();
  const int second_thread = thread_of(second);
  const Sleeps before = sleeps_when_parked();
  ASSERT_EQ(before.count(first_thread), 1u);
  ASSERT_EQ(before.count(second_thread), 1u);

  aclgrad_expect_work();
  const Sleeps after = sleeps_when_parked();
  EXPECT_EQ(after.at(first_thread), before.at(first_thread));
  EXPECT_GT(after.at(second_thread), before.at(second_thread));

  // It parks again, and is woken again.
  aclgrad_expect_work();
  EXPECT_GT(sleeps_when_parked().at(second_thread), after.at(second_thread));
  EXPECT_EQ(aclrtDestroyStream(first), 0);
  EXPECT_EQ(aclrtDestroyStream(second), 0);
}

TEST_F(IdleStreamsTest, ExpectedWorkWakesNobodyBesideAThreadAtWork) {
  aclrtStream idle = make_stream();
  const int idle_thread = thread_of(idle);
  const Sleeps before = sleeps_when_parked();
  aclrtStream busy = make_stream();
  const SharedGate gate = make_gate();
  enqueue_gate(busy, gate);
  while (sleeps_of_stream_threads().size() < 2) sleep_ms(1);
  aclgrad_expect_work();
  EXPECT_EQ(sleeps_when_parked().at(idle_thread), before.at(idle_thread));
  gate->open();
  EXPECT_EQ(aclrtDestroyStream(busy), 0);
  EXPECT_EQ(aclrtDestroyStream(idle), 0);
}

TEST_F(IdleStreamsTest, StreamsThatParkedMayBeGone) {
  aclrtStream stream = make_stream();
  thread_of(stream);
  sleeps_when_parked();
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  aclgrad_expect_work();
  aclgrad_expect_work();
  stream = make_stream();
  thread_of(stream);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

// Whatever woke or ended a thread: the count of those awake is right afterwards.
TEST_F(IdleStreamsTest, WakesAndEndsAreCounted) {
  aclrtStream kept = make_stream();
  const int kept_thread = thread_of(kept);
  sleeps_when_parked();
  thread_of(kept);  // woken by work
  aclrtStream gone = make_stream();
  thread_of(gone);
  EXPECT_EQ(aclrtDestroyStream(gone), 0);  // ends awake
  Sleeps before = sleeps_when_parked();
  for (int again = 0; again < 2; ++again) {
    aclgrad_expect_work();
    const Sleeps after = sleeps_when_parked();
    EXPECT_GT(after.at(kept_thread), before.at(kept_thread));
    before = after;
  }
  gone = make_stream();
  thread_of(gone);
  EXPECT_EQ(aclrtDestroyStream(gone), 0);  // ends awake, last
  before = sleeps_when_parked();
  aclgrad_expect_work();
  EXPECT_GT(sleeps_when_parked().at(kept_thread), before.at(kept_thread));

  // One that parks beside one at work is not woken.
  aclrtStream busy = make_stream();
  const SharedGate gate = make_gate();
  enqueue_gate(busy, gate);
  thread_of(kept);
  before = sleeps_when_parked();
  aclgrad_expect_work();
  EXPECT_EQ(sleeps_when_parked().at(kept_thread), before.at(kept_thread));
  gate->open();
  EXPECT_EQ(aclrtDestroyStream(busy), 0);
  EXPECT_EQ(aclrtDestroyStream(kept), 0);
}

}  // namespace
}  // namespace aclgrad::test

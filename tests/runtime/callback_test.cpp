// SPDX-License-Identifier: Apache-2.0
// Callbacks: run by the thread that processes reports, in stream order, blocking or not.
#include <pthread.h>

#include <atomic>
#include <vector>

#include "scene.h"

namespace aclgrad::test {
namespace {

uint64_t this_thread() { return static_cast<uint64_t>(pthread_self()); }

// A thread that processes reports until it is told to stop.
class Processor {
 public:
  Processor()
      : thread_([this] {
          id_ = this_thread();
          ready_.open();
          while (!stop_) aclrtProcessReport(20);
          messages();
        }) {
    ready_.wait();
  }
  ~Processor() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint64_t id() const { return id_; }

 private:
  Gate ready_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> id_{0};
  std::thread thread_;
};

struct Seen {
  std::mutex mutex;
  std::vector<int> order;
  std::vector<uint64_t> threads;
};
struct Call {
  Seen* seen;
  int number;
};

void note(void* data) {
  const auto* call = static_cast<Call*>(data);
  const std::lock_guard lock(call->seen->mutex);
  call->seen->order.push_back(call->number);
  call->seen->threads.push_back(this_thread());
}

void nothing(void*) {}

class CallbackTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    stream = make_stream();
  }
  void TearDown() override {
    EXPECT_EQ(aclrtDestroyStream(stream), 0) << messages();
    DeviceTest::TearDown();
  }
  aclrtStream stream = nullptr;
};

TEST_F(CallbackTest, RunByTheSubscribedThreadInOrder) {
  Processor processor;
  ASSERT_EQ(aclrtSubscribeReport(processor.id(), stream), 0);
  Seen seen;
  std::vector<Call> calls;
  for (int i = 0; i < 50; ++i) calls.push_back({&seen, i});
  for (Call& call : calls) {
    const auto block = call.number % 2 == 0 ? ACL_CALLBACK_BLOCK : ACL_CALLBACK_NO_BLOCK;
    ASSERT_EQ(aclrtLaunchCallback(note, &call, block, stream), 0);
  }
  ASSERT_EQ(aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_BLOCK, stream), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  ASSERT_EQ(seen.order.size(), 50u);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(seen.order[static_cast<size_t>(i)], i);
    EXPECT_EQ(seen.threads[static_cast<size_t>(i)], processor.id());
  }
  EXPECT_EQ(aclrtUnSubscribeReport(processor.id(), stream), 0);
}

TEST_F(CallbackTest, BlockHoldsTheStreamUntilItIsDone) {
  Processor processor;
  ASSERT_EQ(aclrtSubscribeReport(processor.id(), stream), 0);
  struct State {
    Gate gate;
    std::atomic<bool> done{false};
  } state;
  const auto slow = [](void* data) {
    auto* shared = static_cast<State*>(data);
    shared->gate.wait();
    shared->done = true;
  };
  ASSERT_EQ(aclrtLaunchCallback(slow, &state, ACL_CALLBACK_BLOCK, stream), 0);
  std::atomic<bool> done_before{false};
  ASSERT_EQ(enqueue(stream, [&] { done_before = state.done.load(); }), 0);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 30), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  state.gate.open();
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_TRUE(done_before);
  EXPECT_EQ(aclrtUnSubscribeReport(processor.id(), stream), 0);
}

TEST_F(CallbackTest, NoBlockDoesNotHoldTheStream) {
  Processor processor;
  ASSERT_EQ(aclrtSubscribeReport(processor.id(), stream), 0);
  Gate gate;
  ASSERT_EQ(aclrtLaunchCallback([](void* data) { static_cast<Gate*>(data)->wait(); }, &gate,
                                ACL_CALLBACK_NO_BLOCK, stream),
            0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  gate.open();
  processor.stop();
  EXPECT_EQ(aclrtUnSubscribeReport(processor.id(), stream), 0);
}

TEST_F(CallbackTest, Refusals) {
  expect_refused(aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_BLOCK, stream),
                 ACL_ERROR_RT_STREAM_NO_CB_REG, "aclrtLaunchCallback");
  expect_refused(aclrtUnSubscribeReport(this_thread(), stream), ACL_ERROR_RT_STREAM_NO_CB_REG,
                 "aclrtUnSubscribeReport");
  expect_refused(aclrtProcessReport(10), ACL_ERROR_RT_THREAD_SUBSCRIBE, "aclrtProcessReport");
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  expect_refused(aclrtSubscribeReport(this_thread(), stream), ACL_ERROR_RT_STREAM_SUBSCRIBE,
                 "aclrtSubscribeReport");
  expect_refused(aclrtSubscribeReport(1, stream), ACL_ERROR_RT_STREAM_SUBSCRIBE,
                 "aclrtSubscribeReport");
  expect_refused(aclrtUnSubscribeReport(1, stream), ACL_ERROR_RT_THREAD_SUBSCRIBE,
                 "aclrtUnSubscribeReport");
  expect_refused(aclrtProcessReport(10), ACL_ERROR_RT_REPORT_TIMEOUT, "aclrtProcessReport");
  expect_refused(aclrtProcessReport(0), ACL_ERROR_RT_REPORT_TIMEOUT, "aclrtProcessReport");
  expect_refused(aclrtProcessReport(-2), ACL_ERROR_RT_PARAM_INVALID, "aclrtProcessReport");
  expect_refused(aclrtLaunchCallback(nullptr, nullptr, ACL_CALLBACK_BLOCK, stream),
                 ACL_ERROR_INVALID_PARAM, "aclrtLaunchCallback");
  expect_refused(
      aclrtLaunchCallback(nothing, nullptr, out_of_range<aclrtCallbackBlockType>(9), stream),
      ACL_ERROR_INVALID_PARAM, "aclrtLaunchCallback");
  EXPECT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
  expect_refused(aclrtProcessReport(10), ACL_ERROR_RT_THREAD_SUBSCRIBE, "aclrtProcessReport");
}

TEST_F(CallbackTest, ProcessingWaitsForTheFirstReport) {
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  const SharedGate gate = make_gate();
  enqueue_gate(stream, gate);
  Seen seen;
  Call call{&seen, 1};
  ASSERT_EQ(aclrtLaunchCallback(note, &call, ACL_CALLBACK_NO_BLOCK, stream), 0);
  std::thread opener([&] {
    sleep_ms(20);
    gate->open();
  });
  EXPECT_EQ(aclrtProcessReport(-1), 0);
  EXPECT_EQ(seen.order.size(), 1u);
  opener.join();
  EXPECT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
}

TEST_F(CallbackTest, OneThreadForSeveralStreams) {
  aclrtStream other = make_stream();
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), other), 0);
  Seen seen;
  Call calls[] = {{&seen, 1}, {&seen, 2}};
  ASSERT_EQ(aclrtLaunchCallback(note, &calls[0], ACL_CALLBACK_NO_BLOCK, stream), 0);
  ASSERT_EQ(aclrtLaunchCallback(note, &calls[1], ACL_CALLBACK_NO_BLOCK, other), 0);
  ASSERT_EQ(aclrtSynchronizeDevice(), 0);
  EXPECT_EQ(aclrtProcessReport(100), 0);
  EXPECT_EQ(seen.order.size(), 2u);
  EXPECT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
  EXPECT_EQ(aclrtProcessReport(1), ACL_ERROR_RT_REPORT_TIMEOUT) << "still subscribed to the other";
  EXPECT_EQ(aclrtDestroyStream(other), 0);
  EXPECT_EQ(aclrtProcessReport(1), ACL_ERROR_RT_THREAD_SUBSCRIBE) << "ended with the stream";
  messages();
}

TEST_F(CallbackTest, UnsubscribingLetsTheProcessingThreadGo) {
  std::atomic<uint64_t> id{0};
  Gate ready;
  Gate subscribed;
  std::atomic<aclError> status{0};
  std::thread thread([&] {
    id = this_thread();
    ready.open();
    subscribed.wait();
    status = aclrtProcessReport(-1);
    messages();
  });
  ready.wait();
  ASSERT_EQ(aclrtSubscribeReport(id, stream), 0);
  subscribed.open();
  sleep_ms(20);
  EXPECT_EQ(aclrtUnSubscribeReport(id, stream), 0);
  thread.join();
  EXPECT_EQ(status, ACL_ERROR_RT_THREAD_SUBSCRIBE);
}

TEST_F(CallbackTest, UnsubscribingDropsWhatHasNotBegun) {
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  Seen seen;
  Call call{&seen, 1};
  ASSERT_EQ(aclrtLaunchCallback(note, &call, ACL_CALLBACK_NO_BLOCK, stream), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ASSERT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
  EXPECT_EQ(aclrtProcessReport(10), ACL_ERROR_RT_THREAD_SUBSCRIBE);
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  EXPECT_EQ(aclrtProcessReport(10), ACL_ERROR_RT_REPORT_TIMEOUT);
  EXPECT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
  EXPECT_TRUE(seen.order.empty());
  messages();
}

// Nobody will run the callback: what it held goes on.
TEST_F(CallbackTest, UnsubscribingReleasesABlockedStream) {
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  ASSERT_EQ(aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_BLOCK, stream), 0);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
  EXPECT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  messages();
}

TEST_F(CallbackTest, ForcedDestroyReleasesABlockedStream) {
  aclrtStream doomed = make_stream();
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), doomed), 0);
  ASSERT_EQ(aclrtLaunchCallback(nothing, nullptr, ACL_CALLBACK_BLOCK, doomed), 0);
  sleep_ms(5);
  EXPECT_EQ(aclrtDestroyStreamForce(doomed), 0);
}

struct Inside {
  aclrtStream stream;
  aclrtEvent event;
  std::vector<aclError> statuses;
};

// A blocking callback that waits for its own stream would never end: refused, not hung.
TEST_F(CallbackTest, WaitingForItselfIsRefused) {
  Inside inside{stream, make_event(), {}};
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  const auto wait = [](void* data) {
    auto* self = static_cast<Inside*>(data);
    self->statuses = {aclrtSynchronizeStream(self->stream), aclrtSynchronizeDevice(),
                      aclrtDestroyStream(self->stream), aclrtSynchronizeEvent(self->event)};
  };
  ASSERT_EQ(aclrtLaunchCallback(wait, &inside, ACL_CALLBACK_BLOCK, stream), 0);
  ASSERT_EQ(aclrtRecordEvent(inside.event, stream), 0);
  EXPECT_EQ(aclrtProcessReport(5000), 0);
  EXPECT_EQ(inside.statuses, std::vector<aclError>(4, ACL_ERROR_RT_PARAM_INVALID));
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
  EXPECT_EQ(aclrtDestroyEvent(inside.event), 0);
  messages();
}

TEST_F(CallbackTest, NoBlockMayUseTheStream) {
  Inside inside{stream, nullptr, {}};
  ASSERT_EQ(aclrtSubscribeReport(this_thread(), stream), 0);
  const auto use = [](void* data) {
    auto* self = static_cast<Inside*>(data);
    self->statuses = {aclrtSynchronizeStream(self->stream), aclrtSynchronizeDevice()};
  };
  ASSERT_EQ(aclrtLaunchCallback(use, &inside, ACL_CALLBACK_NO_BLOCK, stream), 0);
  EXPECT_EQ(aclrtProcessReport(5000), 0);
  EXPECT_EQ(inside.statuses, std::vector<aclError>(2, 0));
  EXPECT_EQ(aclrtUnSubscribeReport(this_thread(), stream), 0);
}

}  // namespace
}  // namespace aclgrad::test

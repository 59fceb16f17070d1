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

// Calls that would wait for the very stream whose blocking callback makes them: refused, not hung.
TEST_F(CallbackTest, WaitingForItselfIsRefused) {
  struct State {
    aclrtContext context = nullptr;
    aclrtStream stream = nullptr;
    void* device = nullptr;
    char host[32] = {};
    aclrtEvent event = nullptr;
    Gate done;
  } state;
  const Processor processor;
  aclrtContext before = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&before), 0);
  ASSERT_EQ(aclrtCreateContext(&state.context, 0), 0);
  state.stream = make_stream();
  ASSERT_EQ(aclrtMalloc(&state.device, sizeof(state.host), ACL_MEM_MALLOC_HUGE_FIRST), 0);
  ASSERT_EQ(aclrtCreateEvent(&state.event), 0);
  ASSERT_EQ(aclrtSubscribeReport(processor.id(), state.stream), 0);
  const auto wait_for_itself = [](void* data) {
    State& own = *static_cast<State*>(data);
    const auto refused = [](aclError status, const char* function) {
      expect_refused(status, ACL_ERROR_RT_PARAM_INVALID, function);
    };
    EXPECT_EQ(aclrtSetCurrentContext(own.context), 0);
    refused(aclrtSynchronizeStream(own.stream), "aclrtSynchronizeStream");
    refused(aclrtDestroyStream(own.stream), "aclrtDestroyStream");
    refused(aclrtSynchronizeDevice(), "aclrtSynchronizeDevice");
    refused(aclrtDestroyContext(own.context), "aclrtDestroyContext");
    refused(aclrtResetDevice(0), "aclrtResetDevice");
    refused(aclrtMemcpyAsync(own.device, sizeof(own.host), own.host, sizeof(own.host),
                             ACL_MEMCPY_HOST_TO_DEVICE, own.stream),
            "aclrtMemcpyAsync");
    EXPECT_EQ(aclrtRecordEvent(own.event, own.stream), 0);
    refused(aclrtSynchronizeEvent(own.event), "aclrtSynchronizeEvent");
    own.done.open();
  };
  ASSERT_EQ(aclrtLaunchCallback(wait_for_itself, &state, ACL_CALLBACK_BLOCK, state.stream), 0);
  state.done.wait();
  EXPECT_EQ(aclrtSynchronizeStream(state.stream), 0) << messages();
  EXPECT_EQ(aclrtDestroyEvent(state.event), 0);
  EXPECT_EQ(aclrtFree(state.device), 0);
  EXPECT_EQ(aclrtDestroyContext(state.context), 0) << messages();
  ASSERT_EQ(aclrtSetCurrentContext(before), 0);
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

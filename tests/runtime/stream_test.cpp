// SPDX-License-Identifier: Apache-2.0
// Streams: order, independence, progress, time-outs, destruction, the floating-point environment.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "scene.h"
#include "support/float_control.h"

namespace aclgrad::test {
namespace {

using StreamTest = DeviceTest;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

TEST_F(StreamTest, RunsInOrder) {
  aclrtStream stream = make_stream();
  std::vector<int> order;
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(enqueue(stream, [&, i] { order.push_back(i); }), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ASSERT_EQ(order.size(), 20000u);
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(StreamTest, NullStreamIsTheDefaultStream) {
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCtxGetCurrentDefaultStream(&stream), 0);
  int32_t id = -1, null_id = -2;
  EXPECT_EQ(aclrtStreamGetId(stream, &id), 0);
  EXPECT_EQ(aclrtStreamGetId(nullptr, &null_id), 0);
  EXPECT_EQ(id, null_id);
  bool ran = false;
  ASSERT_EQ(enqueue(nullptr, [&] { ran = true; }), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_TRUE(ran);
  EXPECT_EQ(aclgrad_check_stream("aclnnTest", nullptr), 0);
}

TEST_F(StreamTest, IdsDiffer) {
  aclrtStream first = make_stream();
  aclrtStream second = make_stream();
  int32_t first_id = 0, second_id = 0;
  EXPECT_EQ(aclrtStreamGetId(first, &first_id), 0);
  EXPECT_EQ(aclrtStreamGetId(second, &second_id), 0);
  EXPECT_NE(first_id, second_id);
  EXPECT_EQ(aclrtDestroyStream(first), 0);
  EXPECT_EQ(aclrtDestroyStream(second), 0);
}

TEST_F(StreamTest, StreamsAreIndependent) {
  aclrtStream held = make_stream();
  aclrtStream free_stream = make_stream();
  const SharedGate gate = make_gate();
  enqueue_gate(held, gate);
  // No call of the host: a GPU may make those of all streams one after the other.
  void* memory = nullptr;
  ASSERT_EQ(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  EXPECT_EQ(aclrtMemsetAsync(memory, 64, 1, 64, free_stream), 0);
  EXPECT_EQ(aclrtSynchronizeStream(free_stream), 0);
  EXPECT_EQ(aclrtFree(memory), 0);
  aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
  EXPECT_EQ(aclrtStreamQuery(held, &status), 0);
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  gate->open();
  EXPECT_EQ(aclrtSynchronizeStream(held), 0);
  EXPECT_EQ(aclrtStreamQuery(held, &status), 0);
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  EXPECT_EQ(aclrtDestroyStream(held), 0);
  EXPECT_EQ(aclrtDestroyStream(free_stream), 0);
}

// No call but a query: the worker does it, whatever state it is in (new, polling, parked).
TEST_F(StreamTest, QueuedWorkMakesProgressByItself) {
  aclrtStream stream = make_stream();
  for (const int pause : {0, 0, 1, 1, 30, 30, 0}) {
    sleep_ms(pause);
    const auto ran = make_gate();
    ASSERT_EQ(enqueue(stream, [ran] { ran->open(); }), 0);
    EXPECT_TRUE(ran->wait_for(5000)) << "after a pause of " << pause << " ms";
  }
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(StreamTest, TimeOuts) {
  aclrtStream stream = make_stream();
  const SharedGate gate = make_gate();
  enqueue_gate(stream, gate);
  for (const int timeout : {0, 1, 30}) {
    const auto start = Clock::now();
    expect_refused(aclrtSynchronizeStreamWithTimeout(stream, timeout),
                   ACL_ERROR_RT_STREAM_SYNC_TIMEOUT, "aclrtSynchronizeStreamWithTimeout");
    EXPECT_GE(milliseconds_since(start), timeout);
    expect_refused(aclrtSynchronizeDeviceWithTimeout(timeout), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
                   "aclrtSynchronizeDeviceWithTimeout");
  }
  EXPECT_LT(milliseconds_since(Clock::now()), 5000);
  gate->open();
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 10000), 0);
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 0), 0) << "nothing is queued";
  EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, -1), 0);
  EXPECT_EQ(aclrtSynchronizeDeviceWithTimeout(-1), 0);
  expect_refused(aclrtSynchronizeStreamWithTimeout(stream, -2), ACL_ERROR_RT_PARAM_INVALID,
                 "aclrtSynchronizeStreamWithTimeout");
  expect_refused(aclrtSynchronizeDeviceWithTimeout(-2), ACL_ERROR_RT_PARAM_INVALID,
                 "aclrtSynchronizeDeviceWithTimeout");
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(StreamTest, DestroyWaitsForTheWork) {
  aclrtStream stream = make_stream();
  std::atomic<int> runs{0};
  for (int i = 0; i < 5; ++i)
    ASSERT_EQ(enqueue(stream,
                      [&] {
                        sleep_ms(5);
                        ++runs;
                      }),
              0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(runs, 5);
}

TEST_F(StreamTest, ForcedDestroyDropsWhatHasNotStarted) {
  aclrtStream stream = make_stream();
  const SharedGate started = make_gate();
  const SharedGate hold = make_gate();
  const auto dropped = std::make_shared<int>(0);
  std::atomic<int> runs{0};
  ASSERT_EQ(enqueue(stream,
                    [=] {
                      started->open();
                      hold->wait();
                    }),
            0);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(enqueue(stream, [&, dropped] { ++runs; }), 0);
  started->wait();
  std::thread waiter([&] { aclrtSynchronizeStream(stream); });
  sleep_ms(10);
  std::thread opener([&] {
    sleep_ms(20);
    hold->open();
  });
  EXPECT_EQ(aclrtDestroyStreamForce(stream), 0);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(dropped.use_count(), 1) << "dropped work is destroyed";
  opener.join();
  waiter.join();
  expect_refused(aclrtDestroyStreamForce(stream), ACL_ERROR_RT_STREAM_CONTEXT,
                 "aclrtDestroyStreamForce");
}

TEST_F(StreamTest, WorkIsDestroyedBeforeSynchroniseReturns) {
  aclrtStream stream = make_stream();
  for (int i = 0; i < 500; ++i) {
    const auto captured = std::make_shared<int>(i);
    ASSERT_EQ(enqueue(stream, [captured] {}), 0);
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
    ASSERT_EQ(captured.use_count(), 1);
  }
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(StreamTest, SynchronizeDeviceCoversAllStreamsAndContexts) {
  aclrtContext before = nullptr, other = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&before), 0);
  std::atomic<int> runs{0};
  const auto slow = [&] {
    sleep_ms(10);
    ++runs;
  };
  aclrtStream first = make_stream();
  ASSERT_EQ(enqueue(first, slow), 0);
  ASSERT_EQ(enqueue(nullptr, slow), 0);
  ASSERT_EQ(aclrtCreateContext(&other, 0), 0);
  aclrtStream second = make_stream();
  ASSERT_EQ(enqueue(second, slow), 0);
  ASSERT_EQ(aclrtSetCurrentContext(before), 0);
  EXPECT_EQ(aclrtSynchronizeDevice(), 0);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(aclrtDestroyContext(other), 0);
  EXPECT_EQ(aclrtDestroyStream(first), 0);
}

// Whatever the calling thread set, and left as it was; inline and on the worker.
TEST_F(StreamTest, FloatingPointEnvironment) {
  aclrtStream stream = make_stream();
  std::fesetround(FE_UPWARD);
  const uint64_t saved = float_control();
  set_float_control(saved | kSubnormalsAreZero);
  for (const bool by_worker : {false, true}) {
    volatile float denormal = 0;
    volatile float third = 0;
    const auto ran = make_gate();
    ASSERT_EQ(enqueue(stream,
                      [&, ran] {
                        volatile float tiny = 1e-38f, ten = 10.0f, one = 1.0f, three = 3.0f;
                        denormal = tiny / ten;
                        third = one / three;
                        ran->open();
                      }),
              0);
    if (by_worker) ran->wait();
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
    EXPECT_EQ(float_control() & (kSubnormalsAreZero | kRoundingBits),
              (saved | kSubnormalsAreZero) & (kSubnormalsAreZero | kRoundingBits));
    EXPECT_GT(std::bit_cast<uint32_t>(static_cast<float>(denormal)), 0u);
    EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(third)), 0x3EAAAAABu);
    sleep_ms(by_worker ? 0 : 20);
  }
  set_float_control(saved);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(StreamTest, AnyFlagsOfTheContract) {
  for (const uint32_t flag : {0u, ACL_STREAM_FAST_LAUNCH, ACL_STREAM_FAST_SYNC,
                              ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC, 0x3Fu}) {
    aclrtStream stream = nullptr;
    EXPECT_EQ(aclrtCreateStreamWithConfig(&stream, 7, flag), 0);
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
  }
  aclrtStream stream = nullptr;
  expect_refused(aclrtCreateStreamWithConfig(&stream, 0, 0x40), ACL_ERROR_RT_PARAM_INVALID,
                 "aclrtCreateStreamWithConfig");
  EXPECT_EQ(stream, nullptr);
}

// Small work costs no thread switch: far below what one takes, even on a busy machine.
TEST_F(StreamTest, EnqueueAndSynchroniseAreCheap) {
  if (kSanitized || on_cuda()) GTEST_SKIP() << "times mean nothing here, or are those of CUDA";
  aclrtStream stream = make_stream();
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    constexpr int kCalls = 2000;
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_EQ(enqueue(stream, [] {}), 0);
      ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
    }
    best = std::min(best, milliseconds_since(start) * 1e6 / kCalls);
  }
  RecordProperty("nanoseconds", static_cast<int>(best));
  EXPECT_LT(best, 1500) << "nanoseconds for one piece of work";
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

}  // namespace
}  // namespace aclgrad::test

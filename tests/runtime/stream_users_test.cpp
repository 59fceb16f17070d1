// SPDX-License-Identifier: Apache-2.0
// Streams that several threads use at once, that are destroyed meanwhile, or that another stream's
// work uses.
#include <atomic>
#include <thread>
#include <vector>

#include "scene.h"

namespace aclgrad::test {
namespace {

using StreamTest = DeviceTest;

// A synchronise that returns leaves the rest to others: work queued by another thread meanwhile.
TEST_F(StreamTest, WorkBehindASynchroniseMakesProgress) {
  aclrtStream stream = make_stream();
  for (int i = 0; i < 300; ++i) {
    const SharedGate started = make_gate();
    const SharedGate hold = make_gate();
    const SharedGate last = make_gate();
    ASSERT_EQ(enqueue(stream,
                      [=] {
                        started->open();
                        hold->wait();
                      }),
              0);
    std::thread other([&] {
      started->wait();
      EXPECT_EQ(enqueue(stream, [=] { last->open(); }), 0);
      hold->open();
    });
    EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
    other.join();
    ASSERT_TRUE(last->wait_for(5000));
  }
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
}

TEST_F(StreamTest, ManyThreadsOnOneStreamAndEachOnItsOwn) {
  aclrtStream shared = make_stream();
  int shared_runs = 0;  // a stream runs one piece of work at a time
  constexpr int kThreads = 6, kEach = 2000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      ASSERT_EQ(aclrtSetDevice(0), 0);
      aclrtStream own = make_stream();
      int own_runs = 0;
      for (int i = 0; i < kEach; ++i) {
        ASSERT_EQ(enqueue(shared, [&] { ++shared_runs; }), 0);
        ASSERT_EQ(enqueue(own, [&] { ++own_runs; }), 0);
        if (i % 64 == 0) {
          ASSERT_EQ(aclrtSynchronizeStream(shared), 0);
        }
        if (i % 16 == 0) {
          ASSERT_EQ(aclrtSynchronizeStream(own), 0);
          ASSERT_EQ(own_runs, i + 1);
        }
      }
      ASSERT_EQ(aclrtDestroyStream(own), 0);
      ASSERT_EQ(own_runs, kEach);
      ASSERT_EQ(aclrtSynchronizeStream(shared), 0);
      ASSERT_EQ(aclrtResetDevice(0), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(aclrtDestroyStream(shared), 0);
  EXPECT_EQ(shared_runs, kThreads * kEach);
}

// Handles destroyed under the users' feet: a status, never a crash.
TEST_F(StreamTest, DestroyedWhileOthersUseIt) {
  for (int round = 0; round < 30; ++round) {
    aclrtStream stream = make_stream();
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 200; ++i) {
          const Status queued = enqueue(stream, [] {});
          ASSERT_TRUE(queued == 0 || queued == kParamInvalid || queued == kRuntimeError) << queued;
          const aclError waited = aclrtSynchronizeStream(stream);
          ASSERT_TRUE(waited == 0 || waited == ACL_ERROR_RT_STREAM_CONTEXT) << waited;
        }
        messages();
      });
    }
    EXPECT_EQ(aclrtDestroyStream(stream), 0);
    for (std::thread& thread : threads) thread.join();
  }
}

// The handle of a destroyed stream reaches none that was made since, on any thread.
TEST_F(StreamTest, UsedAfterAnotherOneWasDestroyed) {
  std::atomic<aclrtStream> first{make_stream()}, second{nullptr};
  std::atomic<int> step{0};
  std::thread user([&] {
    EXPECT_EQ(enqueue(first, [] {}), 0);
    EXPECT_EQ(aclrtSynchronizeStream(first), 0);
    step = 1;
    while (step != 2) std::this_thread::yield();
    EXPECT_EQ(aclrtSynchronizeStream(first), ACL_ERROR_RT_STREAM_CONTEXT);
    EXPECT_EQ(enqueue(first, [] {}), kParamInvalid);
    bool ran = false;
    EXPECT_EQ(enqueue(second, [&] { ran = true; }), 0);
    EXPECT_EQ(aclrtSynchronizeStream(second), 0);
    EXPECT_TRUE(ran);
    EXPECT_EQ(aclrtSynchronizeStream(first), ACL_ERROR_RT_STREAM_CONTEXT);
    EXPECT_EQ(aclrtDestroyStream(second), 0);
    EXPECT_EQ(aclrtSynchronizeStream(second), ACL_ERROR_RT_STREAM_CONTEXT);
    messages();
  });
  while (step != 1) std::this_thread::yield();
  EXPECT_EQ(aclrtDestroyStream(first), 0);
  second = make_stream();
  step = 2;
  user.join();
}

// Work that the synchronising thread runs may itself use streams, this one and others.
TEST_F(StreamTest, UsedInsideWorkOfAnotherOne) {
  if (on_cuda()) GTEST_SKIP() << "a host function of CUDA may call nothing of CUDA";
  aclrtStream outer = make_stream(), inner = make_stream();
  for (int i = 0; i < 200; ++i) {
    bool ran = false;
    ASSERT_EQ(enqueue(outer,
                      [&] {
                        int32_t id = -1;
                        EXPECT_EQ(aclrtStreamGetId(outer, &id), 0);
                        EXPECT_EQ(enqueue(inner, [&] { ran = true; }), 0);
                        EXPECT_EQ(aclrtSynchronizeStream(inner), 0);
                      }),
              0);
    ASSERT_EQ(aclrtSynchronizeStream(outer), 0);
    ASSERT_TRUE(ran);
  }
  EXPECT_EQ(aclrtDestroyStream(inner), 0);
  EXPECT_EQ(aclrtDestroyStream(outer), 0);
}

}  // namespace
}  // namespace aclgrad::test

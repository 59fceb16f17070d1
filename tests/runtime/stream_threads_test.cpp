// SPDX-License-Identifier: Apache-2.0
// The threads of streams: joined at the end of the process, and none started that nobody joins.
#include "runtime/stream_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

#include "runtime/backend.h"

namespace aclgrad {
namespace {

// One test, because what join_all() begins cannot be taken back.
TEST(StreamThreads, JoinAllWaitsForThreadsThatRunAndLetsNoneStart) {
  std::atomic<bool> begun{false};
  std::atomic<bool> ended{false};
  stream_threads::start([&] {
    begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ended = true;
  });
  while (!begun) std::this_thread::yield();
  stream_threads::join_all(Deadline::in_milliseconds(60'000));
  EXPECT_TRUE(ended);
  bool started = false;
  EXPECT_THROW(stream_threads::start([&] { started = true; }), std::system_error);
  stream_threads::join_all(Deadline::in_milliseconds(60'000));
  EXPECT_FALSE(started);
}

}  // namespace
}  // namespace aclgrad

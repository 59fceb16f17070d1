// SPDX-License-Identifier: Apache-2.0
// Parallel loops: every block runs once, whoever gets it.
#include "kernels/cpu/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace aclgrad::test {
namespace {

TEST(Parallel, RunsAreAllBlocksInOrder) {
  for (const int64_t blocks :
       {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{1000}, int64_t{1} << 40}) {
    for (int64_t runs = 1; runs <= std::min(blocks, int64_t{kMostRuns}); ++runs) {
      EXPECT_EQ(run_begin(blocks, runs, 0), 0);
      EXPECT_EQ(run_begin(blocks, runs, runs), blocks);
      for (int64_t run = 0; run < runs; ++run) {
        const int64_t length = run_begin(blocks, runs, run + 1) - run_begin(blocks, runs, run);
        EXPECT_GE(length, blocks / runs);
        EXPECT_LE(length, blocks / runs + 1);
        EXPECT_EQ(run_of(blocks, runs, run_begin(blocks, runs, run)), run);
        EXPECT_EQ(run_of(blocks, runs, run_begin(blocks, runs, run + 1) - 1), run);
      }
    }
  }
}

TEST(Parallel, EveryBlockRunsOnce) {
  const int usual = aclgrad_threads();
  for (const int threads : {1, 2, 3, 8, kMostRuns + 5}) {
    aclgrad_use_threads(threads);
    for (const int64_t blocks : {0, 1, 2, 3, 64, 1001}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(blocks));
      parallel_blocks(blocks, [&](int64_t block) {
        // The first blocks take longest, so that other threads come to help with their run.
        if (block < 3) std::this_thread::sleep_for(std::chrono::microseconds(200));
        ++times[static_cast<size_t>(block)];
      });
      for (const std::atomic<int>& count : times) EXPECT_EQ(count.load(), 1);
    }
  }
  aclgrad_use_threads(usual);
}

// Streams call at once; all share the threads that there are.
TEST(Parallel, CallersAtOnceGetTheirOwnBlocks) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) parallel_blocks(100, [&](int64_t block) { sum += block; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), int64_t{4} * 50 * 4950);
}

}  // namespace
}  // namespace aclgrad::test

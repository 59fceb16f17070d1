// SPDX-License-Identifier: Apache-2.0
// Which of two ways is taken, by a clock that the test sets.
#include "kernels/cpu/faster_way.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace aclgrad::test {
namespace {

struct FakeClock {
  using duration = std::chrono::microseconds;
  using time_point = std::chrono::time_point<FakeClock, duration>;
  static time_point now() { return time_point(duration(microseconds)); }
  static inline int64_t microseconds = 0;
};

using Ways = FasterWay<FakeClock>;

// The ways that so many runs take, if each takes so many microseconds.
std::vector<bool> ways_of(Ways& ways, const Ways::Key& key, bool second_first, int runs,
                          int64_t first, int64_t second) {
  std::vector<bool> taken;
  for (int run = 0; run < runs; ++run) {
    ways.run(key, 10, second_first, [&](bool is_second) {
      taken.push_back(is_second);
      FakeClock::microseconds += is_second ? second : first;
    });
  }
  return taken;
}

size_t count(const std::vector<bool>& taken, bool second) {
  size_t runs = 0;
  for (const bool each : taken) runs += each == second ? 1 : 0;
  return runs;
}

TEST(FasterWay, BeginsWithTheWayThatIsNamedAndThenTriesTheOther) {
  for (const bool second_first : {false, true}) {
    Ways ways;
    const std::vector<bool> taken = ways_of(ways, {1, 2, 3, 4}, second_first, 3, 100, 100);
    EXPECT_EQ(taken, (std::vector<bool>{second_first, second_first, !second_first}));
  }
}

TEST(FasterWay, StaysWithTheFasterOneAndTriesTheOtherNowAndThen) {
  for (const bool second_first : {false, true}) {
    for (const bool second_is_faster : {false, true}) {
      Ways ways;
      const std::vector<bool> taken =
          ways_of(ways, {5, 5, 5, 5}, second_first, 1600, second_is_faster ? 110 : 100,
                  second_is_faster ? 100 : 110);
      const size_t slower = count(taken, !second_is_faster);
      EXPECT_GE(slower, 50u);
      EXPECT_LE(slower, 110u);
    }
  }
}

TEST(FasterWay, ChangesWhenTheMachineDoes) {
  Ways ways;
  ways_of(ways, {1, 1, 1, 1}, false, 40, 100, 120);
  ways_of(ways, {1, 1, 1, 1}, false, 40, 90, 70);
  EXPECT_GE(count(ways_of(ways, {1, 1, 1, 1}, false, 160, 90, 70), true), 145u);
  ways_of(ways, {1, 1, 1, 1}, false, 80, 200, 220);  // both slower than ever
  EXPECT_GE(count(ways_of(ways, {1, 1, 1, 1}, false, 160, 200, 220), false), 145u);
}

TEST(FasterWay, TriesTheOtherAtOnceWhereTheMachineHasBecomeFaster) {
  Ways ways;
  ways_of(ways, {2, 2, 2, 2}, false, 5, 200, 220);
  ways_of(ways, {2, 2, 2, 2}, false, 1, 100, 80);
  EXPECT_EQ(count(ways_of(ways, {2, 2, 2, 2}, false, 9, 100, 80), true), 9u);
}

TEST(FasterWay, OneDisturbedRunDoesNotDecide) {
  Ways ways;
  ways_of(ways, {7, 1, 1, 2}, true, 10, 100, 90);
  ways_of(ways, {7, 1, 1, 2}, true, 1, 100, 150);
  EXPECT_EQ(count(ways_of(ways, {7, 1, 1, 2}, true, 5, 100, 90), true), 5u);
}

TEST(FasterWay, TheFirstRunFindsNothingInTheCaches) {
  Ways ways;
  ways_of(ways, {3, 1, 1, 2}, true, 1, 100, 5000);
  EXPECT_EQ(count(ways_of(ways, {3, 1, 1, 2}, true, 15, 100, 90), false), 1u);
}

TEST(FasterWay, RunsOfProblemsOfAllSizesAreComparedByTheirAmountOfWork) {
  Ways ways;
  size_t seconds = 0;
  for (int64_t run = 0; run < 100; ++run) {
    const int64_t amount = 1 + run * 37 % 100;
    ways.run({1, 2, 3, 4}, amount, false, [&](bool second) {
      FakeClock::microseconds += amount * (second ? 100 : 105);
      seconds += second ? 1 : 0;
    });
  }
  EXPECT_GE(seconds, 90u);
  EXPECT_LE(seconds, 95u);
}

TEST(FasterWay, ProblemsAreToldApart) {
  Ways ways;
  for (int64_t threads = 1; threads <= 2; ++threads) {
    for (int turn = 0; turn < 3; ++turn) {
      const int64_t first = threads == 1 ? 100 : 50, second = threads == 1 ? 50 : 100;
      ways_of(ways, {32, 406, 7168, threads}, false, 6, first, second);
    }
  }
  EXPECT_EQ(count(ways_of(ways, {32, 406, 7168, 1}, false, 10, 100, 50), true) +
                count(ways_of(ways, {32, 406, 7168, 2}, false, 10, 50, 100), false),
            20u);
}

// More problems than are remembered begin anew; each run is made once all the same.
TEST(FasterWay, ManyProblemsAndThreadsRunEachOnce) {
  FasterWay<> ways;
  std::atomic<int> runs{0};
  std::vector<std::thread> threads;
  for (int64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t problem = 0; problem < 500; ++problem) {
        ways.run({problem % 100, thread % 2, 0, 0}, 1, false, [&](bool) { ++runs; });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runs, 2000);
}

}  // namespace
}  // namespace aclgrad::test

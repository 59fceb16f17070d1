// SPDX-License-Identifier: Apache-2.0
// The threads of CPU streams as the system sees them: how often each went to sleep. One that is
// parked does so no more.
#ifndef ACLGRAD_TESTS_SUPPORT_STREAM_THREADS_H_
#define ACLGRAD_TESTS_SUPPORT_STREAM_THREADS_H_

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>

namespace aclgrad::test {

// By the number of the thread.
using Sleeps = std::map<int, int64_t>;

inline Sleeps sleeps_of_stream_threads() {
  Sleeps sleeps;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "aclgrad-stream") continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      if (word != "voluntary_ctxt_switches:") continue;
      status >> sleeps[std::stoi(task.path().filename())];
      break;
    }
  }
  return sleeps;
}

// Once all are parked. They poll every fifth of a millisecond before; where other programs keep
// them from it, every now and then.
inline Sleeps sleeps_when_parked() {
  Sleeps before = sleeps_of_stream_threads();
  for (int look = 0; look < 100; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Sleeps now = sleeps_of_stream_threads();
    if (now == before) break;
    before = std::move(now);
  }
  return before;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_SUPPORT_STREAM_THREADS_H_

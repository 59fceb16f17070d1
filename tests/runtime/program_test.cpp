// SPDX-License-Identifier: Apache-2.0
// Runs the scenarios of program.cpp, each as a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "scene.h"

namespace aclgrad::test {
namespace {

struct Outcome {
  int status = -1;
  std::string output;  // stdout and stderr
  double seconds = 0;
};

// `environment`: "A=1 B=2 ", or empty.
Outcome run(const std::string& scenario, const std::string& environment = "") {
  const std::string command =
      "env -u ASCEND_LAUNCH_BLOCKING -u ACL_LAUNCH_BLOCKING -u "
      "ASCEND_RT_VISIBLE_DEVICES -u ACLGRAD_THREADS -u ACLGRAD_DEVICE -u "
      "ACLGRAD_VERBOSE " +
      environment + " timeout 60 " RUNTIME_PROGRAM " " + scenario + " 2>&1";
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 512> text{};
  while (std::fgets(text.data(), static_cast<int>(text.size()), pipe) != nullptr) {
    outcome.output += text.data();
  }
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

TEST(Program, ForkedChildIsRefused) {
  // In a child the worker's stack is gone, and with it the last reference to what it was running.
  const Outcome outcome = run("forked", "ASAN_OPTIONS=detect_leaks=0");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
}

TEST(Program, ExitAbandonsWorkThatHasNotStarted) {
  for (const char* scenario : {"exit_with_work", "exit_with_waiters"}) {
    const Outcome outcome = run(scenario);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    EXPECT_LT(outcome.seconds, 20) << "100 s of work were queued";
  }
}

TEST(Program, ExitJoinsTheThreadsOfStreams) {
  if (on_cuda()) GTEST_SKIP() << "streams of CUDA have no threads of their own";
  const Outcome outcome = run("exit_joins_threads");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(Program, StaticDestructorsMayFreeAndDestroy) {
  const Outcome outcome = run("static_destructors");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_TRUE(contains(outcome.output, "destroyed")) << outcome.output;
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_EQ(run("static_destructors_after_finalize").status, 0);
}

TEST(Program, LaunchBlocking) {
  for (const char* variable : {"ASCEND_LAUNCH_BLOCKING=1", "ACL_LAUNCH_BLOCKING=1"}) {
    const Outcome outcome = run("launch_blocking", variable);
    EXPECT_EQ(outcome.status, 0) << variable << ": " << outcome.output;
  }
  EXPECT_NE(run("launch_blocking", "ASCEND_LAUNCH_BLOCKING=0").status, 0);
}

TEST(Program, IdleStreamsCostNothing) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own threads use the CPU";
  const Outcome outcome = run("idle");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(Program, LittleAddressSpace) {
  if (kSanitized || on_cuda()) GTEST_SKIP() << "the sanitizer, or CUDA, needs the address space";
  const Outcome outcome = run("small_address_space");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(Program, NoMemoryForObjects) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer needs the address space";
  const Outcome outcome = run("no_memory");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(Knobs, RightValuesSayNothing) {
  const Outcome outcome =
      run("environment",
          "ASCEND_RT_VISIBLE_DEVICES=0 ACLGRAD_THREADS=3 ACLGRAD_DEVICE=cpu ACLGRAD_VERBOSE=0 "
          "ASCEND_LAUNCH_BLOCKING=1 ACL_LAUNCH_BLOCKING=0");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "devices 1 cores 3\n");
}

TEST(Knobs, VerboseShowsTheProgramsLog) {
  const Outcome outcome = run("environment", "ACLGRAD_VERBOSE=1");
  EXPECT_TRUE(contains(outcome.output, "hello 5")) << outcome.output;
}

TEST(Knobs, WrongValuesAreNamedOnceAndIgnored) {
  const std::string plain = run("environment").output;
  const bool may_have_gpu = on_cuda() || access("/dev/nvidiactl", F_OK) == 0;
  for (const char* setting :
       {"ASCEND_RT_VISIBLE_DEVICES=1", "ASCEND_RT_VISIBLE_DEVICES=0,0",
        "ASCEND_RT_VISIBLE_DEVICES=0,", "ASCEND_RT_VISIBLE_DEVICES=x", "ACLGRAD_THREADS=0",
        "ACLGRAD_THREADS=2x", "ACLGRAD_THREADS=99999999999999999999",
        may_have_gpu ? "ACLGRAD_DEVICE=npu" : "ACLGRAD_DEVICE=cuda", "ACLGRAD_DEVICE=gpu",
        "ACLGRAD_VERBOSE=yes", "ASCEND_LAUNCH_BLOCKING=2", "ACL_LAUNCH_BLOCKING=true"}) {
    const Outcome outcome = run("environment", setting);
    EXPECT_EQ(outcome.status, 0);
    const std::string line = "aclgrad: " + std::string(setting) + " ignored; expected ";
    const size_t begin = outcome.output.find(line);
    ASSERT_NE(begin, std::string::npos) << setting << ": " << outcome.output;
    const size_t end = outcome.output.find('\n', begin) + 1;
    EXPECT_GT(end, begin + line.size() + 1);
    EXPECT_EQ(outcome.output.substr(0, begin) + outcome.output.substr(end), plain) << setting;
  }
}

}  // namespace
}  // namespace aclgrad::test

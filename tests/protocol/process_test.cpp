// SPDX-License-Identifier: Apache-2.0
// What a whole process shows: environment variables, the verbose line, blocking launches, fork, the
// end of the process, and no memory.
#include <unistd.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "base/status.h"
#include "protocol/child.h"
#include "protocol/small_problems.h"
#include "support/targets.h"

namespace aclgrad::test {
namespace {

constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

size_t occurrences(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

bool contains(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The child's run of every operator went well.
void expect_all_ran(const ChildResult& child) {
  EXPECT_EQ(child.exit_code, 0) << child.err;
  const std::vector<std::string> lines = lines_of(child.out);
  EXPECT_EQ(lines.size(), 2 * small_problem_count()) << child.out;
  for (const std::string& line : lines) {
    EXPECT_TRUE(line.size() > 4 && line.substr(line.size() - 4) == " 0 0") << line;
  }
}

TEST(Process, SaysNothingByItself) {
  const ChildResult child = run_child("run_all");
  expect_all_ran(child);
  EXPECT_EQ(child.err, "");
}

TEST(Process, VerboseLines) {
  for (const std::string& target : usable_targets()) {
    const ChildResult child =
        run_child("run_all", {"ACLGRAD_VERBOSE=1", "ACLGRAD_TARGET=" + target});
    expect_all_ran(child);
    const std::vector<std::string> lines = lines_of(child.err);
    ASSERT_EQ(lines.size(), 2 * small_problem_count()) << child.err;
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string folder = make_small_problem(i / 2).folder;
      const std::regex grammar("aclgrad: " + folder + "/(f32|f16|bf16)/[0-9]+(x[0-9]+)*[^ ]* cpu " +
                               target +
                               " time [0-9]+\\.[0-9] us bytes [1-9][0-9]* packed ([0-9]+)");
      std::smatch parts;
      ASSERT_TRUE(std::regex_match(lines[i], parts, grammar)) << lines[i];
      // Contiguous tensors are read in place, tensors strided inside are packed.
      EXPECT_EQ(parts[3] == "0", i % 2 == 0) << lines[i];
    }
  }
}

TEST(Process, VerboseZeroIsQuiet) {
  const ChildResult child = run_child("run_all", {"ACLGRAD_VERBOSE=0"});
  expect_all_ran(child);
  EXPECT_EQ(child.err, "");
}

TEST(Process, Threads) {
  for (const char* threads : {"1", "2", "3", "17"}) {
    const ChildResult child = run_child("settings", {std::string("ACLGRAD_THREADS=") + threads});
    EXPECT_TRUE(contains(child.out, std::string("threads ") + threads + " cores " + threads + " "))
        << child.out;
    EXPECT_EQ(child.err, "");
  }
}

TEST(Process, Target) {
  for (const std::string& target : usable_targets()) {
    const ChildResult child = run_child("settings", {"ACLGRAD_TARGET=" + target});
    EXPECT_TRUE(contains(child.out, "target " + target + "\n")) << child.out;
    EXPECT_EQ(child.err, "");
  }
}

TEST(Process, DeviceAndVisibleDevices) {
  const ChildResult child =
      run_child("settings", {"ACLGRAD_DEVICE=cpu", "ASCEND_RT_VISIBLE_DEVICES=0"});
  EXPECT_TRUE(contains(child.out, "devices 1 ")) << child.out;
  EXPECT_EQ(child.err, "");
}

// Named once, with the value, and the program runs as if it were not set.
TEST(Process, WrongValuesAreNamedOnceAndIgnored) {
  const std::string usual = run_child("settings").out;
  const bool may_have_gpu = access("/dev/nvidiactl", F_OK) == 0;
  for (const char* setting :
       {"ACLGRAD_THREADS=0", "ACLGRAD_THREADS=-1", "ACLGRAD_THREADS=2x", "ACLGRAD_THREADS=many",
        "ACLGRAD_THREADS=99999999999999999999", "ACLGRAD_TARGET=AVX9", "ACLGRAD_TARGET=avx2",
        "ACLGRAD_PREFETCHES=often", "ACLGRAD_DEVICE=npu",
        may_have_gpu ? "ACLGRAD_DEVICE=gpu" : "ACLGRAD_DEVICE=cuda", "ACLGRAD_VERBOSE=yes",
        "ACLGRAD_VERBOSE=2", "ASCEND_LAUNCH_BLOCKING=on", "ACL_LAUNCH_BLOCKING=2",
        "ASCEND_RT_VISIBLE_DEVICES=a", "ASCEND_RT_VISIBLE_DEVICES=0,0",
        "ASCEND_RT_VISIBLE_DEVICES=1"}) {
    SCOPED_TRACE(setting);
    const ChildResult child = run_child("settings", {setting});
    EXPECT_EQ(child.exit_code, 0);
    EXPECT_EQ(child.out, usual);
    EXPECT_EQ(occurrences(child.err, setting), 1u) << child.err;
    EXPECT_EQ(occurrences(child.err, "\n"), 1u) << child.err;
    EXPECT_TRUE(contains(child.err, "ignored")) << child.err;
  }
}

TEST(Process, EmptyValuesAreAsUnset) {
  const ChildResult child =
      run_child("settings", {"ACLGRAD_THREADS=", "ACLGRAD_TARGET=", "ACLGRAD_PREFETCHES=",
                             "ACLGRAD_DEVICE=", "ACLGRAD_VERBOSE=", "ASCEND_LAUNCH_BLOCKING="});
  EXPECT_EQ(child.out, run_child("settings").out);
  EXPECT_EQ(child.err, "");
}

TEST(Process, LaunchBlocking) {
  for (const char* setting : {"ASCEND_LAUNCH_BLOCKING=1", "ACL_LAUNCH_BLOCKING=1"}) {
    const ChildResult child = run_child("blocking", {setting});
    EXPECT_EQ(child.exit_code, 0) << child.err;
    EXPECT_TRUE(contains(child.out, "good 0 done 1 bad 361001 synchronise 0\n")) << child.out;
    const size_t name = child.out.find("aclnnEmbeddingDenseBackward: indices holds 99");
    EXPECT_NE(name, std::string::npos) << child.out;
    EXPECT_EQ(child.out.find("aclnnEmbeddingDenseBackward"), name) << "named twice: " << child.out;
  }
  for (const char* setting : {"ASCEND_LAUNCH_BLOCKING=0", "ACL_LAUNCH_BLOCKING=0"}) {
    const ChildResult child = run_child("blocking", {setting});
    EXPECT_TRUE(contains(child.out, "bad 0 synchronise 507015\n")) << child.out;
  }
}

TEST(Process, ManyThreadsMayWaitInBlockingLaunches) {
  const ChildResult child = run_child("crowd_of_launches", {"ASCEND_LAUNCH_BLOCKING=1"});
  EXPECT_EQ(child.exit_code, 0) << child.err;
  EXPECT_EQ(child.out, "copied 0 failed 0 freed 0\n");
}

TEST(Process, StaticDestructorsAfterFinalize) {
  const ChildResult child = run_child("static_destructors");
  EXPECT_EQ(child.exit_code, 0) << child.err;
  EXPECT_EQ(child.out, "finalised\nstatic destructor good\n");
  EXPECT_EQ(child.err, "");
}

TEST(Process, ExitWithQueuedWork) {
  const ChildResult child = run_child("exit_with_queued_work");
  EXPECT_EQ(child.exit_code, 0) << child.err;
  EXPECT_EQ(child.out, "queued 1\n");
}

TEST(Process, Fork) {
  const ChildResult child = run_child("fork_child");
  EXPECT_EQ(child.exit_code, 0) << child.err;
  EXPECT_EQ(child.out, "500000 500000 500000 500000 500000 named\nchild 0\n");
}

TEST(Process, NoMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need their address space";
  const ChildResult child = run_child("no_memory");
  EXPECT_EQ(child.exit_code, 0) << child.out << child.err;
  EXPECT_EQ(child.out, "executor 561101 1 array 200000 1\nafterwards 1\n");
}

TEST(Process, NoDeviceMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need their address space";
  const ChildResult child = run_child("no_device_memory");
  EXPECT_EQ(child.exit_code, 0) << child.out << child.err;
  EXPECT_EQ(child.out, "device 207001 in the end\npinned 207001 in the end\n");
}

}  // namespace
}  // namespace aclgrad::test

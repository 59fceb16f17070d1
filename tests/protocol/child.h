// SPDX-License-Identifier: Apache-2.0
// Runs the program protocol_child, which lies beside the test, with a scenario and an environment.
#ifndef ACLGRAD_TESTS_PROTOCOL_CHILD_H_
#define ACLGRAD_TESTS_PROTOCOL_CHILD_H_

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern char** environ;  // NOLINT: the environment of this process, as POSIX names it

namespace aclgrad::test {

struct ChildResult {
  int exit_code = -1;  // 128 + the signal for a process that was killed
  std::string out;
  std::string err;
};

class Capture {
 public:
  Capture() : file_(std::tmpfile()) {
    if (file_ == nullptr) throw std::runtime_error("no temporary file");
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { std::fclose(file_); }
  int descriptor() const { return fileno(file_); }
  std::string text() const {
    std::string out;
    std::rewind(file_);
    std::array<char, 4096> buffer{};
    while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file_)) {
      out.append(buffer.data(), count);
    }
    return out;
  }

 private:
  std::FILE* file_;
};

inline std::string child_path() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) throw std::runtime_error("no /proc/self/exe");
  const std::string self(path.data(), static_cast<size_t>(length));
  return self.substr(0, self.rfind('/') + 1) + "protocol_child";
}

// Kills the child and fails after a minute: the scenarios take well under a second.
inline int wait_for(pid_t process) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > limit) {
      ADD_FAILURE() << "the child hangs";
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The library's own variables do not reach the child from outside; `settings` are "NAME=value".
inline ChildResult run_child(const std::string& scenario,
                             const std::vector<std::string>& settings = {}) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const bool ours = text.rfind("ACLGRAD_", 0) == 0 || text.rfind("ASCEND_", 0) == 0 ||
                      text.rfind("ACL_", 0) == 0;
    if (!ours) environment.push_back(text);
  }
  environment.insert(environment.end(), settings.begin(), settings.end());
  std::vector<char*> pointers;
  for (std::string& entry : environment) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  std::string path = child_path();
  std::string argument = scenario;
  char* const arguments[] = {path.data(), argument.data(), nullptr};
  const Capture out;
  const Capture err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out.descriptor(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.descriptor(), STDERR_FILENO);
  pid_t process = 0;
  const int error =
      posix_spawn(&process, path.c_str(), &actions, nullptr, arguments, pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + path);
  ChildResult result;
  result.exit_code = wait_for(process);
  result.out = out.text();
  result.err = err.text();
  return result;
}

}  // namespace aclgrad::test

#endif  // ACLGRAD_TESTS_PROTOCOL_CHILD_H_

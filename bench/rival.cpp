// SPDX-License-Identifier: Apache-2.0
#include "bench/rival.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace aclgrad::bench {

Rival::Rival(std::string name, const std::string& command, int threads) : name_(std::move(name)) {
  int in[2], out[2];
  // Closed in children, this one and later ones: a rival ends when nobody holds its input open.
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
    throw std::runtime_error(name_ + ": no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  std::string text = "exec " + command;
  char shell[] = "sh", flag[] = "-c";
  char* const arguments[] = {shell, flag, text.data(), nullptr};
  const int error = posix_spawnp(&process_, "sh", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
  signal(SIGPIPE, SIG_IGN);  // a rival that has ended is an error of its own, not our end
  if (error != 0 || to_ == nullptr || from_ == nullptr) {
    throw std::runtime_error(name_ + ": cannot start " + command);
  }
  if (ask("threads " + std::to_string(threads)) != "ok") {
    throw std::runtime_error(name_ + ": does not take a number of threads");
  }
}

Rival::~Rival() {
  if (to_ != nullptr) std::fclose(to_);
  if (from_ != nullptr) std::fclose(from_);
  if (process_ > 0) waitpid(process_, nullptr, 0);
}

std::string Rival::ask(const std::string& line) {
  std::string answer;
  if (std::fprintf(to_, "%s\n", line.c_str()) > 0 && std::fflush(to_) == 0) {
    for (int c = std::fgetc(from_); c != EOF; c = std::fgetc(from_)) {
      if (c == '\n') return answer;
      answer.push_back(static_cast<char>(c));
    }
  }
  throw std::runtime_error("the rival " + name_ + " ended at: " + line);
}

void Rival::give_up(const std::string& why) {
  given_up_ = true;
  remark_ = why;
}

bool Rival::make(const std::string& problem, size_t copies) {
  if (given_up_) return false;
  const std::string answer = ask("make " + problem + " " + std::to_string(copies));
  const std::string verdict = answer.substr(0, 2);
  if (verdict != "ok" && verdict != "no") {
    throw std::runtime_error("the rival " + name_ + " answered: " + answer);
  }
  remark_ = answer.size() > 3 ? answer.substr(3) : "";
  return verdict == "ok";
}

double Rival::run(int repeats) {
  const std::string answer = ask("run " + std::to_string(repeats));
  char* end = nullptr;
  const double seconds = std::strtod(answer.c_str(), &end);
  if (end == answer.c_str() || !(seconds > 0)) {
    throw std::runtime_error("the rival " + name_ + " answered: " + answer);
  }
  return seconds;
}

}  // namespace aclgrad::bench

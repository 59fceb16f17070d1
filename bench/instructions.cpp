// SPDX-License-Identifier: Apache-2.0
// aclgrad_instructions problem...: how many instructions a call takes, counted one by one: a child
// runs the problem on one thread, step by step. Half a million a second, so problems of some
// hundred thousand elements are long enough. Those of both phases, some thousand, are among them.
#include <pthread.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "bench/bench.h"
#include "bench/measure.h"
#include "kernels/cpu/parallel.h"

// In place of the system's: a stream that gets no thread does its work on the one that waits, which
// is the one that is watched.
extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  return EAGAIN;
}

namespace {

using namespace aclgrad;
using namespace aclgrad::bench;

constexpr const char* kWatched = "--watched";

struct Counts {
  int64_t all = 0;
  int64_t vector = 0;  // coded with VEX or EVEX, those on masks included
};

// The child's part; begin and end of what is counted are traps.
void run_watched(const Job& job) {
  aclgrad_use_threads(1);
  Subject subject(*job.op, parse_dtype(job.dtype), job.shape);
  subject.call();
  std::raise(SIGTRAP);
  subject.call();
  std::raise(SIGTRAP);
}

bool is_vector(pid_t child) {
  user_regs_struct registers{};
  ptrace(PTRACE_GETREGS, child, nullptr, &registers);
  errno = 0;
  const long code = ptrace(PTRACE_PEEKTEXT, child, registers.rip, nullptr);
  const auto first = static_cast<unsigned char>(code);
  return errno == 0 && (first == 0x62 || first == 0xC4 || first == 0xC5);
}

// Lets the child go on until it raises the signal itself; adds the steps if there are any.
void await_mark(pid_t child, bool step, Counts& counts) {
  for (;;) {
    ptrace(step ? PTRACE_SINGLESTEP : PTRACE_CONT, child, nullptr, nullptr);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) {
      throw std::runtime_error("the problem ended before it was through");
    }
    siginfo_t info{};
    ptrace(PTRACE_GETSIGINFO, child, nullptr, &info);
    if (info.si_signo == SIGTRAP && info.si_code == SI_TKILL) return;
    ++counts.all;
    if (is_vector(child)) ++counts.vector;
  }
}

Counts count(const Job& job) {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process could be made");
  if (child == 0) {  // the library does not go on in a fork
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    execl("/proc/self/exe", "aclgrad_instructions", kWatched, job.name().c_str(), nullptr);
    _exit(1);
  }
  Counts counts;
  await_mark(child, false, counts);
  await_mark(child, true, counts);
  ptrace(PTRACE_CONT, child, nullptr, nullptr);
  waitpid(child, nullptr, 0);
  return counts;
}

void show(const Job& job) {
  const Counts counts = count(job);
  const int64_t bytes = job.op->make(parse_dtype(job.dtype), job.shape).bytes;
  const double lines = static_cast<double>(bytes) / 64;
  std::printf("%-52s %12lld %12lld %12lld %10.1f %10.1f\n", job.name().c_str(),
              static_cast<long long>(bytes), static_cast<long long>(counts.all),
              static_cast<long long>(counts.vector), static_cast<double>(counts.all) / lines,
              static_cast<double>(counts.vector) / lines);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: aclgrad_instructions problem...\n");
    return 1;
  }
  try {
    require(aclrtSetDevice(0), "aclrtSetDevice");
    if (argv[1] == std::string(kWatched) && argc == 3) {
      run_watched(parse_job(argv[2]));
      return 0;
    }
    std::printf("%-52s %12s %12s %12s %10s %10s\n", "problem", "bytes", "instructions", "vector",
                "of a line", "vector");
    for (int i = 1; i < argc; ++i) show(parse_job(argv[i]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
// Scenarios that need a process of their own, started by program_test with the scenario's name:
// how a process ends, forks, what the environment changes, what idle streams cost. Prints what
// happened on stdout; the exit status is 0 when it went as the scenario wants.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "runtime/services.h"

namespace {

using namespace aclgrad;

struct FunctionWork final : Work {
  explicit FunctionWork(void (*body)(DataErrors&)) : function(body) {}
  void run(DataErrors& errors) noexcept override { function(errors); }
  void (*function)(DataErrors&);
};

Status enqueue(aclrtStream stream, void (*body)(DataErrors&)) {
  return aclgrad_enqueue("aclnnTest", stream, new FunctionWork(body), nullptr);
}

void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Ends the scenario when a status is not the expected one.
void expect(long got, long wanted, const char* what) {
  if (got == wanted) return;
  const char* text = aclGetRecentErrMsg();
  std::printf("%s gave %ld, expected %ld: %s\n", what, got, wanted, text == nullptr ? "" : text);
  std::fflush(stdout);
  std::_Exit(1);
}

aclrtStream start() {
  expect(aclInit(nullptr), 0, "aclInit");
  expect(aclrtSetDevice(0), 0, "aclrtSetDevice");
  aclrtStream stream = nullptr;
  expect(aclrtCreateStream(&stream), 0, "aclrtCreateStream");
  return stream;
}

void long_work(DataErrors&) { sleep_ms(100); }
std::atomic<bool> started{false};
void work_that_starts(DataErrors&) {
  started = true;
  sleep_ms(100);
}

// A child that calls nothing goes its way; calls of a child are refused, quickly and by name.
int forked() {
  aclrtStream stream = start();
  void* memory = nullptr;
  expect(aclrtMalloc(&memory, 100, ACL_MEM_MALLOC_HUGE_FIRST), 0, "aclrtMalloc");
  for (int i = 0; i < 20; ++i) expect(enqueue(stream, long_work), 0, "enqueue");
  const pid_t quiet = fork();
  if (quiet == 0) std::exit(7);
  const pid_t caller = fork();
  if (caller == 0) {
    expect(aclrtSynchronizeStream(stream), ACL_ERROR_INTERNAL_ERROR, "synchronise in a child");
    const char* text = aclGetRecentErrMsg();
    expect(text != nullptr && std::strstr(text, "fork") != nullptr, 1, "a message");
    expect(aclrtFree(memory), ACL_ERROR_INTERNAL_ERROR, "free in a child");
    expect(aclrtMalloc(&memory, 1, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INTERNAL_ERROR, "malloc");
    expect(enqueue(stream, long_work), ACL_ERROR_INTERNAL_ERROR, "enqueue in a child");
    expect(aclFinalize(), ACL_ERROR_INTERNAL_ERROR, "finalize in a child");
    expect(aclrtResetDevice(0), ACL_ERROR_INTERNAL_ERROR, "reset in a child");
    expect(aclCreateDataBuffer(nullptr, 0) == nullptr, 1, "data buffer in a child");
    std::exit(8);
  }
  int status = 0;
  waitpid(quiet, &status, 0);
  expect(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 7, "the quiet child");
  waitpid(caller, &status, 0);
  expect(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 8, "the calling child");
  return 0;
}

// main() returns with seconds of work queued: it is abandoned, only what runs is waited for.
int exit_with_work() {
  aclrtStream stream = start();
  expect(enqueue(stream, work_that_starts), 0, "enqueue");
  for (int i = 0; i < 1000; ++i) expect(enqueue(stream, long_work), 0, "enqueue");
  while (!started) sleep_ms(1);
  return 0;
}

// Threads that wait for a stream, an event and a report when the process ends.
int exit_with_waiters() {
  static aclrtStream stream = start();
  static aclrtEvent event = nullptr;
  expect(aclrtCreateEvent(&event), 0, "aclrtCreateEvent");
  for (int i = 0; i < 1000; ++i) expect(enqueue(stream, long_work), 0, "enqueue");
  expect(aclrtRecordEvent(event, stream), 0, "aclrtRecordEvent");
  std::thread([] { aclrtSynchronizeStream(stream); }).detach();
  std::thread([] { aclrtSynchronizeEvent(event); }).detach();
  std::thread([] { aclrtSynchronizeStreamWithTimeout(stream, 1000000); }).detach();
  std::thread([] {
    aclrtSubscribeReport(static_cast<uint64_t>(pthread_self()), stream);
    aclrtProcessReport(-1);
  }).detach();
  sleep_ms(50);
  return 0;
}

std::atomic<int> threads_begun{0};
std::atomic<int> threads_ended{0};

// The end of a thread, long enough to be overtaken by the end of the process.
struct SlowEnd {
  SlowEnd() { ++threads_begun; }
  ~SlowEnd() {
    sleep_ms(100);
    ++threads_ended;
  }
};

void use_slow_thread(DataErrors&) { thread_local const SlowEnd end; }

// Threads of streams, destroyed or not, are gone before what the program registered to run last.
int exit_joins_threads() {
  std::atexit([] { expect(threads_ended, 3, "threads that have ended"); });
  aclrtStream streams[] = {start(), nullptr, nullptr};
  for (aclrtStream& stream : streams) {
    if (stream == nullptr) expect(aclrtCreateStream(&stream), 0, "aclrtCreateStream");
    expect(enqueue(stream, use_slow_thread), 0, "enqueue");
  }
  while (threads_begun != 3) sleep_ms(1);
  expect(aclrtDestroyStream(streams[0]), 0, "aclrtDestroyStream");
  expect(aclrtDestroyStream(streams[2]), 0, "aclrtDestroyStream");
  return 0;
}

// What a program's static objects do when they are destroyed.
struct Owner {
  aclrtStream stream = nullptr;
  aclrtEvent event = nullptr;
  void* memory = nullptr;
  void* host = nullptr;
  bool armed = false;
  ~Owner() {
    if (!armed) return;
    aclrtSynchronizeStream(stream);
    aclrtSynchronizeDevice();
    expect(aclrtFree(memory), 0, "free in a destructor");
    expect(aclrtFreeHost(host), 0, "free host in a destructor");
    expect(aclrtDestroyEvent(event), 0, "destroy event in a destructor");
    expect(aclrtDestroyStream(stream), 0, "destroy stream in a destructor");
    aclrtResetDevice(0);
    aclFinalize();
    void* again = nullptr;
    aclrtMalloc(&again, 100, ACL_MEM_MALLOC_HUGE_FIRST);
    aclGetRecentErrMsg();
    std::printf("destroyed\n");
    std::fflush(stdout);
  }
};
Owner owner;

int arm(int pieces) {
  owner.stream = start();
  expect(aclrtCreateEvent(&owner.event), 0, "aclrtCreateEvent");
  expect(aclrtMalloc(&owner.memory, 1 << 22, ACL_MEM_MALLOC_HUGE_FIRST), 0, "aclrtMalloc");
  expect(aclrtMallocHost(&owner.host, 100), 0, "aclrtMallocHost");
  for (int i = 0; i < pieces; ++i) expect(enqueue(owner.stream, long_work), 0, "enqueue");
  expect(aclrtRecordEvent(owner.event, owner.stream), 0, "aclrtRecordEvent");
  owner.armed = true;
  return 0;
}
int static_destructors() { return arm(1000); }
int static_destructors_after_finalize() {
  arm(0);
  expect(aclrtResetDevice(0), 0, "aclrtResetDevice");
  expect(aclFinalize(), 0, "aclFinalize");
  expect(aclrtFree(owner.memory), 0, "aclrtFree");
  expect(aclrtFreeHost(owner.host), 0, "aclrtFreeHost");
  owner.armed = false;
  return 0;
}

// Prints what the environment decides.
int environment() {
  uint32_t count = 0;
  expect(aclrtGetDeviceCount(&count), 0, "aclrtGetDeviceCount");
  expect(aclrtGetDeviceCount(&count), 0, "aclrtGetDeviceCount");
  int64_t cores = 0;
  expect(aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &cores), 0, "capability");
  ACL_APP_LOG(ACL_INFO, "hello %d", 5);
  std::printf("devices %u cores %lld\n", count, static_cast<long long>(cores));
  return 0;
}

void bad_data(DataErrors& errors) { errors.report("aclnnTest: index 3 is bad"); }
std::atomic<int> runs{0};
void count_run(DataErrors&) {
  sleep_ms(20);
  ++runs;
}

int launch_blocking() {
  aclrtStream stream = start();
  expect(enqueue(stream, count_run), 0, "enqueue");
  expect(runs, 1, "runs when the launch returned");
  expect(enqueue(stream, bad_data), kRuntimeError, "enqueue of bad data");
  const char* text = aclGetRecentErrMsg();
  expect(text != nullptr && std::strstr(text, "EE9999): aclnnTest: index 3 is bad") != nullptr, 1,
         "the message");
  expect(aclrtSynchronizeStream(stream), 0, "the stream is clean");
  expect(aclrtDestroyStream(stream), 0, "aclrtDestroyStream");
  return 0;
}

double cpu_milliseconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

std::atomic<int> idle_runs{0};

// Eight streams that have just worked fall idle: the polls that follow are all they ever cost.
int idle() {
  expect(aclrtSetDevice(0), 0, "aclrtSetDevice");
  std::vector<aclrtStream> streams(8);
  for (aclrtStream& stream : streams) {
    expect(aclrtCreateStream(&stream), 0, "aclrtCreateStream");
    expect(enqueue(stream, [](DataErrors&) { ++idle_runs; }), 0, "enqueue");
  }
  while (idle_runs < 8) sleep_ms(1);
  // Where other programs keep a stream's thread from running, its last polls come late: they cost
  // one of these half seconds, a stream that never rests would cost all.
  double used = 0.0;
  for (int i = 0; i < 10; ++i) {
    const double before = cpu_milliseconds();
    sleep_ms(500);
    used = cpu_milliseconds() - before;
    if (used <= 0.25) return 0;
  }
  std::printf("idle CPU %.3f ms in half a second\n", used);
  return 1;
}

// Little address space: a smaller range is reserved and everything works.
int small_address_space() {
  rlimit limit{size_t{2} << 30, size_t{2} << 30};
  expect(setrlimit(RLIMIT_AS, &limit), 0, "setrlimit");
  start();
  void* memory = nullptr;
  expect(aclrtMalloc(&memory, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST), 0, "aclrtMalloc");
  std::memset(memory, 1, 1 << 20);
  void* host = nullptr;
  expect(aclrtMallocHost(&host, 1000), 0, "aclrtMallocHost");
  void* large = nullptr;
  expect(aclrtMalloc(&large, size_t{3} << 30, ACL_MEM_MALLOC_HUGE_FIRST),
         ACL_ERROR_RT_MEMORY_ALLOCATION, "a large aclrtMalloc");
  expect(aclrtFree(memory), 0, "aclrtFree");
  expect(aclrtFreeHost(host), 0, "aclrtFreeHost");
  return 0;
}

// No memory at all for the library's own objects: codes, no exception, no crash.
int no_memory() {
  aclrtStream stream = start();
  rlimit limit{};
  expect(getrlimit(RLIMIT_AS, &limit), 0, "getrlimit");
  rlimit none{1, limit.rlim_max};
  expect(setrlimit(RLIMIT_AS, &none), 0, "setrlimit");
  std::vector<aclrtEvent> events;
  events.reserve(10);  // may fail only by exception, before anything is tested
  aclError last = 0;
  long made = 0;
  for (; made < 50000000 && last == 0; ++made) {
    aclrtEvent event = nullptr;
    last = aclrtCreateEvent(&event);
  }
  const aclError again = aclrtCreateContext(&stream, 0);
  setrlimit(RLIMIT_AS, &limit);
  std::printf("made %ld events, then %d and %d: %s\n", made, last, again, aclGetRecentErrMsg());
  expect(last, ACL_ERROR_BAD_ALLOC, "aclrtCreateEvent without memory");
  aclrtEvent event = nullptr;
  expect(aclrtCreateEvent(&event), 0, "aclrtCreateEvent with memory again");
  return 0;
}

struct Scenario {
  const char* name;
  int (*run)();
};
constexpr Scenario kScenarios[] = {
    {"forked", forked},
    {"exit_with_work", exit_with_work},
    {"exit_with_waiters", exit_with_waiters},
    {"exit_joins_threads", exit_joins_threads},
    {"static_destructors", static_destructors},
    {"static_destructors_after_finalize", static_destructors_after_finalize},
    {"environment", environment},
    {"launch_blocking", launch_blocking},
    {"idle", idle},
    {"small_address_space", small_address_space},
    {"no_memory", no_memory}};

}  // namespace

int main(int count, char** arguments) {
  for (const Scenario& scenario : kScenarios) {
    if (count == 2 && std::strcmp(arguments[1], scenario.name) == 0) return scenario.run();
  }
  return 64;
}

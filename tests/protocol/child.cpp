// SPDX-License-Identifier: Apache-2.0
// protocol_child <scenario>: a program of its own for what only a whole process shows: environment
// variables, limits, fork, and the end. Prints what it saw; 0 when the scenario came to its end.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "aclnn/aclnn_base.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "protocol/planned.h"

namespace aclgrad::test {
namespace {

// Every operator once; prints whether the plan's phases went well.
int run_all() {
  for (size_t row = 0; row < small_problem_count(); ++row) {
    for (const Arrangement arrangement : {Arrangement::kContiguous, Arrangement::kInnerStrided}) {
      const Planned planned(row, arrangement);
      const int status = planned.execute();
      const int synchronised = aclrtSynchronizeStream(stream());
      std::printf("%s %d %d\n", planned.problem.function.c_str(), status, synchronised);
    }
  }
  return 0;
}

// What a reader of the environment gets to see.
int settings() {
  uint32_t devices = 0;
  int64_t cores = 0;
  require(aclrtGetDeviceCount(&devices), "aclrtGetDeviceCount");
  require(aclGetDeviceCapability(0, ACL_DEVICE_INFO_AI_CORE_NUM, &cores), "capability");
  const Planned planned(0);
  static_cast<void>(planned.execute());
  static_cast<void>(aclrtSynchronizeStream(stream()));
  std::printf("threads %d cores %lld devices %u target %s\n", aclgrad_threads(),
              static_cast<long long>(cores), devices, aclgrad_active_target());
  return 0;
}

// Phase two alone: with launch blocking the result is there and a data error is its status.
int blocking() {
  const size_t embedding = small_problem_row("EmbeddingDenseBackward");
  const std::vector<uint8_t> expected = expected_result(embedding);
  const Planned good(embedding);
  const int good_status = good.execute();
  const bool done = good.problem.result() == expected;
  const Planned bad(embedding);
  bad.problem.tensors[1]->fill_constant(99);
  const int bad_status = bad.execute();
  const std::string message = take_message();
  const int synchronised = aclrtSynchronizeStream(stream());
  std::printf("good %d done %d bad %d synchronise %d\n%s\n", good_status, done ? 1 : 0, bad_status,
              synchronised, message.c_str());
  return 0;
}

// More threads wait in phase two, behind a callback that does not end, than the library can keep
// addresses for at a time: copies of other memory go on.
int crowd_of_launches() {
  constexpr size_t kThreads = 80;
  std::atomic<bool> over = false;
  std::thread reporter([&] {
    while (!over) static_cast<void>(aclrtProcessReport(10));
  });
  const auto id = static_cast<uint64_t>(reporter.native_handle());
  require(aclrtSubscribeReport(id, stream()), "aclrtSubscribeReport");
  std::atomic<bool> hold = true;
  const auto wait = [](void* flag) {
    while (static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
  };
  require(aclrtLaunchCallback(wait, &hold, ACL_CALLBACK_BLOCK, stream()), "aclrtLaunchCallback");
  std::atomic<size_t> entering = 0;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      static_cast<void>(aclrtSetDevice(0));
      const Planned planned(0);
      ++entering;
      if (planned.execute() != 0) ++failed;
    });
  }
  while (entering < kThreads) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // they wait now
  void* memory = nullptr;
  const char bytes[64] = {};
  require(aclrtMalloc(&memory, sizeof(bytes), ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  const int copied =
      aclrtMemcpy(memory, sizeof(bytes), bytes, sizeof(bytes), ACL_MEMCPY_HOST_TO_DEVICE);
  hold = false;
  for (std::thread& thread : threads) thread.join();
  require(aclrtUnSubscribeReport(id, stream()), "aclrtUnSubscribeReport");
  over = true;
  reporter.join();
  std::printf("copied %d failed %d freed %d\n", copied, failed.load(), aclrtFree(memory));
  return 0;
}

// Objects of every kind that a program may still hold when its static destructors run.
struct Leftovers {
  void* device = nullptr;
  void* host = nullptr;
  aclTensor* tensor = nullptr;
  aclIntArray* array = nullptr;
  aclrtStream own_stream = nullptr;
  aclrtEvent event = nullptr;
  aclrtContext context = nullptr;
  aclOpExecutor* repeatable = nullptr;
  aclOpExecutor* spent = nullptr;
  bool used = false;
  ~Leftovers() {
    if (!used) return;
    bool good = aclDestroyAclOpExecutor(repeatable) == kOk;
    good &= aclDestroyAclOpExecutor(spent) == kInner;
    good &= aclDestroyTensor(tensor) == kOk;
    good &= aclDestroyIntArray(array) == kOk;
    good &= aclrtFree(device) == ACL_SUCCESS;
    good &= aclrtFreeHost(host) == ACL_SUCCESS;
    static_cast<void>(aclrtSynchronizeStream(own_stream));
    static_cast<void>(aclrtDestroyEvent(event));
    static_cast<void>(aclrtDestroyStream(own_stream));
    static_cast<void>(aclrtDestroyContext(context));
    static_cast<void>(aclrtResetDevice(0));
    static_cast<void>(aclnnFinalize());
    static_cast<void>(aclFinalize());
    take_message();
    std::printf("static destructor %s\n", good ? "good" : "bad");
    std::fflush(stdout);
  }
};
Leftovers leftovers;

int static_destructors() {
  const Planned planned(0);
  const Planned other(1);
  leftovers.used = true;
  leftovers.repeatable = planned.executor;
  leftovers.spent = other.executor;
  require(aclSetAclOpExecutorRepeatable(planned.executor), "repeatable");
  require(planned.execute(), "phase two");
  require(other.execute(), "phase two");
  require(aclrtSynchronizeStream(stream()), "synchronise");
  require(aclrtMalloc(&leftovers.device, 1000, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
  require(aclrtMallocHost(&leftovers.host, 1000), "aclrtMallocHost");
  require(aclrtCreateStream(&leftovers.own_stream), "stream");
  require(aclrtCreateEvent(&leftovers.event), "event");
  const int64_t dims[] = {4, 4};
  leftovers.tensor =
      aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, leftovers.device);
  leftovers.array = aclCreateIntArray(dims, 2);
  require(aclrtCreateContext(&leftovers.context, 0), "context");
  require(aclrtResetDevice(0), "aclrtResetDevice");
  require(aclFinalize(), "aclFinalize");
  std::printf("finalised\n");
  return 0;
}

// Work that can never begin must not hold the end of the process.
int exit_with_queued_work() {
  use_device();
  aclrtStream held = nullptr;
  require(aclrtCreateStream(&held), "stream");
  static Gate* gate = new Gate(held);  // never opened, never destroyed
  static Planned* planned = new Planned(0);
  require(planned->execute(held), "phase two");
  std::printf("queued %d\n", planned->problem.outputs_untouched() && gate != nullptr ? 1 : 0);
  std::fflush(stdout);
  std::exit(0);
}

// A forked child's calls are refused, and it ends normally.
int fork_child() {
  const Planned planned(0);
  const aclrtStream live = stream();
  require(planned.execute(live), "phase two");
  require(aclrtSynchronizeStream(live), "synchronise");
  const Planned next(0);
  const pid_t child = fork();
  if (child == 0) {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    void* memory = nullptr;
    const int statuses[] = {
        next.problem.plan(&size, &executor), next.execute(live), aclrtSynchronizeStream(live),
        aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST), aclrtSynchronizeDevice()};
    const std::string message = take_message();
    for (const int status : statuses) std::printf("%d ", status);
    std::printf("%s\n", message.find("fork") != std::string::npos ? "named" : "unnamed");
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  require(next.execute(live), "phase two in the parent");
  require(aclrtSynchronizeStream(live), "synchronise in the parent");
  std::printf("child %d\n", status);
  return 0;
}

size_t address_space_now() {
  std::ifstream file("/proc/self/statm");
  size_t pages = 0;
  file >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void limit_address_space(size_t more) {
  const rlimit limit{address_space_now() + more, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
}

void raise_address_space() {
  const rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
}

// Objects and executors until there is no memory, then a proper call again. Whatever the scenario
// itself needs is there before.
int no_memory() {
  const std::vector<uint8_t> expected = expected_result(0);
  const Planned planned(0);
  const std::vector<int64_t> numbers(1 << 16, 1);
  std::vector<aclOpExecutor*> executors;
  std::vector<aclIntArray*> arrays;
  executors.reserve(1 << 20);
  arrays.reserve(1 << 12);
  limit_address_space(size_t{24} << 20);
  int executor_status = kOk;
  while (executor_status == kOk && executors.size() < executors.capacity()) {
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    executor_status = planned.problem.plan(&size, &executor);
    if (executor_status == kOk) executors.push_back(executor);
  }
  const bool executor_explained = aclGetRecentErrMsg() != nullptr;
  aclIntArray* array = nullptr;
  do {
    array = aclCreateIntArray(numbers.data(), numbers.size());
    if (array != nullptr) arrays.push_back(array);
  } while (array != nullptr && arrays.size() < arrays.capacity());
  const int array_status = aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  const bool array_explained = aclGetRecentErrMsg() != nullptr;
  raise_address_space();
  std::printf("executor %d %d array %d %d\n", executor_status, executor_explained ? 1 : 0,
              array_status, array_explained ? 1 : 0);
  for (aclOpExecutor* executor : executors) require(aclDestroyAclOpExecutor(executor), "destroy");
  for (aclIntArray* each : arrays) require(aclDestroyIntArray(each), "destroy");
  require(planned.execute(), "phase two");
  require(aclrtSynchronizeStream(stream()), "synchronise");
  std::printf("afterwards %d\n", planned.problem.result() == expected ? 1 : 0);
  return 0;
}

// Device and pinned memory until each is refused; what was had can be used and given back.
int use_up_device_memory() {
  use_device();
  constexpr size_t kBytes = size_t{16} << 20;
  for (const bool pinned : {false, true}) {
    std::vector<void*> blocks;
    int status = ACL_SUCCESS;
    while (status == ACL_SUCCESS && blocks.size() < 1000) {
      void* block = nullptr;
      status = pinned ? aclrtMallocHost(&block, kBytes)
                      : aclrtMalloc(&block, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
      if (status != ACL_SUCCESS) break;
      blocks.push_back(block);
      require(aclrtMemset(block, kBytes, 1, 4096), "aclrtMemset");
    }
    std::printf("%s %d %s\n", pinned ? "pinned" : "device", status,
                blocks.empty() ? "at once" : "in the end");
    for (void* block : blocks) require(pinned ? aclrtFreeHost(block) : aclrtFree(block), "free");
  }
  return 0;
}

// The library reserves address space when it is loaded, so the limit has to be there before.
int no_device_memory() {
  const rlimit limit{size_t{2} << 30, size_t{2} << 30};
  if (setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
  execl("/proc/self/exe", "protocol_child", "use_up_device_memory", nullptr);
  throw std::runtime_error("execl");
}

const std::map<std::string, int (*)()> kScenarios = {
    {"run_all", run_all},
    {"settings", settings},
    {"blocking", blocking},
    {"crowd_of_launches", crowd_of_launches},
    {"static_destructors", static_destructors},
    {"exit_with_queued_work", exit_with_queued_work},
    {"fork_child", fork_child},
    {"no_memory", no_memory},
    {"no_device_memory", no_device_memory},
    {"use_up_device_memory", use_up_device_memory},
};

}  // namespace
}  // namespace aclgrad::test

int main(int argc, char** argv) {
  const auto scenario =
      aclgrad::test::kScenarios.find(argc == 2 ? std::string(argv[1]) : std::string());
  if (scenario == aclgrad::test::kScenarios.end()) return 2;
  try {
    return scenario->second();
  } catch (const std::exception& error) {
    std::printf("exception: %s\n", error.what());
    return 3;
  }
}

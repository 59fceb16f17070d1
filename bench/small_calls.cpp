// SPDX-License-Identifier: Apache-2.0
// aclgrad_small_calls: what a call costs whose numbers are nothing to speak of, sixteen rows of 64.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench.h"
#include "bench/measure.h"

namespace {

using namespace aclgrad;
using namespace aclgrad::bench;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 200;    // calls between two looks at the clock, which costs 20 to 30 ns
constexpr int kBatches = 101;  // the median of these counts
constexpr int kQueued = 1000;  // calls queued without waiting
constexpr int kIdleTurns = 9;  // first calls after an idle time
constexpr auto kIdle = std::chrono::milliseconds(100);
constexpr size_t kLiveAllocations = 1000;

const std::vector<std::string> kProblems = {
    "layer_norm_backward/f32/16x64", "scaled_masked_softmax_backward/f32/1x1x16x64",
    "grouped_bias_add_grad/f32/16x64-g4", "embedding_dense_backward/f32/16x32x64",
    "nsa_compress_grad/bf16/32x1x64-l32-d16"};

void require(int status, const char* what) {
  if (status != 0) throw std::runtime_error(std::string(what) + " failed");
}

// A problem with its stream, workspace and the two phases apart.
class Subject {
 public:
  explicit Subject(const std::string& name) {
    const size_t first = name.find('/');
    const size_t second = name.find('/', first + 1);
    for (const Operator& op : operators()) {
      if (op.name != name.substr(0, first)) continue;
      problem_ =
          op.make(parse_dtype(name.substr(first + 1, second - first - 1)), name.substr(second + 1));
    }
    require(aclrtCreateStream(&stream_), "aclrtCreateStream");
    aclOpExecutor* executor = plan();
    require(aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor");
    if (size_ != 0) require(aclrtMalloc(&workspace_, size_, ACL_MEM_MALLOC_HUGE_FIRST), "malloc");
  }
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject() {
    static_cast<void>(aclrtDestroyStream(stream_));
    if (workspace_ != nullptr) static_cast<void>(aclrtFree(workspace_));
  }

  aclOpExecutor* plan() {
    aclOpExecutor* executor = nullptr;
    require(problem_.plan(&size_, &executor), "phase one");
    return executor;
  }
  void execute(aclOpExecutor* executor) {
    require(problem_.execute(workspace_, size_, executor, stream_), "phase two");
  }
  void wait() { require(aclrtSynchronizeStream(stream_), "aclrtSynchronizeStream"); }
  void call() {
    execute(plan());
    wait();
  }

 private:
  Problem problem_;
  aclrtStream stream_ = nullptr;
  void* workspace_ = nullptr;
  uint64_t size_ = 0;
};

double median_microseconds(const std::function<void()>& call) {
  for (int i = 0; i < kBatch; ++i) call();
  std::vector<double> seconds;
  for (int i = 0; i < kBatches; ++i) seconds.push_back(seconds_of(call, kBatch));
  return spread_of(seconds).median * 1e6;
}

// What phase two takes until it returns, the stream at work or idle for a moment.
double phase_two_microseconds(Subject& subject) {
  std::vector<double> seconds;
  for (int i = 0; i < kBatches; ++i) {
    std::vector<aclOpExecutor*> executors;
    for (int j = 0; j < kBatch; ++j) executors.push_back(subject.plan());
    size_t next = 0;
    seconds.push_back(seconds_of([&] { subject.execute(executors[next++]); }, kBatch));
    subject.wait();
  }
  return spread_of(seconds).median * 1e6;
}

double after_idle_microseconds(Subject& subject) {
  std::vector<double> seconds;
  for (int i = 0; i < kIdleTurns; ++i) {
    aclOpExecutor* executor = subject.plan();
    std::this_thread::sleep_for(kIdle);
    seconds.push_back(seconds_of([&] { subject.execute(executor); }, 1));
    subject.wait();
  }
  return spread_of(seconds).median * 1e6;
}

double repeated_microseconds(Subject& subject) {
  aclOpExecutor* executor = subject.plan();
  require(aclSetAclOpExecutorRepeatable(executor), "aclSetAclOpExecutorRepeatable");
  const double taken = median_microseconds([&] {
    subject.execute(executor);
    subject.wait();
  });
  require(aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor");
  return taken;
}

double queued_microseconds(Subject& subject) {
  std::vector<double> seconds;
  for (int turn = 0; turn < 21; ++turn) {
    const auto begin = Clock::now();
    for (int i = 0; i < kQueued; ++i) subject.execute(subject.plan());
    subject.wait();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kQueued);
  }
  return spread_of(seconds).median * 1e6;
}

// While another thread allocates and frees without pause.
double crowded_microseconds(Subject& subject) {
  std::atomic<bool> done = false;
  std::thread other([&] {
    static_cast<void>(aclrtSetDevice(0));
    while (!done.load(std::memory_order_relaxed)) {
      void* memory = nullptr;
      if (aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY) == 0) {
        static_cast<void>(aclrtFree(memory));
      }
    }
  });
  const double taken = median_microseconds([&] { subject.call(); });
  done = true;
  other.join();
  return taken;
}

void run() {
  require(aclrtSetDevice(0), "aclrtSetDevice");
  std::printf("microseconds a call, medians\n%-46s %8s %8s %8s %8s %8s %8s %8s\n", "problem",
              "whole", "phase 2", "idle", "repeat", "queued", "1000", "crowded");
  for (const std::string& name : kProblems) {
    Subject subject(name);
    const double whole = median_microseconds([&] { subject.call(); });
    const double phase_two = phase_two_microseconds(subject);
    const double idle = after_idle_microseconds(subject);
    const double repeated = repeated_microseconds(subject);
    const double queued = queued_microseconds(subject);
    std::vector<void*> live(kLiveAllocations);
    for (void*& memory : live) {
      require(aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY), "aclrtMalloc");
    }
    const double among_many = median_microseconds([&] { subject.call(); });
    const double crowded = crowded_microseconds(subject);
    for (void* memory : live) require(aclrtFree(memory), "aclrtFree");
    std::printf("%-46s %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f %8.3f\n", name.c_str(), whole, phase_two,
                idle, repeated, queued, among_many, crowded);
    std::fflush(stdout);
  }
  std::printf(
      "whole: both phases and the synchronise; phase 2: until it returns; idle: the same after %d "
      "ms\n"
      "without work; repeat: a repeatable executor's run and the synchronise; queued: %d calls, "
      "then\n"
      "one synchronise; 1000: whole, with so many live allocations; crowded: the same while "
      "another\n"
      "thread allocates and frees\n",
      static_cast<int>(kIdle.count()), kQueued);
}

}  // namespace

int main() {
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

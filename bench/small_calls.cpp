// SPDX-License-Identifier: Apache-2.0
// aclgrad_small_calls [--csv FILE]: what a call costs whose numbers are nothing to speak of,
// sixteen rows of 64.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench.h"
#include "bench/measure.h"
#include "bench/roofs.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"

namespace {

using namespace aclgrad;
using namespace aclgrad::bench;
using Clock = std::chrono::steady_clock;

constexpr int kBatch = 200;    // calls between two looks at the clock, which costs 20 to 30 ns
constexpr int kBatches = 101;  // the median of these counts
constexpr int kQueued = 1000;  // calls queued without waiting
constexpr int kQueues = 21;    // queues of so many; the median counts
constexpr int kIdleTurns = 9;  // first calls after an idle time
constexpr auto kIdle = std::chrono::milliseconds(100);
constexpr auto kWarmUp = std::chrono::milliseconds(30);
constexpr size_t kLiveAllocations = 1000;

const std::vector<std::string> kProblems = {
    "layer_norm_backward/f32/16x64", "scaled_masked_softmax_backward/f32/1x1x16x64",
    "grouped_bias_add_grad/f32/16x64-g4", "embedding_dense_backward/f32/16x32x64",
    "nsa_compress_grad/bf16/32x1x64-l32-d16"};

double median_microseconds(const std::function<void()>& call) {
  // After an idle time a core takes some milliseconds to come to its speed.
  const auto warm = Clock::now() + kWarmUp;
  while (Clock::now() < warm) call();
  std::vector<double> seconds;
  seconds.reserve(kBatches);
  for (int i = 0; i < kBatches; ++i) seconds.push_back(seconds_of(call, kBatch));
  return spread_of(seconds).median * 1e6;
}

// What phase two takes until it returns, the stream at work or idle for a moment.
double phase_two_microseconds(Subject& subject) {
  std::vector<double> seconds;
  seconds.reserve(kBatches);
  for (int i = 0; i < kBatches; ++i) {
    std::vector<aclOpExecutor*> executors;
    executors.reserve(kBatch);
    for (int j = 0; j < kBatch; ++j) executors.push_back(subject.plan());
    size_t next = 0;
    seconds.push_back(seconds_of([&] { subject.execute(executors[next++]); }, kBatch));
    subject.wait();
  }
  return spread_of(seconds).median * 1e6;
}

// The same for the first call after an idle time, planned before that.
double planned_before_idle_microseconds(Subject& subject) {
  std::vector<double> seconds;
  for (int i = 0; i < kIdleTurns; ++i) {
    aclOpExecutor* executor = subject.plan();
    std::this_thread::sleep_for(kIdle);
    seconds.push_back(seconds_of([&] { subject.execute(executor); }, 1));
    subject.wait();
  }
  return spread_of(seconds).median * 1e6;
}

// Of a call whose two phases both come after an idle time: until each returns.
struct Phases {
  double one, two;
};
Phases after_idle_microseconds(Subject& subject) {
  std::vector<double> one, two;
  for (int i = 0; i < kIdleTurns; ++i) {
    std::this_thread::sleep_for(kIdle);
    aclOpExecutor* executor = nullptr;
    one.push_back(seconds_of([&] { executor = subject.plan(); }, 1));
    two.push_back(seconds_of([&] { subject.execute(executor); }, 1));
    subject.wait();
  }
  return {spread_of(one).median * 1e6, spread_of(two).median * 1e6};
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
  for (int turn = 0; turn < kQueues; ++turn) {
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

struct Column {
  const char* title;
  const char* in_csv;
};
constexpr std::array<Column, 9> kColumns = {{{"whole", "whole_us"},
                                             {"phase 2", "phase_two_us"},
                                             {"idle", "idle_us"},
                                             {"idle: 1", "idle_phase_one_us"},
                                             {"2", "idle_phase_two_us"},
                                             {"repeat", "repeat_us"},
                                             {"queued", "queued_us"},
                                             {"1000", "among_1000_us"},
                                             {"crowded", "crowded_us"}}};

// In microseconds a call.
std::array<double, kColumns.size()> costs_of(Subject& subject) {
  const double whole = median_microseconds([&] { subject.call(); });
  const double phase_two = phase_two_microseconds(subject);
  const double planned_before_idle = planned_before_idle_microseconds(subject);
  const Phases after_idle = after_idle_microseconds(subject);
  const double repeat = repeated_microseconds(subject);
  const double queued = queued_microseconds(subject);
  std::vector<void*> live(kLiveAllocations);
  for (void*& memory : live) {
    require(aclrtMalloc(&memory, 4096, ACL_MEM_MALLOC_NORMAL_ONLY), "aclrtMalloc");
  }
  const double among_many = median_microseconds([&] { subject.call(); });
  const double crowded = crowded_microseconds(subject);
  for (void* memory : live) require(aclrtFree(memory), "aclrtFree");
  return {whole,  phase_two, planned_before_idle, after_idle.one, after_idle.two,
          repeat, queued,    among_many,          crowded};
}

std::ofstream csv_file(const std::string& path) {
  std::ofstream csv;
  if (path.empty()) return csv;
  csv.open(path);
  if (!csv) throw std::runtime_error(path + ": cannot be written");
  const Machine machine = this_machine();
  csv << "# " << machine.name << "; peak " << machine.peak_flops / 1e9 << " GFLOP/s\n"
      << "problem,target,threads";
  for (const Column& column : kColumns) csv << ',' << column.in_csv;
  csv << '\n';
  return csv;
}

void run(const std::string& csv_path) {
  require(aclrtSetDevice(0), "aclrtSetDevice");
  std::ofstream csv = csv_file(csv_path);
  std::printf("microseconds a call, medians\n%-46s", "problem");
  for (const Column& column : kColumns) std::printf(" %8s", column.title);
  std::puts("");
  for (const std::string& name : kProblems) {
    const Job job = parse_job(name);
    Subject subject(*job.op, parse_dtype(job.dtype), job.shape);
    const auto costs = costs_of(subject);
    std::printf("%-46s", name.c_str());
    for (const double cost : costs) std::printf(" %8.3f", cost);
    std::puts("");
    std::fflush(stdout);
    if (!csv.is_open()) continue;
    csv << name << ',' << aclgrad_active_target() << ',' << aclgrad_threads();
    for (const double cost : costs) csv << ',' << cost;
    csv << std::endl;
  }
  std::printf(
      "whole: both phases and the synchronise; phase 2: until it returns; idle: the same after %d "
      "ms\n"
      "without work, planned before them; idle: 1, 2: each phase, where both come after them; "
      "repeat:\n"
      "a repeatable executor's run and the synchronise; queued: %d calls, then one synchronise; "
      "1000:\n"
      "whole, with so many live allocations; crowded: the same while another thread allocates and "
      "frees\n",
      static_cast<int>(kIdle.count()), kQueued);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && (arguments.size() != 2 || arguments[0] != "--csv")) {
    std::fprintf(stderr, "usage: aclgrad_small_calls [--csv FILE]\n");
    return 1;
  }
  try {
    run(arguments.empty() ? "" : arguments[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/roofs.h"

namespace aclgrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The idle threads of a rival's pool may spin for a while after its turn.
constexpr auto kSettle = std::chrono::milliseconds(5);

// Together the copies of a problem have at least so many bytes: three times a last-level cache of
// 32 MiB, what a core of today's servers can reach.
constexpr int64_t kLeavesCache = int64_t{96} << 20;
constexpr int64_t kMostCopies = 4096;

// A line of /proc/self/status in bytes: VmRSS, or VmHWM, its highest so far.
int64_t resident_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == key + ":" && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

// What a call adds to the resident memory while it runs.
int64_t peak_bytes_of(Subject& subject) {
  std::ofstream("/proc/self/clear_refs") << "5";  // forget the highest mark
  const int64_t before = resident_bytes("VmRSS");
  subject.call();
  return std::max(resident_bytes("VmHWM") - before, int64_t{0});
}

double median_of(const std::vector<double>& seconds) { return spread_of(seconds).median; }

}  // namespace

Spread spread_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    return seconds[static_cast<size_t>(
        std::lround(part * static_cast<double>(seconds.size() - 1)))];
  };
  return {at(0.5), at(0.2), at(0.8)};
}

double seconds_of(const std::function<void()>& call, int repeats) {
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) call();
  return std::chrono::duration<double>(Clock::now() - begin).count() / repeats;
}

int repeats_for(const std::function<void()>& call, double seconds) {
  call();
  const double once = std::max(seconds_of(call, 1), 1e-8);
  return static_cast<int>(std::clamp(seconds / once, 1.0, 1e6));
}

Subject::Subject(const Operator& op, aclDataType dtype, const std::string& shape, bool cached) {
  copies_.push_back(op.make(dtype, shape));
  const int64_t bytes = std::max<int64_t>(copies_[0].bytes, 1);
  const int64_t wanted = cached ? 1 : std::min((kLeavesCache + bytes - 1) / bytes, kMostCopies);
  while (static_cast<int64_t>(copies_.size()) < wanted) copies_.push_back(op.make(dtype, shape));
  require(aclrtCreateStream(&stream_), "aclrtCreateStream");
  require(aclDestroyAclOpExecutor(plan()), "aclDestroyAclOpExecutor");
  if (workspace_bytes_ == 0) return;
  require(aclrtMalloc(&workspace_, workspace_bytes_, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
}

Subject::~Subject() {
  static_cast<void>(aclrtDestroyStream(stream_));
  if (workspace_ != nullptr) static_cast<void>(aclrtFree(workspace_));
}

void Subject::call() {
  execute(plan());
  wait();
  next_ = next_ + 1 == copies_.size() ? 0 : next_ + 1;
}

aclOpExecutor* Subject::plan() {
  aclOpExecutor* executor = nullptr;
  require(copies_[next_].plan(&workspace_bytes_, &executor), "phase one");
  return executor;
}

void Subject::execute(aclOpExecutor* executor) {
  require(copies_[next_].execute(workspace_, workspace_bytes_, executor, stream_), "phase two");
}

void Subject::wait() { require(aclrtSynchronizeStream(stream_), "aclrtSynchronizeStream"); }

Timing measure(const std::string& name, Subject& subject,
               const std::vector<std::unique_ptr<Rival>>& rivals, const Effort& effort) {
  Timing timing;
  timing.workspace_bytes = subject.workspace_bytes();
  timing.peak_bytes = peak_bytes_of(subject);

  const auto call = [&] { subject.call(); };
  const Roofs roofs(std::max<int64_t>(subject.problem().bytes, kLeavesCache));
  const double part =
      static_cast<double>(subject.problem().bytes) / static_cast<double>(roofs.bytes());
  const int repeats = repeats_for(call, effort.round_seconds);
  std::vector<int> rival_repeats;
  for (const auto& rival : rivals) {
    const bool has = rival->make(name, subject.copies());
    rival_repeats.push_back(has ? rival->repeats_for(effort.round_seconds) : 0);
  }
  std::vector<double> calls, copies, reads, adds;
  std::vector<std::vector<double>> rival_seconds(rivals.size());
  for (int round = 0; round < effort.rounds; ++round) {
    copies.push_back(seconds_of([&] { roofs.copy(); }, 1) * part);
    reads.push_back(seconds_of([&] { roofs.read(); }, 1) * part);
    adds.push_back(seconds_of([&] { roofs.add(); }, 1) * part);
    calls.push_back(seconds_of(call, repeats));
    for (size_t i = 0; i < rivals.size(); ++i) {
      if (rival_repeats[i] == 0) continue;
      rival_seconds[i].push_back(rivals[i]->run(rival_repeats[i]));
      std::this_thread::sleep_for(kSettle);
    }
  }
  timing.call = spread_of(calls);
  timing.copy_seconds = median_of(copies);
  timing.read_seconds = median_of(reads);
  timing.add_seconds = median_of(adds);
  for (const auto& seconds : rival_seconds) {
    timing.rivals.push_back(seconds.empty() ? std::nullopt : std::optional(spread_of(seconds)));
  }
  return timing;
}

}  // namespace aclgrad::bench

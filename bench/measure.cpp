// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "bench/roofs.h"
#include "runtime/services.h"

namespace aclgrad::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The idle threads of a rival's pool may spin for a while after its turn.
constexpr auto kSettle = std::chrono::milliseconds(5);

// Of the most that was seen, which is forgotten little by little: a clock that has become slower
// for good is the usual one after 7 seconds of looks.
constexpr double kCalmFlops = 0.85;
constexpr double kForgotten = 0.0005;
constexpr auto kCalmPause = std::chrono::milliseconds(20);

// Of a small problem: so many of 24 KiB are 96 MiB; more would only take longer to fill.
constexpr int64_t kMostCopies = 4096;

// Of a program's copies, in bytes that leave the caches: what they hold and calls leave alone, as
// most rows of a table, would only bring pages to forget (below). Embedding f32 6x169x142848 among
// 125 copies, 12 GB, was at 57 % of the GB/s of five rows, among 60 it is at 90 or more.
constexpr int64_t kMostHeld = 4;

// Before a turn counts, all copies are computed once more: what was not touched for a while costs
// more than the way from memory. A nested virtual machine forgets where such pages lie (two cores
// of Granite Rapids: with more than some 3 GB in use, 3 us for every 32 KiB. LayerNormBackward f32
// 8192x4096, four copies by turns with the roofs, 33 ms, right after the three others 13.6). All
// or none: a part of them would leave the counted call the one that was not touched. A program that
// takes longer for them is so slow that this is nothing: 1.5 GB in two seconds, of which those
// pages are 0.15.
constexpr double kPassSeconds = 2;

// A line of /proc/self/status in bytes: VmRSS, or VmHWM, its highest so far.
int64_t resident_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    int64_t kilobytes = 0;
    if (word == key + ":" && file >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

struct DeviceBytes {
  int64_t free = 0;
  int64_t total = 0;
};

DeviceBytes device_memory() {
  size_t free = 0;
  size_t total = 0;
  require(aclrtGetMemInfo(ACL_HBM_MEM, &free, &total), "aclrtGetMemInfo");
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

// What a call adds to the resident memory while it runs.
int64_t peak_bytes_of(Subject& subject) {
  if (aclgrad_has_device_queues()) {
    // What the library takes for itself stays in its cache.
    const int64_t free = device_memory().free;
    subject.call();
    return std::max(free - device_memory().free, int64_t{0}) + subject.workspace_bytes();
  }
  // Resident already where an earlier problem had the same memory: so it is counted by its size.
  subject.touch_workspace();
  std::ofstream("/proc/self/clear_refs") << "5";  // forget the highest mark
  const int64_t before = resident_bytes("VmRSS");
  subject.call();
  return std::max(resident_bytes("VmHWM") - before, int64_t{0}) + subject.workspace_bytes();
}

double median_of(const std::vector<double>& values) { return spread_of(values).median; }

// The median of the rounds' a / b.
double ratio_of(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios(a.size());
  std::transform(a.begin(), a.end(), b.begin(), ratios.begin(), std::divides<>());
  return median_of(ratios);
}

// Calls of a turn. Those before it do not count: they find threads asleep, caches full of what
// another one wrote and memory that was not touched lately.
struct Turn {
  int before = 0;
  int counted = 0;
};

// `seconds(n)` makes n calls and tells what each took.
template <class Seconds>
Turn turn_for(const Effort& effort, size_t copies, const Seconds& seconds) {
  seconds(1);
  const double call = std::max(seconds(1), 1e-8);
  Turn turn;
  turn.counted = static_cast<int>(std::clamp(effort.round_seconds / call, 1.0, 1e6));
  const bool passes = call * static_cast<double>(copies) <= kPassSeconds;
  turn.before = passes ? static_cast<int>(copies) : (turn.counted > 1 ? 1 : 0);
  return turn;
}

template <class Seconds>
double take(const Turn& turn, const Seconds& seconds) {
  if (turn.before > 0) seconds(turn.before);
  return seconds(turn.counted);
}

// A rival's part in the race for one problem.
class Lane {
 public:
  Lane(Rival& rival, const std::string& problem, size_t copies, const Effort& effort)
      : rival_(rival) {
    guarded([&] {
      if (!rival_.make(problem, copies)) return;
      turn_ = turn_for(effort, copies, [&](int calls) { return rival_.run(calls); });
    });
  }
  // After the same read that the operator's turn follows: caches keep parts of what is read time
  // and again, also of data several times their size, and who comes after all of the roofs was 2 to
  // 5 % slower for tens of milliseconds than the same program in a later place (134 MB beside 32
  // MiB of L3). A GPU's turns are longer than that.
  void run(Roofs& roofs) {
    if (turn_.counted == 0) return;
    if (!aclgrad_has_device_queues()) roofs.read();
    guarded([&] { seconds_.push_back(take(turn_, [&](int calls) { return rival_.run(calls); })); });
    std::this_thread::sleep_for(kSettle);
  }
  void forget_last() {
    if (!seconds_.empty()) seconds_.pop_back();
  }
  // `calls`: the operator's seconds in the same rounds.
  RivalTiming timing(const std::vector<double>& calls) const {
    if (seconds_.empty()) return {std::nullopt, 0, rival_.remark()};
    return {spread_of(seconds_), ratio_of(seconds_, calls), rival_.remark()};
  }

 private:
  template <class Ask>
  void guarded(const Ask& ask) {
    try {
      ask();
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "%s; it is left out from now on\n", error.what());
      rival_.give_up(error.what());
      turn_ = {};
      seconds_.clear();
    }
  }

  Rival& rival_;
  Turn turn_;  // nothing counted: it is not asked
  std::vector<double> seconds_;
};

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

Subject::Subject(const Operator& op, aclDataType dtype, const std::string& shape)
    : make_([&op, dtype, shape] { return op.make(dtype, shape); }) {
  const int64_t before = Tensor::bytes_in_use();
  copies_.push_back(make_());
  copy_bytes_ = Tensor::bytes_in_use() - before;
  if (copies_[0].bytes == 0) throw std::invalid_argument("no bytes to move, nothing to measure");
  require(aclrtCreateStream(&stream_), "aclrtCreateStream");
  if (aclgrad_has_device_queues()) clock_ = std::make_unique<DeviceClock>(stream_);
  require(aclDestroyAclOpExecutor(plan()), "aclDestroyAclOpExecutor");
  if (workspace_bytes_ == 0) return;
  require(aclrtMalloc(&workspace_, workspace_bytes_, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
}

void Subject::make_copies(size_t copies) {
  while (copies_.size() < copies) copies_.push_back(make_());
}

size_t copies_beyond_caches(const std::string& name, const Subject& subject, size_t programs) {
  const int64_t bytes = subject.problem().bytes;
  const int64_t wanted = std::min((bytes_beyond_caches() + bytes - 1) / bytes, kMostCopies);
  const int64_t room = std::min(device_memory().total / 2 / static_cast<int64_t>(programs),
                                kMostHeld * bytes_beyond_caches());
  const int64_t most = std::max(room / std::max(subject.copy_bytes(), int64_t{1}), int64_t{1});
  if (most < wanted) {
    std::fprintf(stderr, "%s: room for %lld copies of its data, %lld would leave the caches\n",
                 name.c_str(), static_cast<long long>(most), static_cast<long long>(wanted));
  }
  return static_cast<size_t>(std::min(wanted, most));
}

Subject::~Subject() {
  clock_.reset();
  static_cast<void>(aclrtDestroyStream(stream_));
  if (workspace_ != nullptr) static_cast<void>(aclrtFree(workspace_));
}

void Subject::touch_workspace() {
  if (workspace_ != nullptr) std::memset(workspace_, 0, workspace_bytes_);
}

void Subject::hand_over() {
  execute(plan());
  next_ = next_ + 1 == copies_.size() ? 0 : next_ + 1;
}

void Subject::call() {
  hand_over();
  wait();
}

double Subject::seconds(int repeats) {
  if (clock_ == nullptr) return seconds_of([&] { call(); }, repeats);
  return clock_->seconds_of([&] { hand_over(); }, repeats);
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

bool Calm::now() {
  const double flops = flops_now();
  best_flops_ = std::max(best_flops_ * (1 - kForgotten), flops);
  return flops >= kCalmFlops * best_flops_;
}

Timing measure(const std::string& name, Subject& subject,
               const std::vector<std::unique_ptr<Rival>>& rivals, const Effort& effort,
               Calm& calm) {
  Timing timing;
  timing.workspace_bytes = subject.workspace_bytes();
  timing.peak_bytes = peak_bytes_of(subject);

  const std::unique_ptr<Roofs> roofs = make_roofs(subject.problem().bytes, subject.copies());
  const auto seconds = [&](int count) { return subject.seconds(count); };
  const Turn turn = turn_for(effort, subject.copies(), seconds);
  std::vector<Lane> lanes;
  for (const auto& rival : rivals) {
    lanes.emplace_back(*rival, name, subject.copies(), effort);
  }
  std::vector<double> calls, copies, reads, adds;
  const auto given_up = Clock::now() + std::chrono::duration<double>(effort.patience_seconds);
  const auto patient = [&] { return Clock::now() < given_up; };
  while (calls.size() < static_cast<size_t>(effort.rounds)) {
    bool was_calm = calm.now();
    while (!was_calm && patient()) {
      std::this_thread::sleep_for(kCalmPause);
      was_calm = calm.now();
    }
    roofs->read();  // does not count, as the calls before a turn
    copies.push_back(roofs->copy());
    adds.push_back(roofs->add());
    reads.push_back(roofs->read());
    calls.push_back(take(turn, seconds));
    for (Lane& lane : lanes) lane.run(*roofs);
    if (was_calm && calm.now()) continue;
    if (patient()) {
      for (std::vector<double>* const each : {&calls, &copies, &reads, &adds}) each->pop_back();
      for (Lane& lane : lanes) lane.forget_last();
    } else {
      ++timing.disturbed_rounds;
    }
  }
  timing.call = spread_of(calls);
  timing.rounds = effort.rounds;
  timing.copy_seconds = median_of(copies);
  timing.read_seconds = median_of(reads);
  timing.add_seconds = median_of(adds);
  timing.share = ratio_of(subject.problem().roof == Roof::kRead ? reads : copies, calls);
  for (const Lane& lane : lanes) timing.rivals.push_back(lane.timing(calls));
  return timing;
}

}  // namespace aclgrad::bench

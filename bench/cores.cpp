// SPDX-License-Identifier: Apache-2.0
// aclgrad_cores [--csv FILE] [problem...]: how the work of the default problems, or of those whose
// names begin so, divides among cores that this machine need not have. Every problem is cut as for
// 2, 16 and 64 threads and runs on one while the blocks of its parallel loops are timed; then how
// so many cores would claim them is replayed. Memory that all cores share is left out: what is
// shown is whether they would have something to do.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <queue>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/measure.h"
#include "bench/roofs.h"
#include "kernels/cpu/parallel.h"

namespace {

using namespace aclgrad;
using namespace aclgrad::bench;
using Clock = std::chrono::steady_clock;

constexpr int kCores[] = {2, 16, 64};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The seconds of each block, for each parallel loop of the last call.
std::vector<std::vector<double>>& loops() {
  static std::vector<std::vector<double>> seconds;
  return seconds;
}

// Seconds of a loop on so many cores, each with a run of blocks of its own before it helps others.
double replay(const std::vector<double>& blocks, int64_t cores) {
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t runs = run_count(count, cores);
  std::vector<int64_t> next;
  for (int64_t run = 0; run < runs; ++run) next.push_back(run_begin(count, runs, run));
  struct Core {
    double free_at;
    int64_t worker, helped;
    bool operator>(const Core& other) const { return free_at > other.free_at; }
  };
  std::priority_queue<Core, std::vector<Core>, std::greater<>> waiting;
  for (int64_t worker = 0; worker < runs; ++worker) waiting.push({0, worker, 0});
  double end = 0;
  while (!waiting.empty()) {
    Core core = waiting.top();
    waiting.pop();
    end = core.free_at;
    for (; core.helped < runs; ++core.helped) {
      const int64_t run = (core.worker + core.helped) % runs;
      if (next[static_cast<size_t>(run)] == run_begin(count, runs, run + 1)) continue;
      core.free_at += blocks[static_cast<size_t>(next[static_cast<size_t>(run)]++)];
      waiting.push(core);
      break;
    }
  }
  return end;
}

// What a problem's calls took, each part at its fastest: other programs disturb some of them.
struct Parts {
  double fastest = 0;  // call
  std::vector<std::vector<double>> loops;
  double alone = 0;  // outside of loops
};

bool are_cut_alike(const Parts& parts) {
  return std::equal(parts.loops.begin(), parts.loops.end(), loops().begin(), loops().end(),
                    [](const auto& a, const auto& b) { return a.size() == b.size(); });
}

void take_faster(double whole, Parts& parts) {
  double alone = whole;
  for (const std::vector<double>& loop : loops()) {
    for (const double seconds : loop) alone -= seconds;
  }
  // A kernel that tries two ways (kernels/cpu/faster_way.h) may cut each call otherwise.
  const bool is_first = parts.fastest == 0;
  if (is_first || !are_cut_alike(parts)) {
    if (is_first || whole < parts.fastest) parts = {whole, loops(), alone};
    return;
  }
  parts.fastest = std::min(parts.fastest, whole);
  parts.alone = std::min(parts.alone, alone);
  for (size_t i = 0; i < parts.loops.size(); ++i) {
    for (size_t block = 0; block < parts.loops[i].size(); ++block) {
      parts.loops[i][block] = std::min(parts.loops[i][block], loops()[i][block]);
    }
  }
}

double with_cores(const Parts& parts, int64_t cores) {
  double seconds = parts.alone;
  for (const std::vector<double>& loop : parts.loops) seconds += replay(loop, cores);
  return seconds;
}

// How a problem divides among so many cores.
struct Division {
  size_t blocks = 0;
  double longest = 0;   // of them, in seconds
  double speed_up = 0;  // beside one core that does the same blocks
};

Division divide(const Parts& parts, int64_t cores) {
  Division division;
  for (const std::vector<double>& loop : parts.loops) {
    division.blocks += loop.size();
    for (const double seconds : loop) division.longest = std::max(division.longest, seconds);
  }
  division.speed_up = with_cores(parts, 1) / with_cores(parts, cores);
  return division;
}

// The table, on the standard output and in a file where one is named.
class Table {
 public:
  explicit Table(const std::string& csv) {
    std::printf("one thread; times in us; speed-up with cores that memory does not hold up\n");
    std::printf("%-52s %6s %10s %7s", "problem", "loops", "whole", "alone");
    for (const int cores : kCores) std::printf(" %7s %8s %6d", "blocks", "longest", cores);
    std::printf("\n");
    if (csv.empty()) return;
    csv_.open(csv);
    if (!csv_) throw std::runtime_error(csv + ": cannot be written");
    const Machine machine = this_machine();
    csv_ << "# " << machine.name << "; " << machine.target << "; one thread\n"
         << "problem,loops,whole_us,alone_us";
    for (const int cores : kCores) {
      csv_ << ",blocks_" << cores << ",longest_us_" << cores << ",speed_up_" << cores;
    }
    csv_ << std::endl;
  }

  void begin(const std::string& problem, const Parts& parts) {
    const double whole = with_cores(parts, 1);
    std::printf("%-52s %6zu %10.1f %7.1f", problem.c_str(), parts.loops.size(), whole * 1e6,
                parts.alone * 1e6);
    if (!csv_.is_open()) return;
    csv_ << problem << ',' << parts.loops.size() << ',' << whole * 1e6 << ',' << parts.alone * 1e6;
  }
  void add(const Division& division) {
    std::printf(" %7zu %8.1f %6.1f", division.blocks, division.longest * 1e6, division.speed_up);
    std::fflush(stdout);
    if (!csv_.is_open()) return;
    csv_ << ',' << division.blocks << ',' << division.longest * 1e6 << ',' << division.speed_up;
  }
  void end() {
    std::printf("\n");
    if (!csv_.is_open()) return;
    csv_ << std::endl;
    if (!csv_) throw std::runtime_error("the file cannot be written to its end");
  }

 private:
  std::ofstream csv_;
};

Parts measure(Subject& subject) {
  constexpr int kCalls = 7;
  Parts parts;
  for (int i = 0; i < kCalls; ++i) {
    loops().clear();
    const Clock::time_point begin = Clock::now();
    subject.call();
    take_faster(seconds_since(begin), parts);
  }
  return parts;
}

void run(const Job& job, Table& table) {
  for (const int cores : kCores) {
    aclgrad_use_threads(cores);
    // Anew: phase one keeps the plan of tensors that it has seen before, cut for other threads.
    Subject subject(*job.op, parse_dtype(job.dtype), job.shape);
    const auto copies = copies_beyond_caches(job.name(), subject, 1);
    subject.make_copies(copies);
    for (auto copy = copies; copy > 0; --copy) subject.call();  // so that each is planned
    const Parts parts = measure(subject);
    if (cores == kCores[0]) table.begin(job.name(), parts);
    table.add(divide(parts, cores));
  }
  table.end();
}

// The default problems whose names begin with one of these; all where there are none.
std::vector<std::string> wanted(const std::vector<std::string>& beginnings) {
  std::vector<std::string> names, found;
  for (const Operator& op : operators()) {
    for (const std::string& problem : op.defaults) names.push_back(op.name + "/" + problem);
  }
  if (beginnings.empty()) return names;
  for (const std::string& beginning : beginnings) {
    const auto begins = [&](const std::string& name) { return name.starts_with(beginning); };
    if (std::none_of(names.begin(), names.end(), begins)) {
      throw std::runtime_error("no default problem begins with " + beginning);
    }
  }
  for (const std::string& name : names) {
    const auto begins = [&](const std::string& beginning) { return name.starts_with(beginning); };
    if (std::any_of(beginnings.begin(), beginnings.end(), begins)) found.push_back(name);
  }
  return found;
}

}  // namespace

namespace aclgrad {

// Stands before the library's own, which every parallel loop of two blocks or more calls.
extern "C" void aclgrad_parallel(int64_t blocks, void (*body)(void* context, int64_t block),
                                 void* context) noexcept {
  std::vector<double> seconds(static_cast<size_t>(blocks));
  Clock::time_point begin = Clock::now();
  for (int64_t block = 0; block < blocks; ++block) {
    body(context, block);
    const Clock::time_point end = Clock::now();  // and where the next one begins
    seconds[static_cast<size_t>(block)] = std::chrono::duration<double>(end - begin).count();
    begin = end;
  }
  loops().push_back(std::move(seconds));
}

}  // namespace aclgrad

int main(int argc, char** argv) {
  try {
    std::vector<std::string> beginnings(argv + 1, argv + argc);
    std::string csv;
    const auto option = std::find(beginnings.begin(), beginnings.end(), "--csv");
    if (option != beginnings.end()) {
      if (option + 1 == beginnings.end()) throw std::runtime_error("--csv needs a file");
      csv = option[1];
      beginnings.erase(option, option + 2);
    }
    const std::vector<std::string> problems = wanted(beginnings);  // before the file is written
    if (aclrtSetDevice(0) != ACL_SUCCESS) throw std::runtime_error("no device");
    Table table(csv);
    for (const std::string& problem : problems) run(parse_job(problem), table);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "aclgrad_cores: %s\n", error.what());
  }
  return 1;
}

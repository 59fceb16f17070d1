// SPDX-License-Identifier: Apache-2.0
// aclgrad_bench [options] [problem...]: the speed of operators on this machine.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/measure.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"

namespace {

using namespace aclgrad;
using namespace aclgrad::bench;

constexpr const char* kUsage =
    "usage: aclgrad_bench [options] [problem...]\n"
    "  problem         layer_norm_backward/f16/4096x1024, or the beginning of one: then the\n"
    "                  default shapes that begin so; none: all default shapes\n"
    "  --threads N     threads that kernels may use\n"
    "  --target NAME   instruction set\n"
    "  --rounds N      turns of {copy, operator}; the medians count (9)\n"
    "  --csv FILE      the table as comma-separated values too\n"
    "  --list          only print the problems\n";

struct Job {
  const Operator* op;
  std::string dtype;
  std::string shape;
  std::string name() const { return op->name + "/" + dtype + "/" + shape; }
};

struct Options {
  std::vector<std::string> problems;
  std::string csv;
  Effort effort;
  bool list = false;
};

int number(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 1 || value > 100000) {
    throw std::invalid_argument(option + " " + text + ": expected a number from 1 on");
  }
  return static_cast<int>(value);
}

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    if (option.rfind("--", 0) != 0) {
      options.problems.push_back(option);
      continue;
    }
    if (option == "--list") {
      options.list = true;
      continue;
    }
    if (option == "--help") throw std::invalid_argument("");
    if (i + 1 == arguments.size()) throw std::invalid_argument(option + ": unknown, or no value");
    const std::string& value = arguments[++i];
    if (option == "--threads") {
      aclgrad_use_threads(number(option, value));
    } else if (option == "--target") {
      if (!aclgrad_use_target(value.c_str())) {
        throw std::invalid_argument("--target " + value + ": expected one of " +
                                    aclgrad_usable_targets());
      }
    } else if (option == "--rounds") {
      options.effort.rounds = number(option, value);
    } else if (option == "--csv") {
      options.csv = value;
    } else {
      throw std::invalid_argument(option + ": unknown option");
    }
  }
  return options;
}

std::vector<Job> default_jobs() {
  std::vector<Job> jobs;
  for (const Operator& op : operators()) {
    for (const std::string& text : op.defaults) {
      const size_t slash = text.find('/');
      jobs.push_back({&op, text.substr(0, slash), text.substr(slash + 1)});
    }
  }
  return jobs;
}

// A full name is measured whether it is a default or not; a beginning selects defaults.
void add_jobs(const std::string& problem, std::vector<Job>& jobs) {
  const size_t before = jobs.size();
  for (const Job& job : default_jobs()) {
    const std::string name = job.name();
    const bool begins = name.rfind(problem, 0) == 0;
    if (name == problem || (begins && (problem.back() == '/' || name[problem.size()] == '/'))) {
      jobs.push_back(job);
    }
  }
  if (jobs.size() != before) return;
  for (const Operator& op : operators()) {
    if (problem.rfind(op.name + "/", 0) != 0) continue;
    const std::string rest = problem.substr(op.name.size() + 1);
    const size_t slash = rest.find('/');
    if (slash == std::string::npos) break;
    jobs.push_back({&op, rest.substr(0, slash), rest.substr(slash + 1)});
    return;
  }
  throw std::invalid_argument(problem + ": no such problem; --list shows some");
}

std::vector<Job> select_jobs(const std::vector<std::string>& problems) {
  if (problems.empty()) return default_jobs();
  std::vector<Job> jobs;
  for (const std::string& problem : problems) add_jobs(problem, jobs);
  return jobs;
}

void run_jobs(const std::vector<Job>& jobs, const Options& options) {
  std::ofstream csv;
  if (!options.csv.empty()) {
    csv.open(options.csv);
    if (!csv) throw std::runtime_error(options.csv + ": cannot be written");
    csv << "problem,target,threads,us,gb_per_s,copy_gb_per_s,percent_of_copy\n";
  }
  aclrtStream stream = nullptr;
  if (aclrtSetDevice(0) != ACL_SUCCESS || aclrtCreateStream(&stream) != ACL_SUCCESS) {
    throw std::runtime_error("no device");
  }
  std::printf("%s, %d threads; one call is both phases and the synchronise\n",
              aclgrad_active_target(), aclgrad_threads());
  std::printf("%-56s %12s %8s %8s %8s\n", "problem", "us", "GB/s", "copy", "% copy");
  const bool progress = isatty(STDERR_FILENO) != 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::string name = jobs[i].name();
    if (progress) std::fprintf(stderr, "[%zu/%zu] %s\r", i + 1, jobs.size(), name.c_str());
    const Problem problem = jobs[i].op->make(parse_dtype(jobs[i].dtype), jobs[i].shape);
    const Timing timing = measure(problem, stream, options.effort);
    const double bytes = static_cast<double>(problem.bytes);
    const double speed = bytes / timing.seconds / 1e9;
    const double copy_speed = bytes / timing.copy_seconds / 1e9;
    const double percent = 100.0 * speed / copy_speed;
    std::printf("%-56s %12.1f %8.2f %8.2f %7.0f%%\n", name.c_str(), timing.seconds * 1e6, speed,
                copy_speed, percent);
    std::fflush(stdout);
    if (csv.is_open()) {
      csv << name << ',' << aclgrad_active_target() << ',' << aclgrad_threads() << ','
          << timing.seconds * 1e6 << ',' << speed << ',' << copy_speed << ',' << percent << '\n';
    }
  }
  static_cast<void>(aclrtDestroyStream(stream));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options({argv + 1, argv + argc});
    const std::vector<Job> jobs = select_jobs(options.problems);
    if (!options.list) {
      run_jobs(jobs, options);
      return 0;
    }
    for (const Job& job : jobs) std::printf("%s\n", job.name().c_str());
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << error.what() << '\n' << kUsage;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}

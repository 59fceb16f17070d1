// SPDX-License-Identifier: Apache-2.0
// aclgrad_bench [options] [problem...]: the speed of operators on this machine.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "bench/bench.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/rival.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "runtime/services.h"

namespace {

using namespace aclgrad;
using namespace aclgrad::bench;

constexpr const char* kUsage =
    "usage: aclgrad_bench [options] [problem...]\n"
    "  problem         layer_norm_backward/f16/4096x1024, or its operator, or that and the\n"
    "                  dtype: then their default shapes; none: all default shapes\n"
    "                  a word before the shape names a variant: out110/16x64, LayerNormBackward\n"
    "                  without dbeta; mask1x1/8x16x64x64, one mask for all of a softmax\n"
    "  --threads N     threads that kernels may use\n"
    "  --target NAME   instruction set\n"
    "  --view NAME     how tensors of two dims or more lie in memory: contiguous, padded (rows 16\n"
    "                  elements further apart), transposed (the last two dims change places in\n"
    "                  memory), offset (from the second element on), strided (every second\n"
    "                  element) or reversed\n"
    "  --rival NAME=COMMAND   races another implementation (bench/rival.h); may be repeated, with\n"
    "                  another name\n"
    "  --rounds N      turns of {roofs, operator, rivals}, 1 to 1024; the medians count (9)\n"
    "  --patience S    seconds that a problem may be waited for, and measured again, while others\n"
    "                  are at work on the machine, 0 to 1024 (5)\n"
    "  --cached        small problems may stay in the caches\n"
    "  --csv FILE      the table as comma-separated values too\n"
    "  --list          only print the problems\n"
    "  --plan          only print the problems, the bytes that they move at least, and those of "
    "the\n"
    "                  workspace that phase one asks for\n"
    "  --serve         be a rival: take orders from the standard input\n";

struct Options {
  std::vector<std::string> problems;
  std::vector<std::pair<std::string, std::string>> rivals;
  std::string csv;
  std::string view = "contiguous";
  Effort effort;
  bool list = false;
  bool plan = false;
  bool serve = false;
  bool help = false;
};

int number(const std::string& option, const std::string& text, long least) {
  constexpr long kMost = 1024;
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < least || value > kMost) {
    throw std::invalid_argument(option + " " + text + ": expected a number from " +
                                std::to_string(least) + " to " + std::to_string(kMost));
  }
  return static_cast<int>(value);
}

void use_target(const std::string& name) {
  if (!aclgrad_use_target(name.c_str())) {
    throw std::invalid_argument("--target " + name + ": expected one of " +
                                aclgrad_usable_targets());
  }
}

void add_rival(const std::string& text, std::vector<std::pair<std::string, std::string>>& rivals) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
    throw std::invalid_argument("--rival " + text + ": expected NAME=COMMAND");
  }
  const std::string name = text.substr(0, equals);
  for (const auto& [other, command] : rivals) {
    if (other == name) throw std::invalid_argument("--rival " + name + ": given twice");
  }
  rivals.emplace_back(name, text.substr(equals + 1));
}

void set_option(const std::string& option, const std::string& value, Options& options) {
  if (option == "--threads") {
    aclgrad_use_threads(number(option, value, 1));
  } else if (option == "--target") {
    use_target(value);
  } else if (option == "--view") {
    use_view(value);
    options.view = value;
  } else if (option == "--rival") {
    add_rival(value, options.rivals);
  } else if (option == "--rounds") {
    options.effort.rounds = number(option, value, 1);
  } else if (option == "--patience") {
    options.effort.patience_seconds = number(option, value, 0);
  } else if (option == "--csv") {
    options.csv = value;
  } else {
    throw std::invalid_argument(option + ": unknown option");
  }
}

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  std::set<std::string> given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& option = arguments[i];
    if (option.rfind("--", 0) != 0) {
      options.problems.push_back(option);
    } else if (option == "--list") {
      options.list = true;
    } else if (option == "--plan") {
      options.plan = true;
    } else if (option == "--serve") {
      options.serve = true;
    } else if (option == "--cached") {
      options.effort.cached = true;
    } else if (option == "--help") {
      options.help = true;
    } else if (i + 1 == arguments.size()) {
      throw std::invalid_argument(option + ": unknown, or no value");
    } else if (option != "--rival" && !given.insert(option).second) {
      throw std::invalid_argument(option + ": given twice");
    } else {
      set_option(option, arguments[++i], options);
    }
  }
  return options;
}

std::vector<Job> default_jobs() {
  std::vector<Job> jobs;
  for (const Operator& op : operators()) {
    for (const std::string& text : op.defaults) jobs.push_back(parse_job(op.name + "/" + text));
  }
  return jobs;
}

// A full name is measured whether it is a default or not; a beginning selects defaults.
void add_jobs(const std::string& problem, std::vector<Job>& jobs) {
  const size_t before = jobs.size();
  for (const Job& job : default_jobs()) {
    const std::string name = job.name();
    const bool begins = !problem.empty() && name.rfind(problem, 0) == 0;
    if (name == problem || (begins && (problem.back() == '/' || name[problem.size()] == '/'))) {
      jobs.push_back(job);
    }
  }
  if (jobs.size() == before) jobs.push_back(parse_job(problem));
}

// Each once, however often it is named.
std::vector<Job> select_jobs(const std::vector<std::string>& problems) {
  if (problems.empty()) return default_jobs();
  std::vector<Job> jobs;
  for (const std::string& problem : problems) add_jobs(problem, jobs);
  std::set<std::string> seen;
  std::erase_if(jobs, [&](const Job& job) { return !seen.insert(job.name()).second; });
  return jobs;
}

// The libraries serve the CPU where there is no GPU; figures of the CPU are not what was asked for.
void check_device() {
  const char* const wanted = std::getenv("ACLGRAD_DEVICE");
  if (wanted == nullptr || std::string(wanted) != "cuda" || aclgrad_has_device_queues()) return;
  throw std::runtime_error(
      config::kHasCuda
          ? "ACLGRAD_DEVICE is cuda, and no GPU can be used: there is none, or no driver that is "
            "new enough; nothing was run on the CPU in its place"
          : "ACLGRAD_DEVICE is cuda, and this build has no CUDA: it was made without nvcc "
            "(ACLGRAD_CUDA); nothing was run on the CPU in its place");
}

// False: some problem could not be measured; the others were.
bool run_jobs(const std::vector<Job>& jobs, const Options& options) {
  std::vector<std::unique_ptr<Rival>> rivals;
  for (const auto& [name, command] : options.rivals) {
    rivals.push_back(std::make_unique<Rival>(name, command, aclgrad_threads()));
  }
  if (!rivals.empty() && options.view != "contiguous") {
    std::fprintf(stderr,
                 "--view is ours alone: a rival gets contiguous tensors, unless its command "
                 "says otherwise\n");
  }
  Report report(rivals, options.view, options.csv, options.effort.cached);
  Calm calm;
  bool all = true;
  const bool progress = isatty(STDERR_FILENO) != 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const std::string name = jobs[i].name();
    if (progress) std::fprintf(stderr, "[%zu/%zu] %s\033[K\r", i + 1, jobs.size(), name.c_str());
    try {
      Subject subject(*jobs[i].op, parse_dtype(jobs[i].dtype), jobs[i].shape);
      if (!options.effort.cached) {
        subject.make_copies(copies_beyond_caches(name, subject, 1 + rivals.size()));
      }
      report.add(name, subject.problem(), measure(name, subject, rivals, options.effort, calm));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s is left out: %s\n", name.c_str(), error.what());
      all = false;
    }
  }
  return all;
}

void print_plans(const std::vector<Job>& jobs) {
  use_no_data();
  for (const Job& job : jobs) {
    const Problem problem = job.op->make(parse_dtype(job.dtype), job.shape);
    uint64_t workspace = 0;
    aclOpExecutor* executor = nullptr;
    require(problem.plan(&workspace, &executor), job.name().c_str());
    require(aclDestroyAclOpExecutor(executor), "aclDestroyAclOpExecutor");
    std::printf("%s %lld %llu\n", job.name().c_str(), static_cast<long long>(problem.bytes),
                static_cast<unsigned long long>(workspace));
  }
}

// The other side of Rival.
void serve() {
  std::unique_ptr<Subject> subject;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string order, problem;
    int count = 0;
    words >> order;
    if (order == "threads" && words >> count) {
      aclgrad_use_threads(count);
      std::cout << "ok" << std::endl;
    } else if (order == "make" && words >> problem >> count && count > 0) {
      subject.reset();
      std::vector<Job> jobs;
      try {
        add_jobs(problem, jobs);
        auto made =
            std::make_unique<Subject>(*jobs[0].op, parse_dtype(jobs[0].dtype), jobs[0].shape);
        made->make_copies(static_cast<size_t>(count));
        subject = std::move(made);
        std::cout << "ok aclgrad" << std::endl;
      } catch (const std::exception& error) {
        std::cout << "no " << error.what() << std::endl;
      }
    } else if (order == "run" && words >> count && subject != nullptr) {
      std::cout << subject->seconds(count) << std::endl;
    } else {
      std::cout << "expected threads, make or run" << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse_options({argv + 1, argv + argc});
    if (options.help) {
      std::printf("%s", kUsage);
      return 0;
    }
    const std::vector<Job> jobs = select_jobs(options.problems);
    if (aclrtSetDevice(0) != ACL_SUCCESS) throw std::runtime_error("no device");
    check_device();
    if (options.list) {
      for (const Job& job : jobs) std::printf("%s\n", job.name().c_str());
      return 0;
    }
    if (options.plan) {
      print_plans(jobs);
      return 0;
    }
    if (!options.serve) return run_jobs(jobs, options) ? 0 : 1;
    serve();
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << error.what() << '\n' << kUsage;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}

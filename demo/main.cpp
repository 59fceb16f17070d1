// SPDX-License-Identifier: Apache-2.0
// All operators on a real text: demo <text>. One table with time, rate and the largest error.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "array.h"
#include "problem.h"

namespace aclgrad::demo {
namespace {

// Drawn over itself on a terminal, a line for each step elsewhere.
void show_progress(size_t done, size_t all, const std::string& next) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  constexpr size_t kWidth = 24;
  const size_t filled = kWidth * done / all;
  std::string bar(filled, '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "%s[%s] %2zu/%zu %-40s%s", terminal ? "\r" : "", bar.c_str(), done, all,
               next.c_str(), terminal ? "" : "\n");
  if (terminal && done == all) std::fprintf(stderr, "\r%80s\r", "");
  std::fflush(stderr);
}

void print_table(const std::vector<Result>& results) {
  std::printf("%-31s %-34s %-5s %10s %8s %8s\n", "operator", "shapes", "dtype", "time", "GB/s",
              "error");
  for (const Result& r : results) {
    std::printf("%-31s %-34s %-5s %7.3f ms %8.1f %8.2f\n", r.op.c_str(), r.shape.c_str(),
                r.dtype.c_str(), r.seconds * 1e3, static_cast<double>(r.bytes) / r.seconds * 1e-9,
                r.error);
  }
  std::printf(
      "time: both phases and the synchronise, median of 7 runs; GB/s: inputs read once and "
      "outputs\n"
      "written once; error: the largest of all elements against float64, 1 being what is "
      "promised\n");
}

int run(const std::string& path) {
  const Text text = read_text(path);
  std::printf("%s: %zu %s (%lld different), %zu lines, %zu chapters, %zu parts\n",
              text.name.c_str(), text.words.size(), text.of_bytes ? "bytes as words" : "words",
              static_cast<long long>(text.vocabulary), text.line_ends.size(),
              text.chapter_ends.size(), text.part_ends.size());
  require(aclInit(nullptr), "aclInit");
  require(aclrtSetDevice(0), "aclrtSetDevice");
  std::vector<Result> results;
  {
    const std::vector<Problem> all = problems(text);
    for (const Problem& problem : all) {
      show_progress(results.size(), all.size(), problem.op + " " + problem.dtype);
      results.push_back(problem.measure());
    }
    show_progress(all.size(), all.size(), "done");
  }
  print_table(results);
  require(aclrtResetDevice(0), "aclrtResetDevice");
  require(aclFinalize(), "aclFinalize");
  for (const Result& result : results) {
    if (!(result.error <= 1.0)) {
      std::fprintf(stderr, "%s %s is off by %g times the tolerance\n", result.op.c_str(),
                   result.dtype.c_str(), result.error);
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace aclgrad::demo

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: %s <text file>\n", arguments[0]);
    return 2;
  }
  try {
    return aclgrad::demo::run(arguments[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "demo: %s\n", error.what());
    return 1;
  }
}

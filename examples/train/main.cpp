// SPDX-License-Identifier: Apache-2.0
// Trains a small language model through the two-phase interface: see README.md.
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "check.h"
#include "options.h"
#include "product.h"
#include "trainer.h"

namespace aclgrad::train {
namespace {

size_t usable_cpus() {
  cpu_set_t set;
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
  return known ? static_cast<size_t>(std::max(1, CPU_COUNT(&set))) : 1;
}

int run(Options options) {
  if (options.text.empty()) options.text = check_text();
  expect_apart(options);
  const size_t threads = options.threads > 0 ? options.threads : usable_cpus();
  // The library reads this at its first parallel loop.
  if (options.threads > 0) setenv("ACLGRAD_THREADS", std::to_string(threads).c_str(), 1);
  use_one_blas_thread();
  // A file that grows past a limit is an error of the write, not the end of the program.
  static_cast<void>(std::signal(SIGXFSZ, SIG_IGN));
  Workers workers(threads);
  const Device device;
  Operators operators(device, workers, options.dtype);
  Trainer trainer(options, operators);
  if (options.check) return run_check(trainer, options.dtype) ? 0 : 1;
  return trainer.run() ? 0 : 1;
}

// What is printed waits in a buffer: a report that cannot be written is known here at the latest.
int flushed(int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  std::fprintf(stderr, "train: cannot write the report: %s\n",
               errno != 0 ? std::strerror(errno) : "an earlier write failed");
  return 1;
}

}  // namespace
}  // namespace aclgrad::train

int main(int count, char** arguments) {
  using namespace aclgrad::train;
  try {
    const Options options = parse_options({arguments + 1, arguments + count});
    if (options.help) {
      std::printf("%s", kUsage);
      return flushed(0);
    }
    return flushed(run(options));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "train: %s\n\n%s", error.what(), kUsage);
    return 2;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    std::fprintf(stderr, "train: %s\n", error.what());
    return 1;
  }
}

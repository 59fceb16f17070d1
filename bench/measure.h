// SPDX-License-Identifier: Apache-2.0
// Times a problem against a copy that moves the same number of bytes. Both are measured in turns,
// so that whatever else the machine does hits both alike, and the medians are compared.
#ifndef ACLGRAD_BENCH_MEASURE_H_
#define ACLGRAD_BENCH_MEASURE_H_

#include "bench/bench.h"

namespace aclgrad::bench {

struct Timing {
  double seconds = 0;       // of one call: both phases and the synchronise; the workspace is kept
  double copy_seconds = 0;  // of the copy
};

struct Effort {
  int rounds = 9;
  double round_seconds = 0.01;  // a turn repeats short problems until it took that long
};

// Throws std::runtime_error with the library's message when a call fails.
Timing measure(const Problem& problem, aclrtStream stream, const Effort& effort);

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_MEASURE_H_

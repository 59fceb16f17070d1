// SPDX-License-Identifier: Apache-2.0
// Whether a few long runs are summed in the order of dy (few_runs-inl.h). Does not influence the
// bits.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_FEW_RUNS_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_FEW_RUNS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/checked.h"
#include "kernels/cpu/lane_count.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefetch.h"
#include "ops/embedding_dense_backward/sweep.h"

namespace aclgrad::embedding_dense_backward {

inline constexpr int64_t kMostFewRuns = 16;
// Bytes of a gradient row for each run: finding the run of a row costs as much as adding so few of
// them (two cores of Zen 3, times as fast, f32 1500000x8x16 1.05, 1000000x16x16 0.8).
inline constexpr int64_t kLeastBytesOfRun = 8;
// Bytes of a gradient row of each run together: with 4 KiB the FP32 chains and FP64 totals take 12
// KiB of L1 for FP32 rows, 24 for those of 16 bits; with more of them reading run by run is level
// (the same, f32 97654x4x256 1.25, 6x256 0.94, 390000x8x64 1.3, 16x64 1.16; bf16 195308x8x256 1.2).
inline constexpr int64_t kMostFewBytes = 4096;
// A larger L1 and cores that lose nothing of what is asked for far ahead have room for twice as
// many (two cores of Zen 5, f32 65536x2x768 0.88 of the time run by run; of Granite Rapids 0.85,
// 16 bits 0.83, f32 97654x2x256 0.74, x4x256 0.72, x8x256 0.94, 390000x8x64 0.67, 16x64 0.7, bf16
// 97654x4x256 0.69, 195308x8x256 0.66).
inline constexpr int64_t kMostFewBytesFarAhead = 8192;
inline int64_t most_few_bytes() { return kDropsPrefetches ? kMostFewBytes : kMostFewBytesFarAhead; }
// Where shares meet, the rows of some runs come late and those of others early: the fewer shares,
// the better (f32 390000x2x64 8.2 ms with 190 of them, 7.1 with eight). These let the threads
// finish together when some shares have a segment more.
inline constexpr int64_t kSharesOfThread = 4;
// Runs of unlike lengths have few segments that end together: then fewer shares may do, down to one
// a thread, where it was measured (two cores of Zen 5, bf16 65536x2x768, 17 and 10 segments, 0.9 of
// the time run by run; of Granite Rapids 65536x2x768 and 97654x4x256, level with four shares).
inline int64_t least_shares_of_thread() { return kDropsPrefetches ? kSharesOfThread : 1; }

// Columns from one run's sums to the next one's.
inline int64_t few_stride(const Sweep& sweep) {
  return round_up(sweep.problem->cols, static_cast<int64_t>(kLanes));
}

// The first segment of share `share`.
inline int64_t first_segment(const LongRun& run, int64_t share, int64_t shares) {
  return run.segments * share / shares;
}

// Whether the runs are in the same part of dy, a quarter of a share apart at most, wherever a share
// begins.
inline bool lie_together(const Sweep& sweep, int64_t shares) {
  const int64_t cols = sweep.problem->cols;
  const int64_t apart = sweep.problem->rows / shares / 4;
  for (int64_t share = 0; share < shares; ++share) {
    int64_t lowest = std::numeric_limits<int64_t>::max();
    int64_t highest = 0;
    for (int64_t r = 0; r < sweep.long_run_count; ++r) {
      const LongRun& run = sweep.long_runs[r];
      const int64_t entry = segment_begin(run, first_segment(run, share, shares), cols);
      const int64_t position = sweep.order.positions[entry];
      lowest = std::min(lowest, position);
      highest = std::max(highest, position);
    }
    if (highest - lowest > apart) return false;
  }
  return true;
}

// Whether they are mixed in most of so many places of each: not row after row of one run, which is
// a stream by itself (indices that rise or drift, or stretches of one index, six and more of which
// have 13 neighbours in 16: eight to thirty are 1.1 to 2.5 times as fast run by run).
inline bool are_mixed(const Sweep& sweep, int64_t places) {
  constexpr int64_t kStretch = 64;  // entries; a long run has more
  const Numbers& positions = sweep.order.positions;
  int64_t streams = 0;
  for (int64_t r = 0; r < sweep.long_run_count; ++r) {
    const LongRun& run = sweep.long_runs[r];
    for (int64_t place = 0; place < places; ++place) {
      const int64_t entry = run.begin + (run.end - run.begin - kStretch) * place / places;
      int64_t neighbours = 0;
      for (int64_t i = entry; i < entry + kStretch; ++i) {
        if (positions[i + 1] - positions[i] == 1) ++neighbours;
      }
      const bool nearly_all = positions[entry + kStretch] - positions[entry] < kStretch / 4 * 5;
      if (nearly_all || neighbours >= kStretch / 16 * 13) ++streams;
    }
  }
  return streams <= places * sweep.long_run_count / 2;
}

// Whether the shares with which each thread begins (parallel.h) have about as many rows, an eighth
// more at most: a run's last segment has up to twice the rows of the others (two cores of Granite
// Rapids, 36000x2x1024, 5 segments in 4 shares, 1.4 to 1.5 times the time run by run; 20000x2x1024
// 1.2 to 1.4).
inline bool are_even(const Sweep& sweep, int64_t shares, int64_t rows) {
  const int64_t cols = sweep.problem->cols;
  const int64_t threads = aclgrad_threads();
  for (int64_t thread = 0; thread < threads; ++thread) {
    const int64_t first = run_begin(shares, threads, thread);
    const int64_t last = run_begin(shares, threads, thread + 1);
    int64_t own = 0;
    for (int64_t r = 0; r < sweep.long_run_count; ++r) {
      const LongRun& run = sweep.long_runs[r];
      own += segment_begin(run, first_segment(run, last, shares), cols) -
             segment_begin(run, first_segment(run, first, shares), cols);
    }
    if (own > rows / threads / 8 * 9) return false;
  }
  return true;
}

// In how many shares the long runs are summed in the order of dy; 0: they are not. Each share has
// whole segments of every run. `element_bytes`: of dy.
inline int64_t shares_of_few_runs(const Sweep& sweep, int64_t element_bytes) {
  const int64_t cols = sweep.problem->cols;
  const int64_t runs = sweep.long_run_count;
  const int64_t threads = aclgrad_threads();
  if (runs < 2 || runs > std::min(kMostFewRuns, cols * element_bytes / kLeastBytesOfRun)) return 0;
  if (runs * few_stride(sweep) * element_bytes > most_few_bytes()) return 0;
  if (!sweep.dy_rows.uniform() || sweep.dy_rows.stride() != cols) return 0;
  int64_t rows = 0, segments = std::numeric_limits<int64_t>::max();
  for (int64_t r = 0; r < runs; ++r) {
    const LongRun& run = sweep.long_runs[r];
    segments = std::min(segments, run.segments);
    rows += run.end - run.begin;
  }
  // A run of one segment has no partial sums.
  if (segments < std::max(int64_t{2}, least_shares_of_thread() * threads)) return 0;
  // Rows between them that are none of theirs would be fetched for nothing.
  if (rows < sweep.problem->rows / 8 * 7) return 0;
  if (!are_mixed(sweep, kSharesOfThread * threads)) return 0;
  for (int64_t each = kSharesOfThread; each >= least_shares_of_thread(); each /= 2) {
    const int64_t shares = each * threads;
    if (segments >= shares && lie_together(sweep, shares) && are_even(sweep, shares, rows)) {
      return shares;
    }
  }
  return 0;
}

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_FEW_RUNS_H_

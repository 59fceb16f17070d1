// SPDX-License-Identifier: Apache-2.0
// How threads share a run: groups that are done together, in stretches of a line of work, and how
// the totals that their blocks leave are joined.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_WAVE_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_WAVE_H_

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "kernels/cpu/parallel.h"
#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/job.h"
#include "ops/grouped_bias_add_grad/problem.h"
#include "ops/grouped_bias_add_grad/tree.h"

namespace aclgrad::grouped_bias_add_grad {

// Groups that are done together (Groups::wave_end()), on the line of work in stretches.
struct Wave {
  Wave(const Job& job, int64_t from)
      : first(from),
        last(job.groups.wave_end(from)),
        start(job.groups[first].start),
        stretches(ceil_div(job.groups[last].start - start, job.plan.task_rows)),
        runs(run_count(stretches, aclgrad_threads())) {}
  int64_t first, last;
  int64_t start;
  int64_t stretches;
  int64_t runs;  // of stretches that a thread begins with
};

// Whether a group of several blocks is one task's, in a range of columns, so that its totals need
// not go to memory and back (3 % of what is read of FP32, 13000x7168-g32, 6 % of 16 bits): the one
// where it begins, if the thread that has it is left with as much when it is done.
inline bool is_whole(const Job& job, const Wave& wave, const Span& span) {
  if (is_narrow(job.problem.cols) || span.rows <= job.plan.block_rows) return false;
  const int64_t stretch = (span.start - wave.start) / job.plan.task_rows;
  const int64_t run = run_of(wave.stretches, wave.runs, stretch);
  const int64_t left = run_begin(wave.stretches, wave.runs, run + 1) - stretch;
  return wave.runs == 1 || left >= 2 * ceil_div(span.rows, job.plan.task_rows);
}
inline bool is_joined(const Job& job, const Wave& wave, const Span& span) {
  return span.rows > job.plan.block_rows && !is_whole(job, wave, span);
}

// Columns [begin, end) of what begins in a stretch of a wave.
struct Task {
  int64_t stretch;
  int64_t begin, end;
};

// The tasks of a wave. Where rows are long and threads have stretches enough these have all
// columns, because parts of rows take longer; but the last stretch of each run is cut, so that no
// thread waits long for another one's last task. Two cores of Zen 5 by the faster pace of their
// memory, time beside that: all rows cut, 4000x7168-g8 f32 1.14, bf16 1.10, 6500x2880-g8 1.12 and
// 1.49; none cut, f32 13000x7168-g32 1.02, 32768x2880-g32 1.05.
class Tasks {
 public:
  Tasks(const Job& job, const Wave& wave) : wave_(wave), cols_(job.problem.cols) {
    const int64_t threads = aclgrad_threads();
    const bool cut = may_be_cut(job) && threads > 1;
    const int64_t enough = cut ? kEnoughStretches / kEndRanges : kEnoughStretches;
    const bool whole = threads == 1 || wave.stretches >= enough * threads;
    cuts_ends_ = whole && cut;
    ranges_ = cuts_ends_ ? kEndRanges : whole ? 1 : job.plan.column_tasks;
    width_ = cuts_ends_ ? round_up(ceil_div(cols_, kEndRanges), 32) : job.plan.task_cols;
  }

  int64_t count() const {
    return cuts_ends_ ? wave_.stretches + wave_.runs * (ranges_ - 1) : wave_.stretches * ranges_;
  }
  Task operator[](int64_t index) const {
    if (!cuts_ends_) return part(index / ranges_, index % ranges_);
    const int64_t run = run_of(count(), wave_.runs, index);
    const int64_t last = run_begin(wave_.stretches, wave_.runs, run + 1) - 1;
    const int64_t behind = run_begin(count(), wave_.runs, run + 1) - index;
    if (behind <= ranges_) return part(last, ranges_ - behind);
    return {last - (behind - ranges_), 0, cols_};
  }

 private:
  static constexpr int64_t kEndRanges = 4;
  // Tasks of a thread with which the last one is little beside all.
  static constexpr int64_t kEnoughStretches = 24;

  // Not where whole rows are written at once (write_single_rows(), the stage).
  static bool may_be_cut(const Job& job) {
    const Problem& problem = job.problem;
    return problem.cols >= kLongRow && !job.streaming && (problem.has_ends() || problem.rows > 1);
  }
  Task part(int64_t stretch, int64_t range) const {
    const int64_t begin = range * width_;
    return {stretch, begin, range + 1 == ranges_ ? cols_ : begin + width_};
  }

  const Wave& wave_;
  int64_t cols_;
  bool cuts_ends_;
  int64_t ranges_;  // of columns: of each stretch, or of the last one of each run
  int64_t width_;   // of them but the last
};

// Totals that one task joins: about 20 us of work.
inline constexpr int64_t kJoinTask = 32768;
inline constexpr int64_t kLeastJoinCols = 32;

// How joining the blocks of a wave is shared: ranges of columns, times parts of the groups.
struct JoinCut {
  int64_t cols = 0;    // of a range
  int64_t groups = 0;  // of a part
  int64_t parts = 0;
  int64_t tasks = 0;
};

inline JoinCut cut_join(const Job& job, const Wave& wave) {
  int64_t rows = 0;  // of totals
  if (job.plan.partial_rows > 0) {
    for (int64_t group = wave.first; group < wave.last; ++group) {
      const Span span = job.groups[group];
      if (is_joined(job, wave, span)) rows += blocks_of(span, job.plan);
    }
  }
  JoinCut cut;
  if (rows == 0) return cut;
  const int64_t cols = job.problem.cols;
  const int64_t wanted = ceil_div(rows * cols, kJoinTask);
  cut.cols = round_up(ceil_div(cols, wanted), kLeastJoinCols);
  const int64_t ranges = ceil_div(cols, cut.cols);
  const int64_t groups = wave.last - wave.first;
  cut.groups = ceil_div(groups, std::clamp(wanted / ranges, int64_t{1}, groups));
  cut.parts = ceil_div(groups, cut.groups);
  cut.tasks = ranges * cut.parts;
  return cut;
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_WAVE_H_

// SPDX-License-Identifier: Apache-2.0
// Long runs of a few table rows that share nearly all gradient rows among them, mixed: dy is read
// once, in its own order, and each row is added to the chain of its run. Run by run, every other
// row or so is left out, and what the hardware fetches of it is lost. The additions of an element,
// and their order, are the same (tree.h).

#if defined(ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_FEW_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_FEW_RUNS_INL_H_
#undef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_FEW_RUNS_INL_H_
#else
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_FEW_RUNS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/embedding_dense_backward/chains-inl.h"
#include "ops/embedding_dense_backward/sweep.h"
#include "ops/embedding_dense_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

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
template <class T>
inline constexpr int64_t kMostFewColumns = kMostFewBytesFarAhead / static_cast<int64_t>(sizeof(T));
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
inline int64_t few_stride(const Sweep& sweep) { return round_up(sweep.problem->cols, kVector); }

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
// a stream by itself (indices that rise or drift, or stretches of one index, 1.1 to 2.5 times as
// fast run by run).
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

// Whether threads that take shares by turns have about as many rows each, an eighth more at most: a
// run's last segment has up to twice the rows of the others (two cores of Granite Rapids,
// 36000x2x1024, 5 segments in 4 shares, 1.4 to 1.5 times the time run by run; 20000x2x1024 1.2
// to 1.4).
inline bool are_even(const Sweep& sweep, int64_t shares, int64_t rows) {
  const int64_t cols = sweep.problem->cols;
  const int64_t threads = aclgrad_threads();
  for (int64_t thread = 0; thread < threads; ++thread) {
    int64_t own = 0;
    for (int64_t share = thread; share < shares; share += threads) {
      for (int64_t r = 0; r < sweep.long_run_count; ++r) {
        const LongRun& run = sweep.long_runs[r];
        own += segment_begin(run, first_segment(run, share + 1, shares), cols) -
               segment_begin(run, first_segment(run, share, shares), cols);
      }
    }
    if (own > rows / threads / 8 * 9) return false;
  }
  return true;
}

// Whether rows are taken one by one: where those of a single stream are, too, or prefetches are
// taken; where they wait, FP32 as well (but 16-bit rows of 2 KiB and more 1.0 to 1.27 times the
// time run by run, two cores of Granite Rapids).
template <class T>
bool takes_rows_one_by_one(int64_t cols) {
  if (cols < kVector) return false;
  const bool waits = kPrefetchesWait && sizeof(T) == sizeof(float);
  return kTakesPrefetches || waits || reads_one_by_one<T>({0, static_cast<size_t>(cols)});
}

// In how many shares the long runs are summed in the order of dy; 0: they are not. Each share has
// whole segments of every run.
template <class T>
int64_t shares_of_few_runs(const Sweep& sweep) {
  const int64_t cols = sweep.problem->cols;
  const int64_t runs = sweep.long_run_count;
  const int64_t row_bytes = cols * static_cast<int64_t>(sizeof(T));
  if (runs < 2 || runs > std::min(kMostFewRuns, row_bytes / kLeastBytesOfRun)) return 0;
  if (runs * few_stride(sweep) * static_cast<int64_t>(sizeof(T)) > most_few_bytes()) return 0;
  if (!takes_rows_one_by_one<T>(cols)) return 0;
  if (!sweep.dy_rows.uniform() || sweep.dy_rows.stride() != cols) return 0;
  int64_t rows = 0, segments = std::numeric_limits<int64_t>::max();
  for (int64_t r = 0; r < runs; ++r) {
    const LongRun& run = sweep.long_runs[r];
    segments = std::min(segments, run.segments);
    rows += run.end - run.begin;
  }
  if (segments < 2) return 0;  // such a run has no partial sums
  // Rows between them that are none of theirs would be fetched for nothing.
  if (rows < sweep.problem->rows / 8 * 7) return 0;
  if (!are_mixed(sweep, kSharesOfThread * aclgrad_threads())) return 0;
  for (int64_t each = kSharesOfThread; each >= least_shares_of_thread(); each /= 2) {
    const int64_t shares = each * aclgrad_threads();
    if (segments >= shares && lie_together(sweep, shares) && are_even(sweep, shares, rows)) {
      return shares;
    }
  }
  return 0;
}

// What a share has of a run.
struct RunShare {
  int64_t next;     // entry that is not yet in a window
  int64_t end;      // of its entries
  int64_t segment;  // that is being added
  int64_t rows;     // of that segment
  int64_t added;    // rows of it
};

// Share `index` of `shares`: its segments go to their partial sums.
template <class T>
class FewRuns {
 public:
  FewRuns(const Sweep& sweep, int64_t index, int64_t shares)
      : sweep_(sweep), cols_(sweep.problem->cols), dy_(static_cast<const T*>(sweep.dy)) {
    for (int64_t r = 0; r < sweep.long_run_count; ++r) {
      const LongRun& run = sweep.long_runs[r];
      const int64_t first = first_segment(run, index, shares);
      const int64_t last = first_segment(run, index + 1, shares);
      runs_[r] = {begin_of(run, first), begin_of(run, last), first, rows_of(run, first), 0};
    }
  }

  void sum() {
    std::fill_n(run_at_, kWindow, kNone);
    for (int64_t begin = next_position(); begin < kEnd; begin = next_position()) {
      for (int64_t r = 0; r < sweep_.long_run_count; ++r) place(r, begin);
      for (int64_t i = 0; i < kWindow; ++i) {
        const uint8_t r = run_at_[i];
        if (r == kNone) continue;
        run_at_[i] = kNone;
        add_row(r, dy_ + (begin + i) * cols_);
      }
    }
  }

 private:
  static constexpr int64_t kWindow = 1024;  // gradient rows
  static constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  static constexpr uint8_t kNone = 255;
  static_assert(kMostFewRuns < kNone);

  int64_t begin_of(const LongRun& run, int64_t segment) const {
    return segment_begin(run, segment, cols_);
  }
  int64_t rows_of(const LongRun& run, int64_t segment) const {
    return begin_of(run, segment + 1) - begin_of(run, segment);
  }

  int64_t next_position() const {
    int64_t lowest = kEnd;
    for (int64_t r = 0; r < sweep_.long_run_count; ++r) {
      if (runs_[r].next < runs_[r].end) {
        lowest = std::min(lowest, sweep_.order.positions[runs_[r].next]);
      }
    }
    return lowest;
  }

  // Notes which rows of the window that begins at position `begin` are those of run r.
  void place(int64_t r, int64_t begin) {
    RunShare& run = runs_[r];
    const Numbers& positions = sweep_.order.positions;
    for (; run.next < run.end && positions[run.next] < begin + kWindow; ++run.next) {
      run_at_[positions[run.next] - begin] = static_cast<uint8_t>(r);
    }
  }

  void add_row(int64_t r, const T* row) {
    RunShare& run = runs_[r];
    float* chain = chains_ + r * few_stride(sweep_);
    double* totals = totals_ + r * few_stride(sweep_);
    constexpr auto kRows = static_cast<int64_t>(kChain);
    const float* before = run.added % kRows == 0 ? nullptr : chain;
    ++run.added;
    const auto add = [&](auto&& put) HWY_ATTR {
      if (kDropsPrefetches) {
        add_rows_to<1, Fetch::kEveryVector>(before, &row, cols_, ahead_of_short<T>(true, cols_),
                                            put);
      } else {
        add_rows_to<1, Fetch::kStream>(before, &row, cols_, kAheadOfStream<T>, put);
      }
    };
    if (run.added % kRows != 0 && run.added != run.rows) {
      add([&](int64_t place, int64_t, const F32x16& sum)
              HWY_ATTR { store_raw(sum, chain + place); });
    } else if (run.added <= kRows) {
      add([&](int64_t place, int64_t, const F32x16& sum) HWY_ATTR { set_to(totals + place, sum); });
    } else {
      add(adding_to(totals));
    }
    if (run.added == run.rows) finish_segment(run, sweep_.long_runs[r], totals);
  }

  void finish_segment(RunShare& run, const LongRun& whole, double* totals) {
    align_totals(totals, cols_);
    std::copy_n(totals, cols_, sweep_.partial(whole.first_partial + run.segment));
    ++run.segment;
    run.added = 0;
    if (run.segment < whole.segments) run.rows = rows_of(whole, run.segment);
  }

  const Sweep& sweep_;
  const int64_t cols_;
  const T* const dy_;
  RunShare runs_[kMostFewRuns];
  uint8_t run_at_[kWindow];  // of each row of the window
  alignas(64) float chains_[kMostFewColumns<T>];
  alignas(64) double totals_[kMostFewColumns<T>];
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace aclgrad::embedding_dense_backward
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard

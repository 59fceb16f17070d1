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

#include "kernels/cpu/row_sums-inl.h"
#include "kernels/cpu/sums-inl.h"
#include "ops/embedding_dense_backward/chains-inl.h"
#include "ops/embedding_dense_backward/few_runs.h"
#include "ops/embedding_dense_backward/sweep.h"
#include "ops/embedding_dense_backward/tree.h"

HWY_BEFORE_NAMESPACE();
namespace aclgrad::embedding_dense_backward {
namespace HWY_NAMESPACE {
namespace {

using namespace aclgrad::HWY_NAMESPACE;

template <class T>
inline constexpr int64_t kMostFewColumns = kMostFewBytesFarAhead / static_cast<int64_t>(sizeof(T));

// Whether rows are taken one by one: where those of a single stream are, too, or prefetches are
// taken; where they wait, FP32 as well (but 16-bit rows of 2 KiB and more 1.0 to 1.27 times the
// time run by run, two cores of Granite Rapids).
template <class T>
bool takes_rows_one_by_one(int64_t cols) {
  if (cols < kVector) return false;
  const bool waits = kPrefetchesWait && sizeof(T) == sizeof(float);
  return kTakesPrefetches || waits || reads_one_by_one<T>({0, static_cast<size_t>(cols)});
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

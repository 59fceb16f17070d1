// SPDX-License-Identifier: Apache-2.0
// Times a problem in rounds: roofs, the operator and its rivals by turns, so that whatever else the
// machine does hits all of them alike. What is compared is the median of the rounds' ratios, never
// a single time: shared memory that is slow for some seconds is slow for both sides of a ratio.
#ifndef ACLGRAD_BENCH_MEASURE_H_
#define ACLGRAD_BENCH_MEASURE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/device_clock.h"
#include "bench/rival.h"

namespace aclgrad::bench {

struct Effort {
  int rounds = 9;
  double round_seconds = 0.02;  // a turn repeats short problems until it took that long
  // How long a problem may be waited for, and measured again, while the machine is not calm.
  double patience_seconds = 5;
  bool cached = false;  // one copy of the data, however small
};

// Whether the threads have the machine for themselves. Where another program has a part of it, or a
// host lets two virtual processors share a core, all threads together compute slower than they did
// before. (Who else uses the memory is not seen.)
class Calm {
 public:
  bool now();

 private:
  double best_flops_ = 0;
};

// Seconds of one call: median and the times that a fifth of the rounds stayed under and went over.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};
Spread spread_of(std::vector<double> seconds);

struct RivalTiming {
  std::optional<Spread> call;  // empty: it has no such problem
  double ratio = 0;            // times as long as the operator
  std::string way;             // how it computes it, or why it does not
};

struct Timing {
  Spread call;  // both phases and the synchronise (see Subject::seconds); the workspace is kept
  // What moving as many bytes takes: half of them read and half written; all of them read; and two
  // thirds read, a third written.
  double copy_seconds = 0, read_seconds = 0, add_seconds = 0;
  double share = 0;                 // of the problem's roof
  std::vector<RivalTiming> rivals;  // in the rivals' order
  int rounds = 0;
  int disturbed_rounds = 0;  // that count though the machine was not calm
  int64_t workspace_bytes = 0;
  // What the first call adds to the process, on a GPU to the device's memory in use, the workspace
  // included.
  int64_t peak_bytes = 0;
};

// Runs one operator's problem, in one copy or in several by turns.
class Subject {
 public:
  Subject(const Operator& op, aclDataType dtype, const std::string& shape);
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;
  ~Subject();

  // Both phases and the synchronise of the next copy; and each of them apart, of the copy that
  // call() would take next. All throw as require() does.
  void call();
  aclOpExecutor* plan();
  void execute(aclOpExecutor* executor);
  void wait();

  // Seconds of each of `repeats` calls, on average. On a GPU by its own clock, from the beginning
  // of the first to the end of the last; none is waited for.
  double seconds(int repeats);

  const Problem& problem() const { return copies_[0]; }
  size_t copies() const { return copies_.size(); }
  void make_copies(size_t copies);  // so many in all
  // Of the tensors of one.
  int64_t copy_bytes() const { return copy_bytes_; }
  void touch_workspace();  // on the host
  int64_t workspace_bytes() const { return static_cast<int64_t>(workspace_bytes_); }

 private:
  void hand_over();

  std::function<Problem()> make_;
  std::vector<Problem> copies_;
  int64_t copy_bytes_ = 0;
  size_t next_ = 0;
  std::unique_ptr<DeviceClock> clock_;  // of a GPU
  aclrtStream stream_ = nullptr;
  void* workspace_ = nullptr;
  uint64_t workspace_bytes_ = 0;
};

// So many copies leave the caches together; fewer, which is said on the standard error, where
// `programs` that hold as many would take more than half of the memory.
size_t copies_beyond_caches(const std::string& name, const Subject& subject, size_t programs);

// Seconds of each of `repeats` calls, on average, by the clock of the host.
double seconds_of(const std::function<void()>& call, int repeats);

// `name` is the problem's, for the rivals. One that ends is given up, with a message on the
// standard error.
Timing measure(const std::string& name, Subject& subject,
               const std::vector<std::unique_ptr<Rival>>& rivals, const Effort& effort, Calm& calm);

}  // namespace aclgrad::bench

#endif  // ACLGRAD_BENCH_MEASURE_H_

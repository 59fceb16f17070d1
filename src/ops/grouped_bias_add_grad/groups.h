// SPDX-License-Identifier: Apache-2.0
// Where the groups lie: their rows, and their places on the line of work. Ends are read and judged
// when the task runs, because they live on the device.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_GROUPS_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_GROUPS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/checked.h"
#include "ops/grouped_bias_add_grad/problem.h"

namespace aclgrad::grouped_bias_add_grad {

struct Span {
  int64_t first;  // first row
  int64_t rows;
  int64_t start;  // on the line of work
  int64_t slot;   // of its first block's totals, where it has several blocks
};

inline int64_t blocks_of(const Span& span, const Plan& plan) {
  return std::max(int64_t{1}, ceil_div(span.rows, plan.block_rows));
}

// All groups, and one behind the last that only has a start. Equal groups are computed, others
// looked up.
class Groups {
 public:
  Groups(const Problem& problem, const Plan& plan, const Span* spans)
      : problem_(problem), plan_(plan), spans_(spans) {}

  Span operator[](int64_t group) const {
    if (spans_ != nullptr) return spans_[group];
    const int64_t blocks = ceil_div(problem_.rows, plan_.block_rows);
    return {0, problem_.rows, group * (problem_.rows + plan_.group_cost), group * blocks};
  }

  // The last group of those from `first` to before `end` that starts at `position` or before.
  int64_t at(int64_t position, int64_t first, int64_t end) const {
    if (spans_ == nullptr) return position / (problem_.rows + plan_.group_cost);
    const auto after = [](int64_t place, const Span& span) { return place < span.start; };
    return std::upper_bound(spans_ + first, spans_ + end, position, after) - spans_ - 1;
  }

  // Groups are done in waves, as many at a time as have room for their blocks' totals: with good
  // ends that is all of them, bad ones may name the same rows many times.
  int64_t wave_end(int64_t first) const {
    if (spans_ == nullptr) return problem_.groups;
    bool some = false;
    for (int64_t group = first; group < problem_.groups; ++group) {
      if (spans_[group].rows <= plan_.block_rows) continue;
      if (some && spans_[group].slot == 0) return group;
      some = true;
    }
    return problem_.groups;
  }

 private:
  const Problem& problem_;
  const Plan& plan_;
  const Span* spans_;
};

// Reads ends into spans[0 .. groups]: each group has the rows between the end before and its own,
// both clamped to the rows there are. Returns the first violation.
class EndReader {
 public:
  EndReader(const Problem& problem, const void* ends) : problem_(problem), ends_(ends) {}

  BadEnd place(const Plan& plan, Span* spans) {
    int64_t start = 0;
    int64_t slot = 0;
    int64_t previous = 0;
    for (int64_t group = 0; group < problem_.groups; ++group) {
      const int64_t end = next(group, previous);
      const int64_t first = std::clamp(previous, int64_t{0}, problem_.rows);
      const int64_t rows = std::clamp(end, first, problem_.rows) - first;
      Span& span = spans[group];
      span = {first, rows, start, 0};
      if (rows > plan.block_rows) {
        const int64_t blocks = blocks_of(span, plan);
        if (slot + blocks > plan.partial_rows) slot = 0;
        span.slot = slot;
        slot += blocks;
      }
      start = saturating_sum(start, rows + plan.group_cost);
      previous = end;
    }
    spans[problem_.groups] = {0, 0, start, 0};
    return bad_;
  }

 private:
  static constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

  int64_t value(int64_t group) const {
    const int64_t at = group * problem_.ends.strides[0];
    return problem_.ends.dtype == ACL_INT64 ? static_cast<const int64_t*>(ends_)[at]
                                            : static_cast<const int32_t*>(ends_)[at];
  }

  static int64_t saturating_sum(int64_t a, int64_t b) {
    const std::optional<int64_t> sum = checked_sum(a, b);
    using Limits = std::numeric_limits<int64_t>;
    return sum.value_or(b < 0 ? Limits::min() : Limits::max());
  }

  int64_t next(int64_t group, int64_t previous) {
    const int64_t given = value(group);
    const int64_t end = problem_.ends_are_sizes ? saturating_sum(previous, given) : given;
    if (bad_.rule == BadEnd::Rule::kNone) {
      const bool last = group + 1 == problem_.groups;
      bad_ = {judge(given, end, previous, last), group, given, end, previous};
    }
    return end;
  }

  BadEnd::Rule judge(int64_t given, int64_t end, int64_t previous, bool last) const {
    if (given < 0) return BadEnd::Rule::kNegative;
    if (end > kLargest) return BadEnd::Rule::kTooLarge;
    if (end < previous) return BadEnd::Rule::kDecreasing;
    return last && end != problem_.rows ? BadEnd::Rule::kNotLast : BadEnd::Rule::kNone;
  }

  const Problem& problem_;
  const void* ends_;
  BadEnd bad_;
};

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_GROUPS_H_

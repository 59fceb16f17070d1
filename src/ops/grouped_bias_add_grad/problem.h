// SPDX-License-Identifier: Apache-2.0
// GroupedBiasAddGrad: the gradient of a bias that was added to groups of rows,
//
//   with ends:     dbias[j, :] = sum of dy[i, :], end[j-1] <= i < end[j], end[-1] = 0
//   without ends:  dbias[j, :] = sum over r of dy[j, r, :]
//
// Contract name -> name here: gradY dy, groupIdxOptional ends, groupIdxType ends_are_sizes, out
// dbias; T (or C) rows, G groups, H cols.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PROBLEM_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PROBLEM_H_

#include <cstdint>

#include "aclnn/acl_meta.h"
#include "base/device_record.h"
#include "base/status.h"
#include "base/view.h"
#include "kernels/cuda/queue.h"

namespace aclgrad {
class Launch;
}

namespace aclgrad::grouped_bias_add_grad {

// Plain data: what to compute, no addresses.
struct Problem {
  View dy;     // [rows, cols] with ends, [groups, rows, cols] without; last dimension dense
  View ends;   // [groups], any stride; dtype undefined when absent
  View dbias;  // [groups, cols]; last dimension dense
  int64_t groups = 0;
  int64_t rows = 0;  // of all groups with ends, of each group without
  int64_t cols = 0;
  bool ends_are_sizes = false;

  bool has_ends() const { return ends.dtype != ACL_DT_UNDEFINED; }
  int64_t row_stride() const { return dy.strides[has_ends() ? 0 : 1]; }
  int64_t group_stride() const { return has_ends() ? 0 : dy.strides[0]; }
};

// Rows of up to so many elements are short: a chain's sums are in registers.
inline constexpr int64_t kShortRow = 64;
// Rows of so many elements are long: where there are few, ranges of their columns are shared.
inline constexpr int64_t kLongRow = 2080;

// How it is cut, from the shape alone; run_cpu() leaves rows whole where threads have enough to do.
// The groups stand one after the other on a line of work,
// measured in rows; a task does what begins in one stretch of the line, in one range of columns.
struct Plan {
  int64_t block_rows = 0;    // rows of a block
  int64_t group_cost = 0;    // what a group costs besides its rows, in rows
  int64_t task_rows = 0;     // stretch of the line that is one task
  int64_t task_cols = 0;     // columns of one task; the last has up to 15 more
  int64_t column_tasks = 0;  // ranges of columns
  int64_t partial_rows = 0;  // blocks of groups with several, at most

  // Bytes of workspace regions; 0: not needed.
  int64_t span_bytes = 0;     // where the groups lie
  int64_t partial_bytes = 0;  // double [partial_rows][cols]: totals of blocks
};
Plan make_plan(const Problem& problem);

// Addresses of one run. Absent ones are null.
struct Addresses {
  const void *dy = nullptr, *ends = nullptr;
  void* dbias = nullptr;
  void *spans = nullptr, *partials = nullptr;
};

// The first entry of ends that breaks a rule.
struct BadEnd {
  enum class Rule {
    kNone,        // all are good
    kNegative,    // an end or size below 0
    kTooLarge,    // an end, or a sum of sizes, over INT32's maximum
    kDecreasing,  // an end below the one before
    kNotLast,     // the last end is not the number of rows
  };
  Rule rule = Rule::kNone;
  int64_t position = 0;
  int64_t value = 0;  // of the entry
  int64_t end = 0;    // where its group ends
  int64_t least = 0;  // kDecreasing: the end before
};

// Writes every element of dbias; groups with bad ends sum the rows that lie between them.
BadEnd run_cpu(const Problem& problem, const Plan& plan, const Addresses& at);
// Leaves a bad end in `record`: rule, then position, value, end and least.
CudaAnswer run_cuda(const Problem& problem, const Plan& plan, const Addresses& at,
                    DeviceRecord* record, const CudaQueue& queue);

// The arguments of phase one, as they came.
struct Arguments {
  const char* op;  // V1 or V2
  const aclTensor *grad_y, *group_idx;
  int64_t group_idx_type;
  const aclTensor* out;
  const uint64_t* workspace_size;
  aclOpExecutor* const* executor;
};
// Checks the arguments in the documented order and fills the launch, or refuses.
Status parse(const Arguments& arguments, Launch& launch);

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_PROBLEM_H_

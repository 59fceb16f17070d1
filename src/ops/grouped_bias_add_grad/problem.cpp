// SPDX-License-Identifier: Apache-2.0
#include "ops/grouped_bias_add_grad/problem.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string>

#include "base/checked.h"
#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/grouped_bias_add_grad/groups.h"
#include "ops/grouped_bias_add_grad/tree.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"

namespace aclgrad::grouped_bias_add_grad {
namespace {

constexpr int64_t kMaxGroups = 2048;  // with ends; the contract's limit

// Elements of one task: about 20 us of one core's work, so that a smaller problem is not shared.
constexpr int64_t kTask = 131072;

// Tasks that a problem should have if its size allows: columns are shared only where rows do not
// suffice, because reading stretches of rows costs a third of the speed (2-core Zen 4, FP32 rows of
// 11.5 KB in stretches of 4 KB), and never under kLeastCols columns.
constexpr int64_t kEnoughTasks = 64;
constexpr int64_t kLeastCols = 512;

// What a group of narrow rows costs besides these, in rows.
constexpr int64_t kNarrowGroup = 4;

// Everything phase one reads of the arguments.
struct Inputs {
  Operand dy, ends, dbias;
};

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(in.op, "gradY", in.grad_y)) return s;
  if (Status s = check::not_null(in.op, "out", in.out)) return s;
  return check_outputs(in.op, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(in.op, "gradY", in.grad_y, out.dy)) return s;
  if (Status s = read_tensor(in.op, "groupIdxOptional", in.group_idx, out.ends)) return s;
  return read_tensor(in.op, "out", in.out, out.dbias);
}

Status check_dtypes(const char* op, const Inputs& in) {
  if (Status s = check::dtype(op, in.dy, {ACL_FLOAT, ACL_FLOAT16, ACL_BF16})) return s;
  if (in.ends.given()) {
    if (Status s = check::dtype(op, in.ends, {ACL_INT32, ACL_INT64})) return s;
  }
  return check::same_dtype(op, in.dbias, in.dy);
}

Status check_formats(const char* op, const Inputs& in) {
  for (const Operand* operand : {&in.dy, &in.ends, &in.dbias}) {
    if (!operand->given()) continue;
    if (Status s = check::format(op, *operand)) return s;
  }
  return kOk;
}

Status check_ranks(const char* op, const Inputs& in) {
  const uint64_t rank = in.ends.given() ? 2 : 3;
  if (in.dy.rank != rank) {
    return fail(kParamInvalid, "%s: gradY has shape %s; expected %llu dimensions %s", op,
                shape_text(in.dy).c_str(), static_cast<unsigned long long>(rank),
                in.ends.given() ? "([T,H]), because groupIdxOptional is given"
                                : "([G,C,H]), because groupIdxOptional is null");
  }
  if (Status s = check::rank(op, in.dy, rank, rank)) return s;
  if (in.ends.given()) {
    if (Status s = check::rank(op, in.ends, 1, 1)) return s;
  }
  return check::rank(op, in.dbias, 2, 2);
}

Status check_shapes(const char* op, const Inputs& in) {
  if (!in.ends.given()) {
    return check::shape(op, in.dbias, std::array{in.dy.dim(0), in.dy.last_dim()},
                        "the first and the last dimension of gradY");
  }
  if (in.ends.dim(0) > kMaxGroups) {
    return fail(kParamInvalid, "%s: groupIdxOptional has shape %s; expected at most %lld entries",
                op, shape_text(in.ends).c_str(), static_cast<long long>(kMaxGroups));
  }
  return check::shape(op, in.dbias, std::array{in.ends.dim(0), in.dy.last_dim()},
                      "the entries of groupIdxOptional and the last dimension of gradY");
}

Status check_all(const Arguments& arguments, Inputs& in) {
  const char* op = arguments.op;
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(op, in)) return s;
  if (Status s = check_formats(op, in)) return s;
  if (Status s = check_ranks(op, in)) return s;
  if (Status s = check_shapes(op, in)) return s;
  if (arguments.group_idx_type != 0 && arguments.group_idx_type != 1) {
    return fail(kParamInvalid, "%s: groupIdxType is %lld; expected 0 (ends) or 1 (sizes)", op,
                static_cast<long long>(arguments.group_idx_type));
  }
  if (Status s = check::sizes(op, in.dy)) return s;
  if (in.ends.given()) {
    if (Status s = check::sizes(op, in.ends)) return s;
  }
  return check::sizes(op, in.dbias);
}

// "grouped_bias_add_grad/f16/32768x2880-g32" with ends, ".../32x1024x2880" without.
std::string problem_name(const Problem& problem) {
  std::string name = std::string("grouped_bias_add_grad/") + dtype_short_name(problem.dy.dtype);
  const std::string rows = std::to_string(problem.rows) + "x" + std::to_string(problem.cols);
  const std::string groups = std::to_string(problem.groups);
  return name + (problem.has_ends() ? "/" + rows + "-g" + groups : "/" + groups + "x" + rows);
}

double bytes_moved(const Problem& problem) {
  const auto size = [](const View& view) { return static_cast<double>(dtype_size(view.dtype)); };
  const auto groups = static_cast<double>(problem.groups);
  const double elements =
      static_cast<double>(problem.dy.numel()) + groups * static_cast<double>(problem.cols);
  return elements * size(problem.dy) + groups * size(problem.ends);
}

std::string text_of(const char* op, const Problem& problem, const BadEnd& bad) {
  const auto number = [](int64_t value) { return static_cast<long long>(value); };
  constexpr auto kLargest = static_cast<long long>(std::numeric_limits<int32_t>::max());
  const bool sizes = problem.ends_are_sizes;
  char expected[160] = "";
  switch (bad.rule) {
    case BadEnd::Rule::kNone:
      break;
    case BadEnd::Rule::kNegative:
      std::snprintf(expected, sizeof(expected), "; expected 0 to %lld", kLargest);
      break;
    case BadEnd::Rule::kTooLarge:
      std::snprintf(
          expected, sizeof(expected),
          sizes ? "; expected sizes that add up to at most %lld" : "; expected at most %lld",
          kLargest);
      break;
    case BadEnd::Rule::kDecreasing:
      std::snprintf(expected, sizeof(expected), "; expected at least %lld, the end before it",
                    number(bad.least));
      break;
    case BadEnd::Rule::kNotLast:
      if (sizes) {
        std::snprintf(expected, sizeof(expected),
                      " and ends at %lld; expected %lld, the rows of gradY", number(bad.end),
                      number(problem.rows));
      } else {
        std::snprintf(expected, sizeof(expected),
                      " and is the last; expected %lld, the rows of gradY", number(problem.rows));
      }
      break;
  }
  char text[320];
  std::snprintf(text, sizeof(text), "%s: groupIdxOptional holds %lld at position %lld%s", op,
                number(bad.value), number(bad.position), expected);
  return text;
}

// Without memory for the text the task still counts as failed.
void report(DataErrors& errors, const char* op, const Problem& problem,
            const BadEnd& bad) noexcept {
  try {
    errors.report(text_of(op, problem, bad));
  } catch (...) {
    errors.report(std::string());
  }
}

// The closed call.
struct Call {
  Problem problem;
  Plan plan;
  const char* op;
  int dy, ends, dbias;
  int spans, partials;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.dy = run.address(dy);
    at.ends = run.address(ends);
    at.dbias = run.address(dbias);
    at.spans = run.region(spans);
    at.partials = run.region(partials);
    return at;
  }
  void operator()(const Run& run) const {
    const BadEnd bad = run_cpu(problem, plan, addresses(run));
    if (bad.rule != BadEnd::Rule::kNone) report(run.errors(), op, problem, bad);
  }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, plan, addresses(run), run.record(), run.queue());
  }
  void explain(const DeviceRecord& found, DataErrors& errors) const {
    const BadEnd bad{static_cast<BadEnd::Rule>(found.rule), found.numbers[0], found.numbers[1],
                     found.numbers[2], found.numbers[3]};
    report(errors, op, problem, bad);
  }
};

}  // namespace

Plan make_plan(const Problem& problem) {
  Plan plan;
  const int64_t cols = problem.cols;
  plan.block_rows = block_rows(cols, static_cast<int64_t>(dtype_size(problem.dy.dtype)));
  plan.group_cost = is_narrow(cols) ? kNarrowGroup : 4 + kLeastCols / cols;
  const int64_t rows = problem.has_ends() ? problem.rows : problem.groups * problem.rows;
  // The cap keeps the sum in range for shapes that no memory holds.
  const int64_t line = rows + std::min(problem.groups, int64_t{1} << 32) * plan.group_cost;
  plan.task_rows = std::max(plan.block_rows, ceil_div(kTask, cols));
  const int64_t least_cols = std::max(kLeastCols, ceil_div(kTask, std::min(line, plan.task_rows)));
  const int64_t wanted = ceil_div(kEnoughTasks, ceil_div(line, plan.task_rows));
  plan.column_tasks = cols < kLongRow ? 1 : std::clamp(cols / least_cols, int64_t{1}, wanted);
  plan.task_cols = round_up(ceil_div(cols, plan.column_tasks), 32);
  // The last range has sixteen columns at least, or all.
  plan.column_tasks =
      std::max(int64_t{1}, ceil_div(cols - static_cast<int64_t>(kLanes) + 1, plan.task_cols));

  const int64_t blocks = ceil_div(problem.rows, plan.block_rows);
  if (blocks > 1) {
    // Good ends: the groups of several blocks have at most rows / block_rows + 1 block each.
    plan.partial_rows = problem.has_ends()
                            ? problem.rows / plan.block_rows +
                                  std::min(problem.groups, problem.rows / (plan.block_rows + 1))
                            : problem.groups * blocks;
    plan.partial_bytes =
        saturating_product({plan.partial_rows, cols, static_cast<int64_t>(sizeof(double))});
  }
  if (problem.has_ends()) {
    plan.span_bytes = (problem.groups + 1) * static_cast<int64_t>(sizeof(Span));
  }
  return plan;
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  if (Status s = check_all(arguments, in)) return s;

  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  call.op = arguments.op;
  call.dy = launch.input(in.dy, rows_of(1), &problem.dy);
  call.ends = launch.input(in.ends, kAnyStrides, &problem.ends);
  call.dbias = launch.output(in.dbias, rows_of(1), &problem.dbias);
  problem.groups = in.dbias.dim(0);
  problem.rows = in.dy.dim(in.ends.given() ? 0 : 1);
  problem.cols = in.dbias.dim(1);
  problem.ends_are_sizes = arguments.group_idx_type == 1;

  if (aclgrad_verbose()) {
    launch.describe(problem_name(problem), bytes_moved(problem), aclgrad_active_target());
  }
  if (problem.groups == 0 || problem.cols == 0) return kOk;

  call.plan = make_plan(problem);
  call.spans = launch.book(call.plan.span_bytes);
  call.partials = launch.book(call.plan.partial_bytes);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::grouped_bias_add_grad

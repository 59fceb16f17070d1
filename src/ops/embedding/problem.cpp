// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding/problem.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>
#include <string>

#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/embedding/tree.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"

namespace aclgrad::embedding {
namespace {

constexpr const char* kOp = "aclnnEmbedding";

// Everything phase one reads of the arguments.
struct Inputs {
  Operand table, indices, y;
};

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(kOp, "weight", in.weight)) return s;
  if (Status s = check::not_null(kOp, "indices", in.indices)) return s;
  if (Status s = check::not_null(kOp, "out", in.out)) return s;
  return check_outputs(kOp, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(kOp, "weight", in.weight, out.table)) return s;
  if (Status s = read_tensor(kOp, "indices", in.indices, out.indices)) return s;
  return read_tensor(kOp, "out", in.out, out.y);
}

Status check_dtypes(const Inputs& in) {
  if (Status s =
          check::dtype(kOp, in.table,
                       {ACL_BF16, ACL_FLOAT, ACL_FLOAT16, ACL_INT64, ACL_INT32, ACL_INT16, ACL_INT8,
                        ACL_UINT8, ACL_BOOL, ACL_DOUBLE, ACL_COMPLEX64, ACL_COMPLEX128})) {
    return s;
  }
  if (Status s = check::dtype(kOp, in.indices, {ACL_INT32, ACL_INT64})) return s;
  return check::same_dtype(kOp, in.y, in.table);
}

Status check_ranks(const Inputs& in) {
  if (Status s = check::rank(kOp, in.table, 2, 2)) return s;
  if (Status s = check::rank(kOp, in.indices, 0, kMaxRank - 1)) return s;
  return check::rank(kOp, in.y, 1, kMaxRank);
}

Status check_shapes(const Inputs& in) {
  std::array<int64_t, kMaxRank> expected = in.indices.dims;
  expected[in.indices.rank] = in.table.last_dim();
  return check::shape(kOp, in.y, std::span(expected.data(), in.indices.rank + 1),
                      "the shape of indices and the last dimension of weight");
}

Status check_all(const Arguments& arguments, Inputs& in) {
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(in)) return s;
  for (const Operand* operand : {&in.table, &in.indices, &in.y}) {
    if (Status s = check::format(kOp, *operand)) return s;
  }
  if (Status s = check_ranks(in)) return s;
  if (Status s = check_shapes(in)) return s;
  for (const Operand* operand : {&in.table, &in.indices, &in.y}) {
    if (Status s = check::sizes(kOp, *operand)) return s;
  }
  return kOk;
}

int64_t size_of(const View& view) { return static_cast<int64_t>(dtype_size(view.dtype)); }

std::string problem_name(const Problem& problem) {
  return std::string("embedding/") + dtype_short_name(problem.table.dtype) + "/" +
         std::to_string(problem.rows) + "x" + std::to_string(problem.table_rows) + "x" +
         std::to_string(problem.cols);
}

// A table row that is looked up again comes from the cache: of the table no more is read than it
// has.
double bytes_moved(const Problem& problem) {
  const auto rows = static_cast<double>(problem.rows);
  const auto table_rows = static_cast<double>(problem.table_rows);
  const auto cols = static_cast<double>(problem.cols);
  return (std::min(rows, table_rows) + rows) * cols * static_cast<double>(size_of(problem.table)) +
         rows * static_cast<double>(size_of(problem.indices));
}

// Without memory for the text the task still counts as failed.
void report(DataErrors& errors, const Problem& problem, const BadIndex& bad) noexcept {
  char text[256];
  std::snprintf(text, sizeof(text),
                "%s: indices holds %lld at position %lld; expected 0 <= index < %lld", kOp,
                static_cast<long long>(bad.value), static_cast<long long>(bad.position),
                static_cast<long long>(problem.table_rows));
  try {
    errors.report(text);
  } catch (...) {
    errors.report(std::string());
  }
}

// The closed call.
struct Call {
  Problem problem;
  Plan plan;
  int table, indices, y;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.table = run.address(table);
    at.indices = run.address(indices);
    at.y = run.address(y);
    return at;
  }
  void operator()(const Run& run) const {
    const BadIndex bad = run_cpu(problem, plan, addresses(run));
    if (bad.position >= 0) report(run.errors(), problem, bad);
  }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, addresses(run), run.record(), run.queue());
  }
  void explain(const DeviceRecord& found, DataErrors& errors) const {
    report(errors, problem, {found.numbers[0], found.numbers[1]});
  }
};

}  // namespace

Plan make_plan(const Problem& problem) {
  Plan plan;
  const int64_t row_bytes = problem.cols * size_of(problem.table);
  plan.block_rows = block_rows(problem.rows, row_bytes);
  plan.blocks = ceil_div(problem.rows, plan.block_rows);
  plan.panels = ceil_div(row_bytes, kPanelBytes);
  return plan;
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  if (Status s = check_all(arguments, in)) return s;

  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  problem.rows = in.indices.numel();
  problem.cols = in.table.last_dim();
  problem.table_rows = in.table.dim(0);
  call.table = launch.input(in.table, rows_of(1), &problem.table);
  call.indices = launch.input(in.indices, kAnyStrides, &problem.indices);
  call.y = launch.output(in.y, rows_of(1), &problem.y);

  if (aclgrad_verbose()) {
    launch.describe(problem_name(problem), bytes_moved(problem), aclgrad_active_target());
  }
  if (problem.rows == 0 || problem.cols == 0) return kOk;

  call.plan = make_plan(problem);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::embedding

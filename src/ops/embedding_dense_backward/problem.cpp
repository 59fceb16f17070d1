// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding_dense_backward/problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <span>
#include <string>

#include "base/checked.h"
#include "base/verbose.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "ops/embedding_dense_backward/buckets.h"
#include "ops/embedding_dense_backward/order.h"
#include "ops/embedding_dense_backward/owners.h"
#include "ops/embedding_dense_backward/sweep.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"

namespace aclgrad::embedding_dense_backward {
namespace {

constexpr const char* kOp = "aclnnEmbeddingDenseBackward";

// Everything phase one reads of the arguments.
struct Inputs {
  Operand dy, indices, dw;
  int64_t rows = 1;  // product of all but the last dimension of dy
};

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(kOp, "grad", in.grad)) return s;
  if (Status s = check::not_null(kOp, "indices", in.indices)) return s;
  if (Status s = check::not_null(kOp, "out", in.out)) return s;
  return check_outputs(kOp, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(kOp, "grad", in.grad, out.dy)) return s;
  if (Status s = read_tensor(kOp, "indices", in.indices, out.indices)) return s;
  return read_tensor(kOp, "out", in.out, out.dw);
}

Status check_dtypes(const Inputs& in) {
  const auto floats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
  if (Status s = check::dtype(kOp, in.dy, floats)) return s;
  if (Status s = check::dtype(kOp, in.indices,
                              {ACL_FLOAT, ACL_FLOAT16, ACL_DOUBLE, ACL_INT32, ACL_INT64, ACL_INT16,
                               ACL_INT8, ACL_UINT8, ACL_BOOL})) {
    return s;
  }
  return check::dtype(kOp, in.dw, floats);
}

Status check_ranks(const Inputs& in) {
  if (Status s = check::rank(kOp, in.dy, 1, kMaxRank)) return s;
  if (Status s = check::rank(kOp, in.indices, 0, kMaxRank)) return s;
  return check::rank(kOp, in.dw, 2, 2);
}

Status check_shapes(const Arguments& arguments, Inputs& in) {
  if (Status s = check::sizes(kOp, in.dy)) return s;
  in.rows = saturating_product(std::span(in.dy.dims.data(), in.dy.rank - 1));
  const int64_t cols = in.dy.last_dim();
  if (cols != 0 && in.indices.numel() != in.rows) {
    return check::numel(kOp, in.indices, in.rows, "one per row of grad", in.dy);
  }
  if (arguments.num_weights > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return fail(kParamInvalid,
                "%s: out has shape %s; expected numWeights rows, and numWeights is %llu", kOp,
                shape_text(in.dw).c_str(), static_cast<unsigned long long>(arguments.num_weights));
  }
  const std::array expected = {static_cast<int64_t>(arguments.num_weights), cols};
  return check::shape(kOp, in.dw, expected, "numWeights and the last dimension of grad");
}

Status check_all(const Arguments& arguments, Inputs& in) {
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(in)) return s;
  for (const Operand* operand : {&in.dy, &in.indices, &in.dw}) {
    if (Status s = check::format(kOp, *operand)) return s;
  }
  if (Status s = check_ranks(in)) return s;
  if (Status s = check_shapes(arguments, in)) return s;
  if (Status s = check::sizes(kOp, in.indices)) return s;
  return check::sizes(kOp, in.dw);
}

std::string problem_name(const Problem& problem) {
  return std::string("embedding_dense_backward/") + dtype_short_name(problem.dy.dtype) + "/" +
         std::to_string(problem.rows) + "x" + std::to_string(problem.table_rows) + "x" +
         std::to_string(problem.cols);
}

double bytes_moved(const Problem& problem) {
  const auto size = [](const View& view) { return static_cast<double>(dtype_size(view.dtype)); };
  const auto rows = static_cast<double>(problem.rows);
  const auto cols = static_cast<double>(problem.cols);
  return rows * cols * size(problem.dy) +
         static_cast<double>(problem.indices.numel()) * size(problem.indices) +
         static_cast<double>(problem.table_rows) * cols * size(problem.dw);
}

// Without memory for the text the task still counts as failed.
void report(DataErrors& errors, const Problem& problem, const BadIndex& bad) noexcept {
  const aclDataType dtype = problem.indices.dtype;
  char value[32];
  if (is_float_dtype(dtype) || dtype == ACL_DOUBLE) {
    const double shown =
        std::isnan(bad.floating) ? std::abs(bad.floating) : bad.floating;  // no -nan
    std::snprintf(value, sizeof(value), "%.*g", dtype == ACL_DOUBLE ? 17 : 9, shown);
  } else {
    std::snprintf(value, sizeof(value), "%lld", static_cast<long long>(bad.integer));
  }
  char text[256];
  std::snprintf(text, sizeof(text),
                "%s: indices holds %s at position %lld; expected 0 <= index < %lld", kOp, value,
                static_cast<long long>(bad.position), static_cast<long long>(problem.table_rows));
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
  int dy, indices, dw;
  int first_buffer, second_buffer, histograms, bucket_scratch;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.dy = run.address(dy);
    at.indices = run.address(indices);
    at.dw = run.address(dw);
    at.buffers = {run.region(first_buffer), run.region(second_buffer)};
    at.histograms = run.region(histograms);
    at.bucket_scratch = run.region(bucket_scratch);
    return at;
  }
  void operator()(const Run& run) const {
    const BadIndex bad = run_cpu(problem, plan, addresses(run));
    if (bad.position >= 0) report(run.errors(), problem, bad);
  }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, plan, addresses(run), run.scratch(), run.record(), run.queue());
  }
  CudaAnswer scratch_on_cuda(const CudaQueue& queue, size_t& bytes) const {
    return cuda_scratch(problem, plan, queue, bytes);
  }
  void explain(const DeviceRecord& found, DataErrors& errors) const {
    report(errors, problem,
           {found.numbers[0], found.numbers[1], std::bit_cast<double>(found.numbers[2])});
  }
};

}  // namespace

static_assert(kMostBucketBlocks <= kMaxSortBlocks);

Plan make_plan(const Problem& problem) {
  Plan plan;
  constexpr int64_t kNarrow = std::numeric_limits<int32_t>::max();
  plan.wide = problem.rows > kNarrow || problem.table_rows > kNarrow;
  // Keys go from 0 to table_rows.
  const auto bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(problem.table_rows)));
  plan.owners = owners_of(problem, aclgrad_threads());
  if (plan.owners > 0) {
    plan.passes = 1;
    plan.sort_block = sort_block(problem.rows);
  } else if (takes_buckets(problem, bits)) {
    cut_buckets(problem, bits, plan);
  } else {
    plan.passes = (bits + kMaxDigitBits - 1) / kMaxDigitBits;
    plan.digit_bits = (bits + plan.passes - 1) / plan.passes;
    plan.sort_block = sort_block(problem.rows);
  }
  plan.sort_blocks = std::max(int64_t{1}, ceil_div(problem.rows, plan.sort_block));
  const auto size = [](const View& view) { return static_cast<int64_t>(dtype_size(view.dtype)); };
  const int64_t bytes = problem.rows * problem.cols * size(problem.dy) +
                        problem.table_rows * problem.cols * size(problem.dw);
  plan.panels = ceil_div(problem.cols, kPanel);
  plan.sweep_blocks =
      std::clamp(bytes / kSweepBlockBytes / plan.panels, int64_t{1}, kMaxSweepBlocks);
  plan.dy_rows = RowOffsets(problem.dy, problem.dy.rank - 1);
  plan.dw_rows = RowOffsets(problem.dw, 1);
  if (problem.rows > kStackIndices) {
    const auto number = static_cast<int64_t>(plan.wide ? sizeof(int64_t) : sizeof(int32_t));
    // One pass has no positions to read.
    plan.buffer_bytes[0] = saturating_product({problem.rows, number, plan.passes > 1 ? 2 : 1});
    plan.buffer_bytes[1] = saturating_product({problem.rows, number, 2});
    if (plan.owners > 0) {
      plan.buffer_bytes[1] = std::max(plan.buffer_bytes[1], owners_bytes(problem, plan.owners));
      return plan;
    }
    plan.histogram_bytes = (plan.sort_blocks << plan.digit_bits) * number;
    if (plan.has_buckets) {
      plan.buffer_bytes = bucket_buffers(problem);
      plan.bucket_bytes = bucket_scratch(problem, plan);
    }
  }
  return plan;
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  if (Status s = check_all(arguments, in)) return s;

  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  call.dy = launch.input(in.dy, rows_of(1), &problem.dy);
  call.indices = launch.input(in.indices, kAnyStrides, &problem.indices);
  problem.indices = collapsed(problem.indices);
  call.dw = launch.output(in.dw, rows_of(1), &problem.dw);
  problem.rows = in.rows;
  problem.cols = in.dy.last_dim();
  problem.table_rows = static_cast<int64_t>(arguments.num_weights);
  if (arguments.padding_idx < arguments.num_weights) {
    problem.padding = static_cast<int64_t>(arguments.padding_idx);
  }
  problem.scale_by_frequency = arguments.scale_grad_by_freq;

  if (aclgrad_verbose()) {
    launch.describe(problem_name(problem), bytes_moved(problem), aclgrad_active_target());
  }
  if (problem.table_rows == 0 || problem.cols == 0) return kOk;

  call.plan = make_plan(problem);
  call.first_buffer = launch.book(call.plan.buffer_bytes[0]);
  call.second_buffer = launch.book(call.plan.buffer_bytes[1]);
  call.histograms = launch.book(call.plan.histogram_bytes);
  call.bucket_scratch = launch.book(call.plan.bucket_bytes);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::embedding_dense_backward

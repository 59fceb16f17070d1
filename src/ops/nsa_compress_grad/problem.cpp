// SPDX-License-Identifier: Apache-2.0
#include "ops/nsa_compress_grad/problem.h"

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/nsa_compress_grad/plan.h"
#include "ops/nsa_compress_grad/tree.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"
#include "tensor/sequences.h"
#include "tensor/workspace_share.h"

namespace aclgrad::nsa_compress_grad {
namespace {

constexpr const char* kOp = "aclnnNsaCompressGrad";

// Everything phase one reads of the arguments.
struct Inputs {
  Operand dy, x, w, dx, dw;
  IntEntries ends;
};

// In the order of the signature.
std::array<const Operand*, 5> tensors(const Inputs& in) {
  return {&in.dy, &in.x, &in.w, &in.dx, &in.dw};
}

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(kOp, "outputGrad", in.output_grad)) return s;
  if (Status s = check::not_null(kOp, "input", in.input)) return s;
  if (Status s = check::not_null(kOp, "weight", in.weight)) return s;
  if (Status s = check::not_null(kOp, "inputGradOut", in.input_grad)) return s;
  if (Status s = check::not_null(kOp, "weightGradOut", in.weight_grad)) return s;
  return check_outputs(kOp, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(kOp, "outputGrad", in.output_grad, out.dy)) return s;
  if (Status s = read_tensor(kOp, "input", in.input, out.x)) return s;
  if (Status s = read_tensor(kOp, "weight", in.weight, out.w)) return s;
  if (Status s = read_int_array(kOp, "actSeqLenOptionalOptional", in.act_seq_len, out.ends)) {
    return s;
  }
  if (Status s = read_tensor(kOp, "inputGradOut", in.input_grad, out.dx)) return s;
  return read_tensor(kOp, "weightGradOut", in.weight_grad, out.dw);
}

Status check_dtypes(const Inputs& in) {
  if (Status s = check::dtype(kOp, in.dy, {ACL_FLOAT16, ACL_BF16})) return s;
  for (const Operand* operand : {&in.x, &in.w, &in.dx, &in.dw}) {
    if (Status s = check::same_dtype(kOp, *operand, in.dy)) return s;
  }
  return kOk;
}

Status check_ranks(const Inputs& in) {
  for (const Operand* operand : tensors(in)) {
    const uint64_t rank = operand == &in.w || operand == &in.dw ? 2 : 3;
    if (Status s = check::rank(kOp, *operand, rank, rank)) return s;
  }
  return kOk;
}

// What the tensors' shapes say about each other.
Status check_shapes(const Inputs& in) {
  if (in.x.dim(2) % kGroup != 0) {
    return fail(kParamInvalid,
                "%s: input has shape %s; expected a last dim that is a multiple of 16", kOp,
                shape_text(in.x).c_str());
  }
  if (Status s = check::window_rows(kOp, in.dy, in.x)) return s;
  if (Status s = check::window_weights(kOp, in.w, in.x)) return s;
  if (Status s = check::same_shape(kOp, in.dx, in.x)) return s;
  return check::same_shape(kOp, in.dw, in.w);
}

Status check_attributes(const Arguments& in) {
  if (Status s = check::window_sizes(kOp, in.compress_block_size, in.compress_stride)) return s;
  if (in.compress_block_size <= in.compress_stride) {
    return fail(
        kParamInvalid, "%s: compressBlockSize is %lld; expected more than compressStride %lld", kOp,
        static_cast<long long>(in.compress_block_size), static_cast<long long>(in.compress_stride));
  }
  return check::sequence_kind(kOp, in.act_seq_len_type, "layoutOptionalOptional", in.layout);
}

// All checks but those of the launch; the sequences are found on the way.
Status check_all(const Arguments& arguments, Inputs& in, Problem& problem) {
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(in)) return s;
  for (const Operand* operand : tensors(in)) {
    if (Status s = check::format(kOp, *operand)) return s;
  }
  if (Status s = check_ranks(in)) return s;
  if (Status s = check_shapes(in)) return s;
  if (Status s = check_attributes(arguments)) return s;
  if (Status s = check::sequence_ends(kOp, "actSeqLenOptionalOptional", in.ends, in.x)) return s;
  problem.tokens = in.x.dim(0);
  problem.heads = in.x.dim(1);
  problem.width = in.x.dim(2);
  problem.window = arguments.compress_block_size;
  problem.step = arguments.compress_stride;
  if (in.ends.empty()) in.ends.push_back(problem.tokens);
  place_windows(problem, in.ends);
  if (Status s = check::window_counts(kOp, in.w, in.dy, in.x, problem.window, problem.windows)) {
    return s;
  }
  for (const Operand* operand : tensors(in)) {
    if (Status s = check::sizes(kOp, *operand)) return s;
  }
  return kOk;
}

// x (covered rows), dx, dy, w, dw.
double bytes_moved(const Problem& problem) {
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double rows =
      number(problem.groups * kGroup) + number(problem.tokens) + number(problem.windows);
  const double elements = rows * number(problem.heads) * number(problem.width) +
                          2 * number(problem.window) * number(problem.heads);
  return elements * static_cast<double>(sizeof(uint16_t));
}

// A plan with more of them is not kept for the next call.
constexpr size_t kSequencesKept = 1024;

// The closed call.
struct Call {
  Problem problem;
  Plan plan;
  int dy, x, w, dx, dw;
  int weight_region, partial_region, list_region;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.dy = run.address(dy);
    at.x = run.address(x);
    at.w = run.address(w);
    at.dx = run.address(dx);
    at.dw = run.address(dw);
    at.weight_region = run.region(weight_region);
    at.partial_region = run.region(partial_region);
    at.list_region = run.region(list_region);
    return at;
  }
  void operator()(const Run& run) const { run_cpu(problem, plan, addresses(run)); }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, plan, addresses(run), run.queue());
  }
};

}  // namespace

void place_windows(Problem& problem, std::span<const int64_t> ends) {
  const auto add_gap = [&](int64_t token, int64_t tokens) {
    if (tokens == 0) return;
    if (!problem.gaps.empty() && problem.gaps.back().token + problem.gaps.back().tokens == token) {
      problem.gaps.back().tokens += tokens;
    } else {
      problem.gaps.push_back({token, tokens, problem.gap_tokens});
    }
    problem.gap_tokens += tokens;
  };
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t length = end - begin;
    int64_t covered = 0;
    if (length >= problem.window) {
      const int64_t windows = (length - problem.window) / problem.step + 1;
      covered = (windows - 1) * problem.step + problem.window;
      problem.sequences.push_back({begin, problem.windows, windows, problem.groups});
      problem.windows += windows;
      problem.groups += covered / kGroup;
    }
    add_gap(begin + covered, length - covered);
    begin = end;
  }
  add_gap(begin, problem.tokens - begin);
}

Plan make_plan(const Problem& problem) {
  Plan plan;
  // Without tokens the row may be anything.
  const int64_t row = problem.tokens == 0 ? 0 : problem.heads * problem.width;
  plan.joined_heads = std::max<int64_t>(problem.heads, 1);
  plan.batch_heads = plan.block_heads = plan.joined_heads;
  plan.serial = problem.tokens <= kBlockElements / std::max<int64_t>(row, 1);
  if (row == 0) return plan;
  plan.gap_block = std::max<int64_t>(1, kGapElements / row);
  plan.gap_blocks = ceil_div(problem.gap_tokens, plan.gap_block);
  if (problem.groups == 0) return plan;

  plan.slab_groups = slab_groups(problem.groups, problem.window, problem.heads, problem.width);
  plan.slabs = ceil_div(problem.groups, plan.slab_groups);
  // Few slabs of many heads: the heads are shared too.
  const int64_t slab_elements = std::min(plan.slab_groups, problem.groups) * kGroup * row;
  const int64_t wanted = std::clamp<int64_t>(slab_elements / kBlockElements, 1,
                                             std::min(problem.heads, kMostSlabs / plan.slabs));
  plan.block_heads = ceil_div(problem.heads, wanted);
  const int64_t joined = problem.window * plan.slabs;
  plan.joined_heads = std::clamp<int64_t>(kJoinedTotals / joined, 1, problem.heads);

  const int64_t weights = problem.heads * problem.window;
  plan.weight_bytes = saturating_product({weights, static_cast<int64_t>(sizeof(float))});
  plan.partial_bytes =
      saturating_product({plan.slabs, weights, static_cast<int64_t>(sizeof(double))});
  return plan;
}

void make_batches(const Problem& problem, Plan& plan) {
  const int64_t heads = plan.batch_heads;
  const int64_t head_bytes = plan.weight_bytes / heads + plan.partial_bytes / heads;
  if (head_bytes == 0) return;
  // Of all of x and dx, whether windows cover it or not.
  const double operands = 2.0 * static_cast<double>(problem.tokens) *
                          static_cast<double>(problem.heads) *
                          static_cast<double>(problem.width * int64_t{sizeof(uint16_t)});
  plan.batch_heads = std::clamp(most_workspace(operands) / head_bytes, int64_t{1}, heads);
  plan.block_heads = std::min(plan.block_heads, plan.batch_heads);
  plan.weight_bytes = plan.weight_bytes / heads * plan.batch_heads;
  plan.partial_bytes = plan.partial_bytes / heads * plan.batch_heads;
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  if (Status s = check_all(arguments, in, problem)) return s;
  if (problem.sequences.size() > kSequencesKept) launch.keep_nothing();

  call.dy = launch.input(in.dy, rows_of(1), &problem.dy);
  call.x = launch.input(in.x, rows_of(1), &problem.x);
  call.w = launch.input(in.w, kAnyStrides, &problem.w);
  call.dx = launch.output(in.dx, rows_of(1), &problem.dx);
  call.dw = launch.output(in.dw, kAnyStrides, &problem.dw);
  launch.allow_in_place(call.dx, call.x);

  if (aclgrad_verbose()) {
    launch.describe(windows_problem_name("nsa_compress_grad", problem.x, problem.window,
                                         problem.step, in.ends.size()),
                    bytes_moved(problem), aclgrad_active_target());
  }
  if (problem.heads == 0) return kOk;

  call.plan = make_plan(problem);
  if (!Launch::on_cuda()) make_batches(problem, call.plan);
  call.weight_region = launch.book(call.plan.weight_bytes);
  call.partial_region = launch.book(call.plan.partial_bytes);
  call.list_region = launch.book(Launch::on_cuda() ? list_bytes(problem) : 0);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::nsa_compress_grad

// SPDX-License-Identifier: Apache-2.0
#include "ops/scaled_masked_softmax_backward/problem.h"

#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/scaled_masked_softmax_backward/tree.h"
#include "tensor/attention_shapes.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"

namespace aclgrad::scaled_masked_softmax_backward {
namespace {

constexpr const char* kOp = "aclnnScaledMaskedSoftmaxBackward";

// Everything phase one reads of the arguments.
struct Inputs {
  Operand dy, y, mask, dx;
};

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(kOp, "gradOutput", in.grad_output)) return s;
  if (Status s = check::not_null(kOp, "y", in.y)) return s;
  if (Status s = check::not_null(kOp, "mask", in.mask)) return s;
  if (Status s = check::not_null(kOp, "out", in.out)) return s;
  return check_outputs(kOp, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(kOp, "gradOutput", in.grad_output, out.dy)) return s;
  if (Status s = read_tensor(kOp, "y", in.y, out.y)) return s;
  if (Status s = read_tensor(kOp, "mask", in.mask, out.mask)) return s;
  return read_tensor(kOp, "out", in.out, out.dx);
}

Status check_dtypes(const Inputs& in) {
  if (Status s = check::dtype(kOp, in.dy, {ACL_FLOAT, ACL_FLOAT16, ACL_BF16})) return s;
  if (Status s = check::same_dtype(kOp, in.y, in.dy)) return s;
  if (Status s = check::dtype(kOp, in.mask, {ACL_BOOL})) return s;
  return check::same_dtype(kOp, in.dx, in.dy);
}

Status check_shapes(const Inputs& in) {
  if (Status s = check::attention_cols(kOp, in.dy, kMaxCols)) return s;
  if (Status s = check::same_shape(kOp, in.y, in.dy)) return s;
  if (Status s = check::attention_mask(kOp, in.mask, in.dy)) return s;
  return check::same_shape(kOp, in.dx, in.dy);
}

Status check_all(const Arguments& arguments, Inputs& in) {
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(in)) return s;
  const Operand* operands[] = {&in.dy, &in.y, &in.mask, &in.dx};
  for (const Operand* operand : operands) {
    if (Status s = check::format(kOp, *operand)) return s;
  }
  for (const Operand* operand : operands) {
    if (Status s = check::rank(kOp, *operand, 4, 4)) return s;
  }
  if (Status s = check_shapes(in)) return s;
  for (const Operand* operand : operands) {
    if (Status s = check::sizes(kOp, *operand)) return s;
  }
  return kOk;
}

// The closed call.
struct Call {
  Problem problem;
  Plan plan;
  int dy, y, mask, dx;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.dy = run.address(dy);
    at.y = run.address(y);
    at.mask = run.address(mask);
    at.dx = run.address(dx);
    return at;
  }
  void operator()(const Run& run) const { run_cpu(problem, plan, addresses(run)); }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, addresses(run), run.queue());
  }
};

}  // namespace

Plan make_plan(const Problem& problem) {
  return cut_attention({problem.batches, problem.heads, problem.rows}, problem.cols);
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  if (Status s = check_all(arguments, in)) return s;

  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  problem.batches = in.dx.dim(0);
  problem.heads = in.dx.dim(1);
  problem.rows = in.dx.dim(2);
  problem.cols = in.dx.dim(3);
  problem.scale = arguments.scale;
  call.dy = launch.input(in.dy, rows_of(1), &problem.dy);
  call.y = launch.input(in.y, rows_of(1), &problem.y);
  call.mask = launch.input(in.mask, rows_of(1), &problem.mask);
  call.dx = launch.output(in.dx, rows_of(1), &problem.dx);
  repeat_mask(problem.mask, problem.dx);
  launch.allow_in_place(call.dx, call.dy);
  launch.allow_in_place(call.dx, call.y);

  if (arguments.fix_triu_mask) launch.refuse_last("fixTriuMask is true; expected false");

  if (aclgrad_verbose()) {
    const auto elements = static_cast<double>(in.dx.numel());
    const auto size = static_cast<double>(dtype_size(in.dx.dtype));
    launch.describe(attention_problem_name("scaled_masked_softmax_backward", problem.dx),
                    3 * size * elements + static_cast<double>(in.mask.numel()),
                    aclgrad_active_target());
  }
  if (in.dx.numel() == 0) return kOk;

  call.plan = make_plan(problem);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::scaled_masked_softmax_backward

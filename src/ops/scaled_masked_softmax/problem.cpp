// SPDX-License-Identifier: Apache-2.0
#include "ops/scaled_masked_softmax/problem.h"

#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/scaled_masked_softmax/tree.h"
#include "tensor/attention_shapes.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"

namespace aclgrad::scaled_masked_softmax {
namespace {

constexpr const char* kOp = "aclnnScaledMaskedSoftmax";

// Everything phase one reads of the arguments.
struct Inputs {
  Operand x, mask, y;
};

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(kOp, "x", in.x)) return s;
  if (Status s = check::not_null(kOp, "mask", in.mask)) return s;
  if (Status s = check::not_null(kOp, "y", in.y)) return s;
  return check_outputs(kOp, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(kOp, "x", in.x, out.x)) return s;
  if (Status s = read_tensor(kOp, "mask", in.mask, out.mask)) return s;
  return read_tensor(kOp, "y", in.y, out.y);
}

Status check_dtypes(const Inputs& in) {
  if (Status s = check::dtype(kOp, in.x, {ACL_FLOAT, ACL_FLOAT16, ACL_BF16})) return s;
  if (Status s = check::dtype(kOp, in.mask, {ACL_BOOL})) return s;
  return check::same_dtype(kOp, in.y, in.x);
}

Status check_shapes(const Inputs& in) {
  if (Status s = check::attention_cols(kOp, in.x, kMaxCols)) return s;
  if (Status s = check::attention_mask(kOp, in.mask, in.x)) return s;
  return check::same_shape(kOp, in.y, in.x);
}

Status check_all(const Arguments& arguments, Inputs& in) {
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(in)) return s;
  const Operand* operands[] = {&in.x, &in.mask, &in.y};
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
  int x, mask, y;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.x = run.address(x);
    at.mask = run.address(mask);
    at.y = run.address(y);
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
  problem.batches = in.y.dim(0);
  problem.heads = in.y.dim(1);
  problem.rows = in.y.dim(2);
  problem.cols = in.y.dim(3);
  problem.scale = arguments.scale;
  call.x = launch.input(in.x, rows_of(1), &problem.x);
  call.mask = launch.input(in.mask, rows_of(1), &problem.mask);
  call.y = launch.output(in.y, rows_of(1), &problem.y);
  repeat_mask(problem.mask, problem.y);

  if (arguments.fixed_triu_mask) launch.refuse_last("fixedTriuMask is true; expected false");

  if (aclgrad_verbose()) {
    const auto elements = static_cast<double>(in.y.numel());
    const auto size = static_cast<double>(dtype_size(in.y.dtype));
    launch.describe(attention_problem_name("scaled_masked_softmax", problem.y),
                    2 * size * elements + static_cast<double>(in.mask.numel()),
                    aclgrad_active_target());
  }
  if (in.y.numel() == 0) return kOk;

  call.plan = make_plan(problem);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::scaled_masked_softmax

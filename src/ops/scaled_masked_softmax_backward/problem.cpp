// SPDX-License-Identifier: Apache-2.0
#include "ops/scaled_masked_softmax_backward/problem.h"

#include <string>

#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/scaled_masked_softmax_backward/tree.h"
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
  if (in.dy.last_dim() > kMaxCols) {
    return fail(kParamInvalid, "%s: gradOutput has shape %s; expected at most %lld in the last dim",
                kOp, shape_text(in.dy).c_str(), static_cast<long long>(kMaxCols));
  }
  if (Status s = check::same_shape(kOp, in.y, in.dy)) return s;
  const auto fits = [&](int64_t i) { return in.mask.dim(i) == in.dy.dim(i); };
  const auto broadcasts = [&](int64_t i) { return fits(i) || in.mask.dim(i) == 1; };
  if (!broadcasts(0) || !broadcasts(1) || !fits(2) || !fits(3)) {
    return fail(kParamInvalid,
                "%s: mask has shape %s; expected the shape of gradOutput %s, where either of the "
                "first two dims may be 1",
                kOp, shape_text(in.mask).c_str(), shape_text(in.dy).c_str());
  }
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
  if (arguments.fix_triu_mask) {
    return fail(kParamInvalid, "%s: fixTriuMask is true; expected false", kOp);
  }
  return kOk;
}

// The mask as a view of dx's shape.
View repeated(View mask, const View& dx) {
  for (size_t i = 0; i < 2; ++i) {
    if (mask.dims[i] == 1) mask.strides[i] = 0;
    mask.dims[i] = dx.dims[i];
  }
  return mask;
}

std::string problem_name(const Problem& problem) {
  std::string name =
      std::string("scaled_masked_softmax_backward/") + dtype_short_name(problem.dx.dtype) + "/";
  for (const int64_t dim : {problem.batches, problem.heads, problem.rows}) {
    name += std::to_string(dim) + "x";
  }
  return name + std::to_string(problem.cols);
}

}  // namespace

Plan make_plan(const Problem& problem) {
  return cut_attention({problem.batches, problem.heads, problem.rows}, problem.cols);
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  if (Status s = check_all(arguments, in)) return s;

  const int dy = launch.input(in.dy, rows_of(1));
  const int y = launch.input(in.y, rows_of(1));
  const int mask = launch.input(in.mask, rows_of(1));
  const int dx = launch.output(in.dx, rows_of(1));
  launch.allow_in_place(dx, dy);
  launch.allow_in_place(dx, y);

  Problem problem;
  problem.batches = in.dx.dim(0);
  problem.heads = in.dx.dim(1);
  problem.rows = in.dx.dim(2);
  problem.cols = in.dx.dim(3);
  problem.dy = launch.view(dy);
  problem.y = launch.view(y);
  problem.dx = launch.view(dx);
  problem.mask = repeated(launch.view(mask), problem.dx);
  problem.scale = arguments.scale;

  if (aclgrad_verbose()) {
    const int64_t elements = in.dx.numel();
    const auto size = static_cast<int64_t>(dtype_size(in.dx.dtype));
    launch.describe(problem_name(problem), 3 * size * elements + in.mask.numel(),
                    aclgrad_active_target());
  }
  if (in.dx.numel() == 0) return kOk;

  const Plan plan = make_plan(problem);
  launch.call([=](const Run& run) {
    Addresses at;
    at.dy = run.address(dy);
    at.y = run.address(y);
    at.mask = run.address(mask);
    at.dx = run.address(dx);
    run_cpu(problem, plan, at);
  });
  return kOk;
}

}  // namespace aclgrad::scaled_masked_softmax_backward

// SPDX-License-Identifier: Apache-2.0
#include "ops/scaled_masked_softmax/problem.h"

#include <string>

#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/scaled_masked_softmax/tree.h"
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
  if (in.x.last_dim() > kMaxCols) {
    return fail(kParamInvalid, "%s: x has shape %s; expected at most %lld in the last dim", kOp,
                shape_text(in.x).c_str(), static_cast<long long>(kMaxCols));
  }
  const auto fits = [&](int64_t i) { return in.mask.dim(i) == in.x.dim(i); };
  const auto broadcasts = [&](int64_t i) { return fits(i) || in.mask.dim(i) == 1; };
  if (!broadcasts(0) || !broadcasts(1) || !fits(2) || !fits(3)) {
    return fail(kParamInvalid,
                "%s: mask has shape %s; expected the shape of x %s, where either of the "
                "first two dims may be 1",
                kOp, shape_text(in.mask).c_str(), shape_text(in.x).c_str());
  }
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
  if (arguments.fixed_triu_mask) {
    return fail(kParamInvalid, "%s: fixedTriuMask is true; expected false", kOp);
  }
  return kOk;
}

// The mask as a view of y's shape.
View repeated(View mask, const View& y) {
  for (size_t i = 0; i < 2; ++i) {
    if (mask.dims[i] == 1) mask.strides[i] = 0;
    mask.dims[i] = y.dims[i];
  }
  return mask;
}

std::string problem_name(const Problem& problem) {
  std::string name =
      std::string("scaled_masked_softmax/") + dtype_short_name(problem.y.dtype) + "/";
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

  const int x = launch.input(in.x, rows_of(1));
  const int mask = launch.input(in.mask, rows_of(1));
  const int y = launch.output(in.y, rows_of(1));

  Problem problem;
  problem.batches = in.y.dim(0);
  problem.heads = in.y.dim(1);
  problem.rows = in.y.dim(2);
  problem.cols = in.y.dim(3);
  problem.x = launch.view(x);
  problem.y = launch.view(y);
  problem.mask = repeated(launch.view(mask), problem.y);
  problem.scale = arguments.scale;

  if (aclgrad_verbose()) {
    const int64_t elements = in.y.numel();
    const auto size = static_cast<int64_t>(dtype_size(in.y.dtype));
    launch.describe(problem_name(problem), 2 * size * elements + in.mask.numel(),
                    aclgrad_active_target());
  }
  if (in.y.numel() == 0) return kOk;

  const Plan plan = make_plan(problem);
  launch.call([=](const Run& run) {
    Addresses at;
    at.x = run.address(x);
    at.mask = run.address(mask);
    at.y = run.address(y);
    run_cpu(problem, plan, at);
  });
  return kOk;
}

}  // namespace aclgrad::scaled_masked_softmax

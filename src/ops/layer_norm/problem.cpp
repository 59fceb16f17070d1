// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm/problem.h"

#include <span>
#include <string>

#include "base/checked.h"
#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/layer_norm/plan.h"
#include "ops/layer_norm/statistics.h"
#include "ops/layer_norm/tree.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"
#include "tensor/workspace_share.h"

namespace aclgrad::layer_norm {
namespace {

// Everything phase one reads of the arguments.
struct Inputs {
  Operand x, gamma, beta, y, mean, rstd;
  IntEntries normalized_shape;
  int64_t rows = 1, cols = 1;
};

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(in.op, "input", in.input)) return s;
  if (Status s = check::not_null(in.op, "normalizedShape", in.normalized_shape)) return s;
  if (Status s = check::not_null(in.op, "out", in.out)) return s;
  return check_outputs(in.op, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(in.op, "input", in.input, out.x)) return s;
  if (Status s =
          read_int_array(in.op, "normalizedShape", in.normalized_shape, out.normalized_shape))
    return s;
  if (Status s = read_tensor(in.op, "weightOptional", in.weight, out.gamma)) return s;
  if (Status s = read_tensor(in.op, "biasOptional", in.bias, out.beta)) return s;
  if (Status s = read_tensor(in.op, "out", in.out, out.y)) return s;
  if (Status s = read_tensor(in.op, "meanOutOptional", in.mean_out, out.mean)) return s;
  return read_tensor(in.op, "rstdOutOptional", in.rstd_out, out.rstd);
}

Status check_dtypes(const char* op, const Inputs& in) {
  const auto floats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
  if (Status s = check::dtype(op, in.x, floats)) return s;
  for (const Operand* operand : {&in.gamma, &in.beta}) {
    if (Status s = check::dtype(op, *operand, {ACL_FLOAT, in.x.dtype})) return s;
  }
  if (in.gamma.given() && in.beta.given()) {
    if (Status s = check::same_dtype(op, in.beta, in.gamma)) return s;
  }
  for (const Operand* operand : {&in.y, &in.mean, &in.rstd}) {
    if (Status s = check::dtype(op, *operand, floats)) return s;
  }
  return kOk;
}

Status check_ranks(const char* op, const Inputs& in) {
  for (const Operand* operand : {&in.x, &in.gamma, &in.beta, &in.y, &in.mean, &in.rstd}) {
    if (Status s = check::rank(op, *operand, 0, kMaxRank)) return s;
  }
  const size_t count = in.normalized_shape.size();
  if (count < 1 || count > in.x.rank) {
    return fail(kParamInvalid,
                "%s: normalizedShape has %zu entries; expected 1 to %llu, the rank of input %s", op,
                count, static_cast<unsigned long long>(in.x.rank), shape_text(in.x).c_str());
  }
  return kOk;
}

Status check_shapes(const char* op, Inputs& in) {
  const auto& normalized = in.normalized_shape;
  const size_t row_dim = in.x.rank - normalized.size();
  for (size_t i = 0; i < normalized.size(); ++i) {
    if (normalized[i] != in.x.dims[row_dim + i]) {
      return fail(kParamInvalid,
                  "%s: normalizedShape is %s; expected the last %zu dims of input %s", op,
                  shape_text(normalized.begin(), normalized.size()).c_str(), normalized.size(),
                  shape_text(in.x).c_str());
    }
  }
  if (Status s = check::sizes(op, in.x)) return s;
  in.rows = saturating_product(std::span(in.x.dims.data(), row_dim));
  in.cols = saturating_product(normalized);
  for (const Operand* operand : {&in.gamma, &in.beta}) {
    if (!operand->given()) continue;
    if (Status s = check::shape(op, *operand, normalized, "normalizedShape")) return s;
  }
  if (Status s = check::same_shape(op, in.y, in.x)) return s;
  for (const Operand* operand : {&in.mean, &in.rstd}) {
    if (!operand->given()) continue;
    if (Status s = check::numel(op, *operand, in.rows, "one per normalized row of input", in.x)) {
      return s;
    }
  }
  return kOk;
}

Status check_impl_mode(const char* op, int32_t mode, const Inputs& in) {
  if (mode < 0 || mode > 2) {
    return fail(kParamInvalid, "%s: implMode is %d; expected 0, 1 or 2", op, mode);
  }
  if (mode != 2) return kOk;
  for (const Operand* operand : {&in.x, &in.gamma, &in.beta, &in.y, &in.mean, &in.rstd}) {
    if (operand->given() && operand->dtype != ACL_FLOAT16) {
      return fail(kParamInvalid,
                  "%s: implMode is 2 and %s has dtype %s; expected FLOAT16 for every tensor", op,
                  operand->name, dtype_name(operand->dtype));
    }
  }
  return kOk;
}

Status check_all(const Arguments& arguments, Inputs& in) {
  const char* op = arguments.op;
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_dtypes(op, in)) return s;
  for (const Operand* operand : {&in.x, &in.gamma, &in.beta, &in.y, &in.mean, &in.rstd}) {
    if (Status s = check::format(op, *operand)) return s;
  }
  if (Status s = check_ranks(op, in)) return s;
  if (Status s = check_shapes(op, in)) return s;
  if (Status s = check_impl_mode(op, arguments.impl_mode, in)) return s;
  for (const Operand* operand : {&in.gamma, &in.beta, &in.y, &in.mean, &in.rstd}) {
    if (!operand->given()) continue;
    if (Status s = check::sizes(op, *operand)) return s;
  }
  return kOk;
}

std::string problem_name(const Problem& problem) {
  return std::string("layer_norm/") + dtype_short_name(problem.x.dtype) + "/" +
         std::to_string(problem.rows) + "x" + std::to_string(problem.cols);
}

double bytes_moved(const Problem& problem) {
  const auto size = [](const View& view) { return static_cast<double>(dtype_size(view.dtype)); };
  const auto rows = static_cast<double>(problem.rows);
  const auto cols = static_cast<double>(problem.cols);
  return rows * cols * (size(problem.x) + size(problem.y)) +
         rows * (size(problem.mean) + size(problem.rstd)) +
         cols * (size(problem.gamma) + size(problem.beta));
}

// gamma or beta, for the kernels.
bool usable_as_is(const View& view, aclDataType x) {
  return view.dtype == ACL_FLOAT && x != ACL_BF16 && is_one_run(view);
}

// The closed call.
struct Call {
  Problem problem;
  Plan plan;
  int x, gamma, beta, y, mean, rstd;
  int gamma_region, beta_region, moment_region;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.x = run.address(x);
    at.gamma = run.address(gamma);
    at.beta = run.address(beta);
    at.y = run.address(y);
    at.mean = run.address(mean);
    at.rstd = run.address(rstd);
    at.gamma_region = run.region(gamma_region);
    at.beta_region = run.region(beta_region);
    at.moment_region = run.region(moment_region);
    return at;
  }
  void operator()(const Run& run) const { run_cpu(problem, plan, addresses(run)); }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, addresses(run), run.queue());
  }
};

}  // namespace

Plan make_plan(const Problem& problem) {
  Plan plan;
  plan.wide = is_wide(problem.rows, problem.cols);
  plan.slab_rows = slab_rows(problem.rows, problem.cols);
  plan.slabs = ceil_div(problem.rows, plan.slab_rows);
  plan.panels = ceil_div(problem.cols, kPanel);
  const int64_t row_bytes =
      saturating_product({weight_floats(problem.cols), static_cast<int64_t>(sizeof(float))});
  plan.gamma_as_it_is = usable_as_is(problem.gamma, problem.x.dtype);
  plan.beta_as_it_is = usable_as_is(problem.beta, problem.x.dtype);
  // Or gamma and beta as FP32 would be too much beside x and y, as of up to 40 rows in 16 bits.
  const int64_t weights = (plan.gamma_as_it_is ? 0 : 1) + (plan.beta_as_it_is ? 0 : 1);
  plan.wide = plan.wide || (problem.cols > kSmall && saturating_product({weights, row_bytes}) >
                                                         most_workspace(bytes_moved(problem)));
  if (!plan.gamma_as_it_is && !plan.wide) plan.gamma_bytes = row_bytes;
  if (!plan.beta_as_it_is && !plan.wide) plan.beta_bytes = row_bytes;
  if (plan.wide) {
    plan.moment_bytes = problem.rows * (plan.panels * static_cast<int64_t>(sizeof(Moments)) +
                                        static_cast<int64_t>(sizeof(Statistics)));
  }
  return plan;
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  if (Status s = check_all(arguments, in)) return s;

  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  problem.rows = in.rows;
  problem.cols = in.cols;
  problem.row_dim = static_cast<int>(in.x.rank) - static_cast<int>(in.normalized_shape.size());
  problem.eps = arguments.eps;

  // Operands in the order of the signature.
  // A GPU wants rows that are one run; others are packed for it.
  const auto normalized = static_cast<int>(in.normalized_shape.size());
  const Layout rows = rows_of(Launch::on_cuda() ? normalized : 1);
  call.x = launch.input(in.x, rows, &problem.x);
  call.gamma = launch.input(in.gamma, kAnyStrides, &problem.gamma);
  call.beta = launch.input(in.beta, kAnyStrides, &problem.beta);
  call.y = launch.output(in.y, rows, &problem.y);
  call.mean = launch.output(in.mean, kAnyStrides, &problem.mean);
  call.rstd = launch.output(in.rstd, kAnyStrides, &problem.rstd);

  if (aclgrad_verbose()) {
    launch.describe(problem_name(problem), bytes_moved(problem), aclgrad_active_target());
  }
  const bool has_outputs = problem.cols > 0 || in.mean.given() || in.rstd.given();
  if (problem.rows == 0 || !has_outputs) return kOk;

  if (Launch::on_cuda()) {
    const GpuScratch scratch = scratch_on_gpu(problem);
    call.gamma_region = launch.book(scratch.gamma);
    call.beta_region = launch.book(scratch.beta);
    call.moment_region = launch.book(scratch.moments);
    launch.run(call);
    return kOk;
  }
  call.plan = make_plan(problem);
  call.gamma_region = launch.book(call.plan.gamma_bytes);
  call.beta_region = launch.book(call.plan.beta_bytes);
  call.moment_region = launch.book(call.plan.moment_bytes);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::layer_norm

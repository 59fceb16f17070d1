// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm_backward/problem.h"

#include <algorithm>
#include <span>
#include <string>

#include "base/checked.h"
#include "base/verbose.h"
#include "kernels/cpu/target.h"
#include "ops/layer_norm_backward/plan.h"
#include "ops/layer_norm_backward/tree.h"
#include "tensor/check.h"
#include "tensor/launch.h"
#include "tensor/operand.h"
#include "tensor/workspace_share.h"

namespace aclgrad::layer_norm_backward {
namespace {

constexpr const char* kOp = "aclnnLayerNormBackward";

// Everything phase one reads of the arguments.
struct Inputs {
  Operand dy, x, mean, rstd, gamma, bias, dx, dgamma, dbeta;
  IntEntries normalized_shape;
  BoolEntries mask;
};

Status check_null(const Arguments& in) {
  if (Status s = check::not_null(kOp, "gradOut", in.grad_out)) return s;
  if (Status s = check::not_null(kOp, "input", in.input)) return s;
  if (Status s = check::not_null(kOp, "normalizedShape", in.normalized_shape)) return s;
  if (Status s = check::not_null(kOp, "mean", in.mean)) return s;
  if (Status s = check::not_null(kOp, "rstd", in.rstd)) return s;
  if (Status s = check::not_null(kOp, "outputMask", in.output_mask)) return s;
  return check_outputs(kOp, in.workspace_size, in.executor);
}

Status read_handles(const Arguments& in, Inputs& out) {
  if (Status s = read_tensor(kOp, "gradOut", in.grad_out, out.dy)) return s;
  if (Status s = read_tensor(kOp, "input", in.input, out.x)) return s;
  if (Status s = read_int_array(kOp, "normalizedShape", in.normalized_shape, out.normalized_shape))
    return s;
  if (Status s = read_tensor(kOp, "mean", in.mean, out.mean)) return s;
  if (Status s = read_tensor(kOp, "rstd", in.rstd, out.rstd)) return s;
  if (Status s = read_tensor(kOp, "weightOptional", in.weight, out.gamma)) return s;
  if (Status s = read_tensor(kOp, "biasOptional", in.bias, out.bias)) return s;
  if (Status s = read_bool_array(kOp, "outputMask", in.output_mask, out.mask)) return s;
  if (Status s = read_tensor(kOp, "gradInputOut", in.grad_input, out.dx)) return s;
  if (Status s = read_tensor(kOp, "gradWeightOut", in.grad_weight, out.dgamma)) return s;
  return read_tensor(kOp, "gradBiasOut", in.grad_bias, out.dbeta);
}

Status check_mask(const Inputs& in) {
  if (in.mask.size() != 3) {
    return fail(kParamInvalid, "%s: outputMask has %zu entries; expected 3", kOp, in.mask.size());
  }
  const Operand* outputs[] = {&in.dx, &in.dgamma, &in.dbeta};
  for (size_t i = 0; i < 3; ++i) {
    if (in.mask[i] && !outputs[i]->given()) {
      return fail(kParamNullptr,
                  "%s: %s is null; expected a tensor, because outputMask[%zu] is true", kOp,
                  outputs[i]->name, i);
    }
  }
  return kOk;
}

Status check_dtypes(const Inputs& in) {
  const auto floats = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};
  if (Status s = check::dtype(kOp, in.dy, floats)) return s;
  if (Status s = check::same_dtype(kOp, in.x, in.dy)) return s;
  for (const Operand* operand : {&in.mean, &in.rstd}) {
    if (Status s = check::dtype(kOp, *operand, floats)) return s;
  }
  if (in.gamma.given()) {
    if (Status s = check::dtype(kOp, in.gamma, {ACL_FLOAT, in.x.dtype})) return s;
  }
  for (const Operand* operand : {&in.bias, &in.dx, &in.dgamma, &in.dbeta}) {
    if (!operand->given()) continue;
    if (Status s = check::dtype(kOp, *operand, floats)) return s;
  }
  return kOk;
}

// The tensors whose format, rank and shape count: a masked-off output's do not.
std::span<const Operand* const> described(const Inputs& in, std::span<const Operand*, 9> list) {
  size_t count = 0;
  for (const Operand* each : {&in.dy, &in.x, &in.mean, &in.rstd}) list[count++] = each;
  if (in.gamma.given()) list[count++] = &in.gamma;
  if (in.bias.given()) list[count++] = &in.bias;
  if (in.mask[0]) list[count++] = &in.dx;
  if (in.mask[1]) list[count++] = &in.dgamma;
  if (in.mask[2]) list[count++] = &in.dbeta;
  return list.first(count);
}

Status check_ranks(const Inputs& in, std::span<const Operand* const> operands) {
  for (const Operand* operand : operands) {
    if (Status s = check::rank(kOp, *operand, 0, kMaxRank)) return s;
  }
  const size_t count = in.normalized_shape.size();
  if (count < 1 || count > in.x.rank) {
    return fail(kParamInvalid,
                "%s: normalizedShape has %zu entries; expected 1 to %llu, the rank of input %s",
                kOp, count, static_cast<unsigned long long>(in.x.rank), shape_text(in.x).c_str());
  }
  return kOk;
}

Status check_shapes(const Inputs& in) {
  if (Status s = check::same_shape(kOp, in.dy, in.x)) return s;
  const auto& normalized = in.normalized_shape;
  const size_t row_dim = in.x.rank - normalized.size();
  for (size_t i = 0; i < normalized.size(); ++i) {
    if (normalized[i] != in.x.dims[row_dim + i]) {
      return fail(kParamInvalid,
                  "%s: normalizedShape is %s; expected the last %zu dims of input %s", kOp,
                  shape_text(normalized.begin(), normalized.size()).c_str(), normalized.size(),
                  shape_text(in.x).c_str());
    }
  }
  if (Status s = check::sizes(kOp, in.x)) return s;
  const int64_t rows = saturating_product(std::span(in.x.dims.data(), row_dim));
  const int64_t cols = saturating_product(normalized);
  const std::span<const int64_t> tail(normalized);
  if (in.gamma.given()) {
    if (Status s = check::shape(kOp, in.gamma, tail, "normalizedShape")) return s;
  }
  if (in.bias.given()) {
    if (Status s = check::shape(kOp, in.bias, tail, "normalizedShape")) return s;
  }
  if (Status s = check::numel(kOp, in.mean, rows, "one per normalized row of input", in.x))
    return s;
  if (Status s = check::same_shape(kOp, in.rstd, in.mean)) return s;
  if (in.mask[0]) {
    if (Status s = check::same_shape(kOp, in.dx, in.x)) return s;
  }
  const char* const of_cols = "one per element of a normalized row of input";
  if (in.mask[1]) {
    if (Status s = check::numel(kOp, in.dgamma, cols, of_cols, in.x)) return s;
  }
  if (in.mask[2]) {
    if (Status s = check::numel(kOp, in.dbeta, cols, of_cols, in.x)) return s;
  }
  return kOk;
}

Status check_all(const Arguments& arguments, Inputs& in) {
  if (Status s = check_null(arguments)) return s;
  if (Status s = read_handles(arguments, in)) return s;
  if (Status s = check_mask(in)) return s;
  if (Status s = check_dtypes(in)) return s;
  const Operand* list[9];
  const std::span<const Operand* const> operands = described(in, list);
  for (const Operand* operand : operands) {
    if (Status s = check::format(kOp, *operand)) return s;
  }
  if (Status s = check_ranks(in, operands)) return s;
  if (Status s = check_shapes(in)) return s;
  for (const Operand* operand : operands) {
    if (Status s = check::sizes(kOp, *operand)) return s;
  }
  return kOk;
}

std::string problem_name(const Problem& problem) {
  return std::string("layer_norm_backward/") + dtype_short_name(problem.x.dtype) + "/" +
         std::to_string(problem.rows) + "x" + std::to_string(problem.cols);
}

double bytes_moved(const Problem& problem) {
  const auto size = [](const View& view) { return static_cast<double>(dtype_size(view.dtype)); };
  const auto rows = static_cast<double>(problem.rows);
  const auto cols = static_cast<double>(problem.cols);
  const double of_dy = rows * cols * size(problem.dy) + cols * size(problem.dbeta);
  if (!problem.want_dx && !problem.want_dgamma) return of_dy;
  const double gamma = problem.want_dx ? size(problem.gamma) : 0;
  return of_dy + rows * cols * (size(problem.x) + size(problem.dx)) +
         rows * (size(problem.mean) + size(problem.rstd)) + cols * (gamma + size(problem.dgamma));
}

// Of dy, x and dx, whether x is read or not.
double operand_bytes(const Problem& problem) {
  const auto size = [](const View& view) { return static_cast<double>(dtype_size(view.dtype)); };
  return static_cast<double>(problem.rows) * static_cast<double>(problem.cols) *
         (size(problem.dy) + size(problem.x) + size(problem.dx));
}

// The closed call.
struct Call {
  Problem problem;
  Plan plan;
  Places places;
  int dy, x, mean, rstd, gamma, dx, dgamma, dbeta;
  int gamma_region, partial_region, row_region;

  Addresses addresses(const Run& run) const {
    Addresses at;
    at.dy = run.address(dy);
    at.x = run.address(x);
    at.mean = run.address(mean);
    at.rstd = run.address(rstd);
    at.gamma = run.address(gamma);
    at.dx = run.address(dx);
    at.dgamma = run.address(dgamma);
    at.dbeta = run.address(dbeta);
    at.gamma_region = run.region(gamma_region);
    at.partial_region = run.region(partial_region);
    at.row_region = run.region(row_region);
    return at;
  }
  void operator()(const Run& run) const { run_cpu(problem, plan, places, addresses(run)); }
  CudaAnswer on_cuda(const Run& run) const {
    return run_cuda(problem, addresses(run), run.queue());
  }
};

}  // namespace

Plan make_plan(const Problem& problem) {
  Plan plan;
  const bool columns = problem.want_dgamma || problem.want_dbeta;
  // Without rows the sums of columns come from no slab: zeros, whatever the columns.
  plan.wide = problem.rows > 0 && is_wide(problem.rows, problem.cols);
  plan.slab_rows = slab_rows(problem.rows, problem.cols);
  plan.slabs = ceil_div(problem.rows, plan.slab_rows);
  plan.panels = ceil_div(problem.cols, kPanel);
  const auto float_size = static_cast<int64_t>(sizeof(float));
  const auto double_size = static_cast<int64_t>(sizeof(double));
  const bool gamma_as_it_is = problem.gamma.dtype == ACL_FLOAT && problem.x.dtype != ACL_BF16 &&
                              problem.cols % kWidestStrip == 0 && is_one_run(problem.gamma);
  const int64_t most = most_workspace(bytes_moved(problem), operand_bytes(problem));
  if (!gamma_as_it_is && problem.rows > 0) {
    plan.gamma_bytes = saturating_product({round_up(problem.cols, kWidestStrip), float_size});
    // A few long rows: gamma is as much as a row.
    plan.gamma_by_panel = plan.wide && plan.gamma_bytes > most - most / 8;
    if (plan.gamma_by_panel) plan.gamma_bytes = 0;
  }
  if (plan.wide) {
    plan.row_bytes =
        problem.rows * (plan.panels * 2 * double_size + static_cast<int64_t>(sizeof(RowMeans)));
    plan.batch_rows = problem.want_dx
                          ? batch_rows(problem.rows, problem.cols,
                                       static_cast<int64_t>(dtype_size(problem.x.dtype)),
                                       static_cast<int64_t>(dtype_size(problem.dx.dtype)))
                          : problem.rows;
    if (columns && plan.batch_rows < problem.rows) {
      const int64_t chain = plan.batch_rows < kRowBlock ? float_size : 0;
      plan.partial_bytes =
          saturating_product({2, round_up(problem.cols, kWidestStrip), double_size + chain});
    }
  } else if (columns && problem.rows > kRowBlock && problem.cols > 0) {
    const int64_t region =
        saturating_product({2, round_up(problem.cols, kWidestStrip), double_size});
    plan.slab_regions = std::clamp((most - plan.gamma_bytes) / region,
                                   std::min(int64_t{2}, plan.slabs), plan.slabs);
    plan.partial_bytes = saturating_product({plan.slab_regions, region});
  }
  return plan;
}

Places make_places(const Problem& problem) {
  const int row_dim = problem.row_dim;
  Places places;
  places.dy = RowOffsets(problem.dy, row_dim);
  places.x = RowOffsets(problem.x, row_dim);
  places.dx = RowOffsets(problem.dx, problem.want_dx ? row_dim : 0);
  places.mean = RowOffsets(problem.mean, problem.mean.rank);
  places.rstd = RowOffsets(problem.rstd, problem.rstd.rank);
  places.forms.dy = Segments(problem.dy, row_dim);
  places.forms.x = Segments(problem.x, row_dim);
  if (problem.want_dx) places.forms.dx = Segments(problem.dx, row_dim);
  return places;
}

Status parse(const Arguments& arguments, Launch& launch) {
  Inputs in;
  if (Status s = check_all(arguments, in)) return s;

  Call& call = launch.make<Call>();
  Problem& problem = call.problem;
  problem.row_dim = static_cast<int>(in.x.rank - in.normalized_shape.size());
  problem.rows = in.mean.numel();
  problem.cols = saturating_product(in.normalized_shape);
  problem.want_dx = in.mask[0];
  problem.want_dgamma = in.mask[1];
  problem.want_dbeta = in.mask[2];

  // Operands in the order of the signature; dead ends of the mask keep their numbers.
  // A GPU wants rows that are one run; others are packed for it.
  const auto normalized = static_cast<int>(in.normalized_shape.size());
  const Layout in_rows = rows_of(Launch::on_cuda() ? normalized : 1);
  call.dy = launch.input(in.dy, in_rows, &problem.dy);
  call.x = launch.input(in.x, in_rows, &problem.x);
  call.mean = launch.input(in.mean, kAnyStrides, &problem.mean);
  call.rstd = launch.input(in.rstd, kAnyStrides, &problem.rstd);
  call.gamma = launch.input(in.gamma, kAnyStrides, &problem.gamma);
  launch.unused(in.bias);
  const auto output = [&](const Operand& operand, bool wanted, Layout layout, View& view) {
    return wanted ? launch.output(operand, layout, &view) : launch.unused(operand, true);
  };
  call.dx = output(in.dx, problem.want_dx, in_rows, problem.dx);
  call.dgamma = output(in.dgamma, problem.want_dgamma, kAnyStrides, problem.dgamma);
  call.dbeta = output(in.dbeta, problem.want_dbeta, kAnyStrides, problem.dbeta);
  if (problem.want_dx) {
    launch.allow_in_place(call.dx, call.dy);
    launch.allow_in_place(call.dx, call.x);
  }

  if (aclgrad_verbose()) {
    launch.describe(problem_name(problem), bytes_moved(problem), aclgrad_active_target());
  }
  const bool any_output =
      (problem.want_dx && problem.rows > 0) || problem.want_dgamma || problem.want_dbeta;
  if (problem.cols == 0 || !any_output) return kOk;

  if (Launch::on_cuda()) {
    const GpuScratch scratch = scratch_on_gpu(problem);
    call.gamma_region = launch.book(scratch.lane_sums);
    call.partial_region = launch.book(scratch.parts);
    call.row_region = launch.book(scratch.rows);
    launch.run(call);
    return kOk;
  }
  // In the shape of the normalised dimensions they are one run as well.
  if (problem.want_dgamma) problem.dgamma = collapsed(problem.dgamma);
  if (problem.want_dbeta) problem.dbeta = collapsed(problem.dbeta);
  call.plan = make_plan(problem);
  call.places = make_places(problem);
  call.gamma_region = launch.book(call.plan.gamma_bytes);
  call.partial_region = launch.book(call.plan.partial_bytes);
  call.row_region = launch.book(call.plan.row_bytes);
  launch.run(call);
  return kOk;
}

}  // namespace aclgrad::layer_norm_backward

// SPDX-License-Identifier: Apache-2.0
// Shapes: "32768x2880-g32", rows x cols in even groups that groupIdx names; "...-g2048-giant", all
// rows in the middle one; "16x2048x2048", equal groups without groupIdx.
#include <memory>
#include <optional>
#include <stdexcept>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "bench/bench.h"
#include "ops/grouped_bias_add_grad/cases.h"

namespace aclgrad::bench {
namespace {

struct Tensors {
  Tensors(const Dims& dy_dims, int64_t groups, aclDataType dtype)
      : dy(dy_dims, dtype), out({groups, dy_dims.back()}, dtype) {}

  Tensor dy, out;
  std::optional<Tensor> ends;
};

Problem problem_of(const std::shared_ptr<Tensors>& t) {
  const int64_t bytes = t->dy.bytes() + t->out.bytes() + (t->ends ? t->ends->bytes() : 0);
  return {[t](uint64_t* size, aclOpExecutor** executor) {
            return aclnnGroupedBiasAddGradGetWorkspaceSize(t->dy.handle(),
                                                           t->ends ? t->ends->handle() : nullptr,
                                                           t->out.handle(), size, executor);
          },
          aclnnGroupedBiasAddGrad, bytes, static_cast<double>(t->dy.numel()), Roof::kRead};
}

Problem make(aclDataType dtype, const std::string& shape) {
  const size_t mark = shape.find("-g");
  if (mark == std::string::npos) {
    const Dims dims = parse_dims(shape, 3);
    return problem_of(std::make_shared<Tensors>(dims, dims[0], dtype));
  }
  std::string count = shape.substr(mark + 2);
  const size_t suffix = count.find("-giant");
  const bool giant = suffix != std::string::npos;
  if (giant) count.erase(suffix);
  const Dims dims = parse_dims(shape.substr(0, mark), 2);
  const int64_t groups = parse_dims(count, 1)[0];
  if (groups < 1 || groups > 2048)
    throw std::invalid_argument(shape + ": expected 1 to 2048 groups");
  std::vector<double> ends;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t even = dims[0] * (group + 1) / groups;
    ends.push_back(static_cast<double>(giant ? (group < groups / 2 ? 0 : dims[0]) : even));
  }
  auto t = std::make_shared<Tensors>(dims, groups, dtype);
  t->ends.emplace(Dims{groups}, ACL_INT64);
  t->ends->fill(ends);
  return problem_of(t);
}

[[maybe_unused]] const bool added = add(
    {"grouped_bias_add_grad", make, in_dtypes(kAllFloats, grouped_bias_add_grad::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

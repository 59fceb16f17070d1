// SPDX-License-Identifier: Apache-2.0
// Shapes: "32768x2880-g32", rows x cols in even groups that groupIdx names; "...-g2048-giant", all
// rows in the middle one; "16x2048x2048", equal groups without groupIdx.
#include <charconv>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "bench/bench.h"
#include "ops/grouped_bias_add_grad/cases.h"

namespace aclgrad::bench {
namespace {

constexpr int64_t kMostGroups = 2048;  // the operator's

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

struct Shape {
  Dims dims;
  int64_t groups = 0;  // 0: equal ones, the first dim, without groupIdx
  bool giant = false;
};

Shape parse(const std::string& name) {
  const size_t mark = name.find("-g");
  if (mark == std::string::npos) return {parse_dims(name, 3)};
  std::string count = name.substr(mark + 2);
  const std::string kGiant = "-giant";
  const bool giant = count.ends_with(kGiant);
  if (giant) count.erase(count.size() - kGiant.size());
  int64_t groups = 0;
  const char* const end = count.data() + count.size();
  const auto [next, error] = std::from_chars(count.data(), end, groups);
  if (error != std::errc() || next != end || groups < 1 || groups > kMostGroups) {
    throw std::invalid_argument("shape '" + name + "': expected -g<1 to " +
                                std::to_string(kMostGroups) + ">, then maybe -giant");
  }
  return {parse_dims(name.substr(0, mark), 2), groups, giant};
}

void check(aclDataType, const std::string& name) { parse(name); }

Problem make(aclDataType dtype, const std::string& name) {
  const Shape shape = parse(name);
  if (shape.groups == 0) {
    return problem_of(std::make_shared<Tensors>(shape.dims, shape.dims[0], dtype));
  }
  const int64_t rows = shape.dims[0];
  std::vector<double> ends;
  for (int64_t group = 0; group < shape.groups; ++group) {
    const int64_t even = rows * (group + 1) / shape.groups;
    const int64_t giant = group < shape.groups / 2 ? 0 : rows;
    ends.push_back(static_cast<double>(shape.giant ? giant : even));
  }
  auto t = std::make_shared<Tensors>(shape.dims, shape.groups, dtype);
  t->ends.emplace(Dims{shape.groups}, ACL_INT64);
  t->ends->fill(ends);
  return problem_of(t);
}

[[maybe_unused]] const bool added =
    add({"grouped_bias_add_grad", check, make,
         in_dtypes(kAllFloats, grouped_bias_add_grad::bench_shapes())});

}  // namespace
}  // namespace aclgrad::bench

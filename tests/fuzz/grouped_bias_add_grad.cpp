// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "fuzz/drawn_tensors.h"
#include "fuzz/operators.h"
#include "ops/grouped_bias_add_grad/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

constexpr const char* kNames[] = {"gradY", "groupIdxOptional", "out"};

struct Call : DrawnTensors<3> {
  bool second = false;  // the V2 function
  int64_t type = 0;
  std::vector<int64_t> ends;  // ends, or sizes for type 1
};

// Ends of `groups` groups over the rows, some empty; for sizes their differences.
std::vector<int64_t> draw_ends(Random& random, int64_t groups, int64_t rows, bool sizes) {
  std::vector<int64_t> ends;
  for (int64_t i = 1; i < groups; ++i) ends.push_back(random.integer(0, rows));
  if (random.chance(0.2)) std::fill(ends.begin(), ends.end(), random.chance(0.5) ? 0 : rows);
  std::sort(ends.begin(), ends.end());
  if (groups > 0) ends.push_back(rows);
  if (sizes) {
    for (size_t i = ends.size(); i-- > 1;) ends[i] -= ends[i - 1];
  }
  return ends;
}

// The first group that breaks a rule; -1 if none does.
int64_t first_violation(const Call& c, int64_t rows) {
  constexpr int64_t kMost = 0x7FFFFFFF;
  int64_t end = 0;
  for (size_t i = 0; i < c.ends.size(); ++i) {
    const int64_t previous = end;
    end = c.type == 1 ? previous + c.ends[i] : c.ends[i];
    if (end < previous || end > kMost) return static_cast<int64_t>(i);
  }
  return end == rows ? -1 : static_cast<int64_t>(c.ends.size()) - 1;
}

void draw_call(Random& random, Call& c) {
  const aclDataType dtype = random.pick(kFloats);
  const int64_t cols = draw_length(random, 2000);
  const int64_t rows = draw_length(random, 8000 / std::max<int64_t>(cols, 4));
  c.second = random.chance(0.6);
  if (random.chance(0.25)) {
    const int64_t groups = draw_length(random, 30);
    c.use(0, draw_input(random, {groups, rows, cols}, dtype));
    c.use(2, draw_output(random, {groups, cols}, dtype));
    if (c.second) c.type = random.integer(0, 1);
    return;
  }
  c.type = c.second ? random.integer(0, 1) : 0;
  // No groups while there are rows would miss the last row.
  const int64_t least = rows == 0 ? 0 : 1;
  const int64_t groups = random.chance(0.05) ? 2048 : std::max(least, draw_length(random, 100));
  c.ends = draw_ends(random, groups, rows, c.type == 1);
  if (groups > 0 && random.chance(0.2)) {
    const int64_t wrong[] = {-1, rows + 1, 2 * rows + 5, 3, 0};
    c.ends[static_cast<size_t>(random.integer(0, groups - 1))] = random.pick(wrong);
  }
  c.use(0, draw_input(random, {rows, cols}, dtype));
  // Written through its own strides: a repeated index would not hold different ends.
  c.use(1, draw_output(random, {groups}, random.chance(0.5) ? ACL_INT32 : ACL_INT64));
  c.tensors[1]->fill(std::vector<double>(c.ends.begin(), c.ends.end()));
  c.use(2, draw_output(random, {groups, cols}, dtype));
}

void break_call(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 6);
  a.text += " defect " + std::to_string(kind);
  const Dims grad = c.tensors[0]->dims();
  const Dims out = c.tensors[2]->dims();
  const aclDataType dtype = c.tensors[0]->dtype();
  if (kind == 0) {
    const size_t index = random.chance(0.5) ? 0 : 2;
    c.break_one(random, index, kNames, a);
  } else if (kind == 1 && c.second) {
    c.type = random.pick(std::vector<int64_t>{2, -1, 1 << 20});
    a.refuse(kParamInvalid, "groupIdxType");
  } else if (kind == 2) {
    c.replace(2, {out[0], out[1] + 1}, dtype);
    a.refuse(kParamInvalid, "out");
  } else if (kind == 3) {
    c.replace(2, out, dtype == ACL_FLOAT ? ACL_BF16 : ACL_FLOAT);
    a.refuse(kParamInvalid, "out");
  } else if (kind == 4 && c.tensors[1] != nullptr) {
    c.replace(1, c.tensors[1]->dims(), random.chance(0.5) ? ACL_INT16 : ACL_FLOAT);
    a.refuse(kParamInvalid, "groupIdxOptional");
  } else if (kind == 5 && c.tensors[1] != nullptr) {
    c.replace(1, random.chance(0.5) ? Dims{out[0], 1} : Dims{}, ACL_INT64);
    a.refuse(kParamInvalid, "groupIdxOptional");
  } else {
    Dims dims = grad;
    dims.insert(dims.begin(), 1);
    if (grad.size() == 3) dims.push_back(1);
    c.replace(0, dims, dtype);
    a.refuse(kParamInvalid, "gradY");
  }
}

}  // namespace

Attempt draw_grouped_bias_add_grad(Random& random) {
  Attempt a;
  auto c = std::make_shared<Call>();
  draw_call(random, *c);
  a.function = c->second ? "aclnnGroupedBiasAddGradV2" : "aclnnGroupedBiasAddGrad";
  a.inputs = {c->tensors[0]};
  a.outputs = {c->tensors[2]};
  if (c->tensors[1] != nullptr) a.inputs.push_back(c->tensors[1]);
  for (size_t i = 0; i < 3; ++i) {
    if (c->tensors[i] != nullptr) a.describe(kNames[i], *c->tensors[i]);
  }
  a.text += " type=" + std::to_string(c->type) + " groupIdx=";
  for (size_t i = 0; i < std::min<size_t>(c->ends.size(), 20); ++i) {
    a.text += std::to_string(c->ends[i]) + ",";
  }
  const Dims& grad = c->tensors[0]->dims();
  const bool indexed = c->tensors[1] != nullptr;
  const int64_t violation = indexed ? first_violation(*c, grad[0]) : -1;
  if (violation >= 0 && c->tensors[2]->numel() > 0) {
    a.synchronise = ACL_ERROR_RT_AICORE_EXCEPTION;
    a.reported = std::to_string(violation);
  }
  const auto groups = indexed ? grouped_bias_add_grad::named_groups(c->ends, c->type == 1, grad[0])
                              : grouped_bias_add_grad::equal_groups(grad[0], grad[1]);
  const auto exact =
      std::make_shared<grouped_bias_add_grad::Reference>(grouped_bias_add_grad::reference(
          static_cast<size_t>(grad.back()), c->tensors[0]->values(), groups));
  if (random.chance(0.2)) break_call(random, *c, a);
  a.plan = [c](uint64_t* size, aclOpExecutor** executor) {
    auto* out = const_cast<aclTensor*>(c->handles[2]);
    return c->second ? aclnnGroupedBiasAddGradV2GetWorkspaceSize(c->handles[0], c->handles[1],
                                                                 c->type, out, size, executor)
                     : aclnnGroupedBiasAddGradGetWorkspaceSize(c->handles[0], c->handles[1], out,
                                                               size, executor);
  };
  a.execute = c->second ? aclnnGroupedBiasAddGradV2 : aclnnGroupedBiasAddGrad;
  const auto terms = static_cast<double>(grad.size() == 3 ? grad[1] : grad[0]);
  a.check = [c, exact, terms, function = a.function] {
    test::expect_close(function, *c->tensors[2], exact->dbias, exact->dbias_magnitude, terms);
  };
  return a;
}

}  // namespace aclgrad::fuzz

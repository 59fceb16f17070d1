// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "fuzz/operators.h"
#include "fuzz/windows.h"
#include "ops/nsa_compress_grad/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

enum Index : size_t { kDy, kX, kW, kDx, kDw, kCount };
constexpr const char* kNames[kCount] = {"outputGrad", "input", "weight", "inputGradOut",
                                        "weightGradOut"};
struct Call : WindowCall<kCount> {
  bool no_ends = false;
};

aclnnStatus plan(const Call& c, uint64_t* size, aclOpExecutor** executor) {
  const test::IntArray ends(c.ends);
  std::string layout = c.layout;
  return aclnnNsaCompressGradGetWorkspaceSize(c.handles[kDy], c.handles[kX], c.handles[kW],
                                              c.no_ends ? nullptr : ends.handle(), c.window, c.step,
                                              c.type, layout.empty() ? nullptr : layout.data(),
                                              c.writable(kDx), c.writable(kDw), size, executor);
}

std::vector<int64_t> draw_call(Random& random, Call& c) {
  const aclDataType dtype = random.chance(0.5) ? ACL_FLOAT16 : ACL_BF16;
  c.step = 16 * random.integer(1, 3);
  c.window = c.step + 16 * random.integer(1, random.chance(0.1) ? 20 : 4);
  const Dims tokens = draw_tokens(random, 20);
  c.no_ends = random.chance(0.3);
  // An empty array is as none.
  if (!c.no_ends && !random.chance(0.1)) c.ends = draw_ends(random, tokens[0]);
  std::vector<int64_t> starts =
      nsa_compress_grad::window_starts(tokens[0], c.window, c.step, c.ends);
  c.use(kDy, draw_input(random, {std::ssize(starts), tokens[1], tokens[2]}, dtype));
  c.use(kX, draw_input(random, tokens, dtype));
  c.use(kW, draw_input(random, {c.window, tokens[1]}, dtype));
  const bool in_place = random.chance(0.1) && !repeats(*c.tensors[kX]);
  c.use(kDx, in_place ? c.tensors[kX] : draw_output(random, tokens, dtype));
  c.use(kDw, draw_output(random, {c.window, tokens[1]}, dtype));
  c.layout = random.chance(0.5) ? "TND" : "";
  fill_floats(random, *c.tensors[kDy]);
  fill_floats(random, *c.tensors[kX]);
  fill_finite(random, *c.tensors[kW], true);
  return starts;
}

void break_call(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 6);
  a.text += " defect " + std::to_string(kind);
  if (kind < 4) {
    break_alike(random, c, kNames, kind, a);
  } else if (kind == 4) {
    break_sizes(random, c, 0, {0, -32}, a);
  } else if (kind == 5) {
    c.no_ends = false;
    const int64_t tokens = c.tensors[kX]->dims()[0];
    c.ends = random.chance(0.5) ? Dims{0, -1} : Dims{tokens + 1};
    a.refuse(kParamInvalid, "actSeqLen");
  } else {
    const auto index = static_cast<size_t>(random.integer(0, kCount - 1));
    Dims dims = c.tensors[index]->dims();
    dims[static_cast<size_t>(random.integer(0, std::ssize(dims) - 1))] += 16;
    c.replace(index, dims, c.tensors[index]->dtype());
    a.refuse(kParamInvalid, "");
  }
}

}  // namespace

Attempt draw_nsa_compress_grad(Random& random) {
  Attempt a;
  a.function = "aclnnNsaCompressGrad";
  auto c = std::make_shared<Call>();
  const std::vector<int64_t> starts = draw_call(random, *c);
  c->describe(kNames, kDx, a);
  a.text += c->text();
  const auto size = [&](size_t i) { return static_cast<size_t>(c->tensors[kX]->dims()[i]); };
  const auto exact = std::make_shared<nsa_compress_grad::Reference>(nsa_compress_grad::reference(
      size(1), size(2), static_cast<size_t>(c->window), starts, c->tensors[kDy]->values(),
      c->tensors[kX]->values(), c->tensors[kW]->values()));
  const int64_t windows_of_a_token = c->window / c->step + 1;
  const auto dx_terms = static_cast<double>(windows_of_a_token);
  const auto dw_terms = static_cast<double>(starts.size() * size(2));
  if (random.chance(0.2)) break_call(random, *c, a);
  a.plan = [c](uint64_t* workspace, aclOpExecutor** executor) {
    return plan(*c, workspace, executor);
  };
  a.execute = aclnnNsaCompressGrad;
  a.check = [c, exact, dx_terms, dw_terms] {
    test::expect_close("aclnnNsaCompressGrad dx", *c->tensors[kDx], exact->dx, exact->dx_magnitude,
                       dx_terms);
    test::expect_close("aclnnNsaCompressGrad dw", *c->tensors[kDw], exact->dw, exact->dw_magnitude,
                       dw_terms);
  };
  return a;
}

}  // namespace aclgrad::fuzz

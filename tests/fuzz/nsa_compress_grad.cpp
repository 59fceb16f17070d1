// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "fuzz/attempt.h"
#include "ops/nsa_compress_grad/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

enum Index : size_t { kDy, kX, kW, kDx, kDw, kCount };
constexpr const char* kNames[kCount] = {"outputGrad", "input", "weight", "inputGradOut",
                                        "weightGradOut"};

struct Call {
  TensorPointer tensors[kCount];
  const aclTensor* handles[kCount] = {};
  std::vector<int64_t> ends;  // as given
  bool no_ends = false;
  int64_t window = 0;
  int64_t step = 0;
  int64_t type = 0;
  std::string layout;  // "": null
  std::vector<std::shared_ptr<void>> kept;

  void use(size_t index, TensorPointer tensor) {
    tensors[index] = std::move(tensor);
    handles[index] = tensors[index]->handle();
  }
  void replace(size_t index, const Dims& dims, aclDataType dtype) {
    auto tensor = std::make_shared<Tensor>(dims, dtype);
    handles[index] = tensor->handle();
    kept.push_back(std::move(tensor));
  }
};

aclnnStatus plan(const Call& c, uint64_t* size, aclOpExecutor** executor) {
  const test::IntArray ends(c.ends);
  std::string layout = c.layout;
  return aclnnNsaCompressGradGetWorkspaceSize(c.handles[kDy], c.handles[kX], c.handles[kW],
                                              c.no_ends ? nullptr : ends.handle(), c.window, c.step,
                                              c.type, layout.empty() ? nullptr : layout.data(),
                                              c.handles[kDx], c.handles[kDw], size, executor);
}

bool repeats(const Tensor& tensor) {
  for (size_t i = 0; i < tensor.dims().size(); ++i) {
    if (tensor.dims()[i] > 1 && tensor.strides()[i] == 0) return true;
  }
  return false;
}

// Ends of sequences, some of them empty or shorter than a window; rows may be left over.
void draw_ends(Random& random, Call& c, int64_t tokens) {
  c.no_ends = random.chance(0.3);
  if (c.no_ends || random.chance(0.1)) return;  // an empty array is as none
  for (int64_t i = random.integer(1, 6); i > 0; --i) c.ends.push_back(random.integer(0, tokens));
  if (random.chance(0.5)) c.ends.push_back(tokens);
  if (random.chance(0.2)) c.ends.push_back(0);
  std::sort(c.ends.begin(), c.ends.end());
}

std::vector<int64_t> draw_call(Random& random, Call& c) {
  const aclDataType dtype = random.chance(0.5) ? ACL_FLOAT16 : ACL_BF16;
  c.step = 16 * random.integer(1, 3);
  c.window = c.step + 16 * random.integer(1, random.chance(0.1) ? 20 : 4);
  const int64_t heads = random.chance(0.03) ? 0 : random.integer(1, random.chance(0.1) ? 20 : 3);
  const int64_t width =
      random.chance(0.03) ? 0 : 16 * random.integer(1, random.chance(0.1) ? 20 : 4);
  const int64_t most = std::max<int64_t>(20000 / std::max<int64_t>(heads * width, 1), 40);
  const int64_t tokens = random.chance(0.03) ? 0 : random.integer(1, std::min<int64_t>(most, 600));
  draw_ends(random, c, tokens);
  std::vector<int64_t> starts = nsa_compress_grad::window_starts(tokens, c.window, c.step, c.ends);
  const auto windows = static_cast<int64_t>(starts.size());
  c.use(kDy, draw_input(random, {windows, heads, width}, dtype));
  c.use(kX, draw_input(random, {tokens, heads, width}, dtype));
  c.use(kW, draw_input(random, {c.window, heads}, dtype));
  const bool in_place = random.chance(0.1) && !repeats(*c.tensors[kX]);
  c.use(kDx, in_place ? c.tensors[kX] : draw_output(random, {tokens, heads, width}, dtype));
  c.use(kDw, draw_output(random, {c.window, heads}, dtype));
  c.layout = random.chance(0.5) ? "TND" : "";
  fill_floats(random, *c.tensors[kDy]);
  fill_floats(random, *c.tensors[kX]);
  fill_finite(random, *c.tensors[kW], true);
  return starts;
}

void break_sizes(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 3);
  if (kind == 0) {
    c.window += random.integer(1, 15);
    a.refuse(kParamInvalid, "compressBlockSize");
  } else if (kind == 1) {
    c.step = random.pick(std::vector<int64_t>{0, -16, 8, 17});
    a.refuse(kParamInvalid, "compressStride");
  } else if (kind == 2) {
    c.step = c.window;
    a.refuse(kParamInvalid, "compressStride");
  } else {
    c.window = random.pick(std::vector<int64_t>{0, -32});
    a.refuse(kParamInvalid, "compressBlockSize");
  }
}

void break_call(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 6);
  a.text += " defect " + std::to_string(kind);
  const auto index = static_cast<size_t>(random.integer(0, kCount - 1));
  Dims dims = c.tensors[index]->dims();
  const aclDataType dtype = c.tensors[index]->dtype();
  if (kind == 0) {
    BrokenTensor broken = break_tensor(random, *c.tensors[index], kNames[index], a);
    c.handles[index] = broken.handle;
    c.kept.push_back(broken.kept);
  } else if (kind == 1) {
    break_sizes(random, c, a);
  } else if (kind == 2) {
    c.type = random.pick(std::vector<int64_t>{1, -1, 2});
    a.refuse(kParamInvalid, "actSeqLenType");
  } else if (kind == 3) {
    c.layout = random.pick(std::vector<std::string>{"BSND", "tnd", "TNDX", "T"});
    a.refuse(kParamInvalid, "layout");
  } else if (kind == 4) {
    c.no_ends = false;
    const int64_t tokens = c.tensors[kX]->dims()[0];
    c.ends = random.chance(0.5) ? Dims{0, -1} : Dims{tokens + 1};
    a.refuse(kParamInvalid, "actSeqLen");
  } else if (kind == 5) {
    const aclDataType other = dtype == ACL_BF16 ? ACL_FLOAT16 : ACL_BF16;
    c.replace(index, dims, random.chance(0.5) ? ACL_FLOAT : other);
    a.refuse(kParamInvalid, "");
  } else {
    dims[static_cast<size_t>(random.integer(0, static_cast<int64_t>(dims.size()) - 1))] += 16;
    c.replace(index, dims, dtype);
    a.refuse(kParamInvalid, "");
  }
}

}  // namespace

Attempt draw_nsa_compress_grad(Random& random) {
  Attempt a;
  a.function = "aclnnNsaCompressGrad";
  auto c = std::make_shared<Call>();
  const std::vector<int64_t> starts = draw_call(random, *c);
  for (size_t i = 0; i < kCount; ++i) {
    a.describe(kNames[i], *c->tensors[i]);
    (i < kDx ? a.inputs : a.outputs).push_back(c->tensors[i]);
  }
  a.text += " window=" + std::to_string(c->window) + " step=" + std::to_string(c->step) + " ends=";
  for (const int64_t end : c->ends) a.text += std::to_string(end) + ",";
  const auto size = [&](size_t i) { return static_cast<size_t>(c->tensors[kX]->dims()[i]); };
  const auto exact = std::make_shared<nsa_compress_grad::Reference>(nsa_compress_grad::reference(
      size(1), size(2), static_cast<size_t>(c->window), starts, c->tensors[kDy]->values(),
      c->tensors[kX]->values(), c->tensors[kW]->values()));
  const auto dx_terms = static_cast<double>(c->window / c->step + 1);
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

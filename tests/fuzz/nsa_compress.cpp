// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "aclnnop/aclnn_nsa_compress.h"
#include "fuzz/attempt.h"
#include "ops/nsa_compress/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

enum Index : size_t { kX, kW, kY, kCount };
constexpr const char* kNames[kCount] = {"input", "weight", "output"};

struct Call {
  TensorPointer tensors[kCount];
  const aclTensor* handles[kCount] = {};
  std::vector<int64_t> ends;
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
  return aclnnNsaCompressGetWorkspaceSize(
      c.handles[kX], c.handles[kW], ends.handle(), layout.empty() ? nullptr : layout.data(),
      c.window, c.step, c.type, const_cast<aclTensor*>(c.handles[kY]), size, executor);
}

// Ends of sequences, some of them empty or shorter than a window; rows may be left over.
void draw_ends(Random& random, Call& c, int64_t tokens) {
  for (int64_t i = random.integer(1, 6); i > 0; --i) c.ends.push_back(random.integer(0, tokens));
  if (random.chance(0.5)) c.ends.push_back(tokens);
  if (random.chance(0.2)) c.ends.push_back(0);
  std::sort(c.ends.begin(), c.ends.end());
}

std::vector<int64_t> draw_call(Random& random, Call& c) {
  const aclDataType dtype = random.chance(0.5) ? ACL_FLOAT16 : ACL_BF16;
  c.step = 16 * random.integer(1, 3);
  c.window = c.step + 16 * random.integer(0, random.chance(0.1) ? 5 : 3);
  const int64_t heads = random.chance(0.03) ? 0 : random.integer(1, random.chance(0.1) ? 20 : 3);
  const int64_t width =
      random.chance(0.03) ? 0 : 16 * random.integer(1, random.chance(0.1) ? 16 : 4);
  const int64_t most = std::max<int64_t>(20000 / std::max<int64_t>(heads * width, 1), 40);
  const int64_t tokens = random.chance(0.03) ? 0 : random.integer(1, std::min<int64_t>(most, 600));
  draw_ends(random, c, tokens);
  std::vector<int64_t> starts = nsa_compress::window_starts(c.window, c.step, c.ends);
  const auto windows = static_cast<int64_t>(starts.size());
  c.use(kX, draw_input(random, {tokens, heads, width}, dtype));
  c.use(kW, draw_input(random, {c.window, heads}, dtype));
  c.use(kY, draw_output(random, {windows, heads, width}, dtype));
  c.layout = random.chance(0.5) ? "TND" : "";
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
    c.step = c.window + 16;
    a.refuse(kParamInvalid, "compressStride");
  } else {
    c.window = random.pick(std::vector<int64_t>{0, -32, 144});
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
    const int64_t tokens = c.tensors[kX]->dims()[0];
    const Dims wrong[] = {{0, -1}, {tokens + 1}, {}};
    c.ends = random.pick(wrong);
    a.refuse(kParamInvalid, "actSeqLen");
  } else if (kind == 5) {
    const aclDataType other = dtype == ACL_BF16 ? ACL_FLOAT16 : ACL_BF16;
    c.replace(index, dims, random.chance(0.5) ? ACL_FLOAT : other);
    a.refuse(kParamInvalid, "");
  } else {
    // More tokens than the sequences have are no defect.
    const int64_t least = index == kX ? 1 : 0;
    const auto most = static_cast<int64_t>(dims.size()) - 1;
    dims[static_cast<size_t>(random.integer(least, most))] += 256;
    c.replace(index, dims, dtype);
    a.refuse(kParamInvalid, "");
  }
}

}  // namespace

Attempt draw_nsa_compress(Random& random) {
  Attempt a;
  a.function = "aclnnNsaCompress";
  auto c = std::make_shared<Call>();
  const std::vector<int64_t> starts = draw_call(random, *c);
  for (size_t i = 0; i < kCount; ++i) {
    a.describe(kNames[i], *c->tensors[i]);
    (i < kY ? a.inputs : a.outputs).push_back(c->tensors[i]);
  }
  a.text += " window=" + std::to_string(c->window) + " step=" + std::to_string(c->step) + " ends=";
  for (const int64_t end : c->ends) a.text += std::to_string(end) + ",";
  const auto size = [&](size_t i) { return static_cast<size_t>(c->tensors[kX]->dims()[i]); };
  const auto exact = std::make_shared<nsa_compress::Reference>(
      nsa_compress::reference(size(1), size(2), static_cast<size_t>(c->window), starts,
                              c->tensors[kX]->values(), c->tensors[kW]->values()));
  const auto terms = static_cast<double>(c->window);
  if (random.chance(0.2)) break_call(random, *c, a);
  a.plan = [c](uint64_t* workspace, aclOpExecutor** executor) {
    return plan(*c, workspace, executor);
  };
  a.execute = aclnnNsaCompress;
  a.check = [c, exact, terms] {
    test::expect_close("aclnnNsaCompress", *c->tensors[kY], exact->y, exact->y_magnitude, terms);
  };
  return a;
}

}  // namespace aclgrad::fuzz

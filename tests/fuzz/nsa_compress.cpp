// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_nsa_compress.h"
#include "fuzz/operators.h"
#include "fuzz/windows.h"
#include "ops/nsa_compress/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

enum Index : size_t { kX, kW, kY, kCount };
constexpr const char* kNames[kCount] = {"input", "weight", "output"};
using Call = WindowCall<kCount>;

aclnnStatus plan(const Call& c, uint64_t* size, aclOpExecutor** executor) {
  const test::IntArray ends(c.ends);
  std::string layout = c.layout;
  return aclnnNsaCompressGetWorkspaceSize(c.handles[kX], c.handles[kW], ends.handle(),
                                          layout.empty() ? nullptr : layout.data(), c.window,
                                          c.step, c.type, c.writable(kY), size, executor);
}

std::vector<int64_t> draw_call(Random& random, Call& c) {
  const aclDataType dtype = random.chance(0.5) ? ACL_FLOAT16 : ACL_BF16;
  c.step = 16 * random.integer(1, 3);
  c.window = c.step + 16 * random.integer(0, random.chance(0.1) ? 5 : 3);
  const Dims tokens = draw_tokens(random, 16);
  c.ends = draw_ends(random, tokens[0]);
  std::vector<int64_t> starts = nsa_compress::window_starts(c.window, c.step, c.ends);
  c.use(kX, draw_input(random, tokens, dtype));
  c.use(kW, draw_input(random, {c.window, tokens[1]}, dtype));
  c.use(kY, draw_output(random, {std::ssize(starts), tokens[1], tokens[2]}, dtype));
  c.layout = random.chance(0.5) ? "TND" : "";
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
    break_sizes(random, c, 16, {0, -32, 144}, a);
  } else if (kind == 5) {
    const int64_t tokens = c.tensors[kX]->dims()[0];
    const Dims wrong[] = {{0, -1}, {tokens + 1}, {}};
    c.ends = random.pick(wrong);
    a.refuse(kParamInvalid, "actSeqLen");
  } else {
    // More tokens than the sequences have are no defect.
    const auto index = static_cast<size_t>(random.integer(0, kCount - 1));
    Dims dims = c.tensors[index]->dims();
    const int64_t least = index == kX ? 1 : 0;
    const auto most = static_cast<int64_t>(dims.size()) - 1;
    dims[static_cast<size_t>(random.integer(least, most))] += 256;
    c.replace(index, dims, c.tensors[index]->dtype());
    a.refuse(kParamInvalid, "");
  }
}

}  // namespace

Attempt draw_nsa_compress(Random& random) {
  Attempt a;
  a.function = "aclnnNsaCompress";
  auto c = std::make_shared<Call>();
  const std::vector<int64_t> starts = draw_call(random, *c);
  c->describe(kNames, kY, a);
  a.text += c->text();
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

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <numeric>

#include "aclnnop/aclnn_layer_norm.h"
#include "fuzz/operators.h"
#include "ops/layer_norm/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

enum Index : size_t { kX, kGamma, kBeta, kY, kMean, kRstd, kCount };
constexpr const char* kNames[kCount] = {"input", "weightOptional",  "biasOptional",
                                        "out",   "meanOutOptional", "rstdOutOptional"};

struct Call {
  Dims normalized;
  bool no_normalized = false;
  bool with_mode = false;
  int32_t mode = 0;
  double eps = 0.0;
  TensorPointer tensors[kCount];
  const aclTensor* handles[kCount] = {};
  std::vector<std::shared_ptr<void>> kept;
  size_t rows = 0;
  size_t cols = 0;

  void use(size_t index, TensorPointer tensor) {
    tensors[index] = std::move(tensor);
    handles[index] = tensors[index]->handle();
  }
  // Only for arguments that are to be refused: the tensor in its place stays for the others.
  void replace(size_t index, TensorPointer tensor) {
    handles[index] = tensor->handle();
    kept.push_back(std::move(tensor));
  }
};

int64_t product(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

aclnnStatus plan(const Call& c, uint64_t* size, aclOpExecutor** executor) {
  const test::IntArray normalized(c.normalized);
  const aclIntArray* shape = c.no_normalized ? nullptr : normalized.handle();
  const auto writable = [&](size_t i) { return const_cast<aclTensor*>(c.handles[i]); };
  if (c.with_mode) {
    return aclnnLayerNormWithImplModeGetWorkspaceSize(
        c.handles[kX], shape, c.handles[kGamma], c.handles[kBeta], c.eps, writable(kY),
        writable(kMean), writable(kRstd), c.mode, size, executor);
  }
  return aclnnLayerNormGetWorkspaceSize(c.handles[kX], shape, c.handles[kGamma], c.handles[kBeta],
                                        c.eps, writable(kY), writable(kMean), writable(kRstd), size,
                                        executor);
}

void draw_call(Random& random, Call& c) {
  const auto rank = static_cast<size_t>(random.integer(1, 5));
  const Dims dims = draw_dims(random, rank, random.chance(0.05) ? 50000 : 5000);
  const auto split = random.integer(0, static_cast<int64_t>(rank) - 1);
  c.normalized.assign(dims.begin() + split, dims.end());
  const int64_t rows = product(Dims(dims.begin(), dims.begin() + split));
  c.rows = static_cast<size_t>(rows);
  c.cols = static_cast<size_t>(product(c.normalized));
  c.with_mode = random.chance(0.3);
  c.mode = c.with_mode ? static_cast<int32_t>(random.integer(0, 1)) : 0;
  const double epsilons[] = {1e-5, 1e-5, 1e-3, 1e-8, 1.0, 100.0};
  c.eps = random.pick(epsilons);
  const aclDataType dtype = random.pick(kFloats);
  const aclDataType weights = random.chance(0.5) ? ACL_FLOAT : dtype;
  c.use(kX, draw_input(random, dims, dtype));
  if (random.chance(0.7)) c.use(kGamma, draw_input(random, c.normalized, weights));
  if (random.chance(0.7)) c.use(kBeta, draw_input(random, c.normalized, weights));
  c.use(kY, draw_output(random, dims, random.pick(kFloats)));
  for (const size_t i : {kMean, kRstd}) {
    if (random.chance(0.7)) {
      const Dims stats = draw_factors(random, rows);
      c.use(i, draw_output(random, stats, random.pick(kFloats)));
    }
  }
  fill_floats(random, *c.tensors[kX]);
  for (const size_t i : {kGamma, kBeta}) {
    if (c.tensors[i] != nullptr) fill_finite(random, *c.tensors[i], true);
  }
}

void break_call(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 7);
  a.text += " defect " + std::to_string(kind);
  if (kind == 0) {
    const size_t index = random.chance(0.5) ? kX : kY;
    BrokenTensor broken = break_tensor(random, *c.tensors[index], kNames[index], a);
    c.handles[index] = broken.handle;
    c.kept.push_back(broken.kept);
  } else if (kind == 1) {
    c.no_normalized = true;
    a.refuse(kParamNullptr, "normalizedShape");
  } else if (kind == 2) {
    const int64_t last = static_cast<int64_t>(c.normalized.size()) - 1;
    ++c.normalized[static_cast<size_t>(random.integer(0, last))];
    a.refuse(kParamInvalid, "normalizedShape");
  } else if (kind == 3) {
    c.normalized = random.chance(0.5) ? Dims{} : Dims(c.tensors[kX]->dims().size() + 1, 1);
    a.refuse(kParamInvalid, "normalizedShape");
  } else if (kind == 4) {
    Dims dims = c.normalized;
    dims.insert(dims.begin(), 1);  // as many elements, but not exactly the shape
    const size_t index = random.chance(0.5) ? kGamma : kBeta;
    for (const size_t i : {kGamma, kBeta}) c.handles[i] = nullptr;
    c.replace(index, std::make_shared<Tensor>(dims, ACL_FLOAT));
    a.refuse(kParamInvalid, kNames[index]);
  } else if (kind == 5) {
    Dims dims = c.tensors[kX]->dims();
    ++dims[static_cast<size_t>(random.integer(0, std::ssize(dims) - 1))];
    c.replace(kY, std::make_shared<Tensor>(dims, ACL_FLOAT));
    a.refuse(kParamInvalid, "out");
  } else if (kind == 6) {
    const size_t index = random.chance(0.5) ? kMean : kRstd;
    const Dims dims = {static_cast<int64_t>(c.rows) + random.integer(1, 3)};
    c.replace(index, std::make_shared<Tensor>(dims, ACL_FLOAT));
    a.refuse(kParamInvalid, kNames[index]);
  } else {
    c.with_mode = true;
    c.mode = random.chance(0.5) ? 3 : -1;
    a.refuse(kParamInvalid, "implMode");
  }
}

void compare(const Call& c, const layer_norm::Reference& exact) {
  const std::string name = c.with_mode ? "aclnnLayerNormWithImplMode " : "aclnnLayerNorm ";
  test::expect_close(name + "out", *c.tensors[kY], exact.y, exact.y_magnitude, 8);
  if (c.tensors[kMean] != nullptr) {
    test::expect_close(name + "mean", *c.tensors[kMean], exact.mean, exact.mean_magnitude, 8);
  }
  if (c.tensors[kRstd] != nullptr) {
    test::expect_close(name + "rstd", *c.tensors[kRstd], exact.rstd, exact.rstd_magnitude, 8);
  }
}

}  // namespace

Attempt draw_layer_norm(Random& random) {
  Attempt a;
  auto c = std::make_shared<Call>();
  draw_call(random, *c);
  for (size_t i = 0; i < kCount; ++i) {
    if (c->tensors[i] == nullptr) continue;
    a.describe(kNames[i], *c->tensors[i]);
    (i < kY ? a.inputs : a.outputs).push_back(c->tensors[i]);
  }
  a.text += " rows=" + std::to_string(c->rows) + " cols=" + std::to_string(c->cols) +
            " eps=" + std::to_string(c->eps);
  if (random.chance(0.2)) break_call(random, *c, a);
  a.function = c->with_mode ? "aclnnLayerNormWithImplMode" : "aclnnLayerNorm";
  const auto values = [&](size_t i) {
    return c->tensors[i] == nullptr ? std::vector<double>() : c->tensors[i]->values();
  };
  const auto exact = std::make_shared<layer_norm::Reference>(
      layer_norm::reference(c->rows, c->cols, values(kX), values(kGamma), values(kBeta), c->eps));
  a.plan = [c](uint64_t* size, aclOpExecutor** executor) { return plan(*c, size, executor); };
  a.execute = c->with_mode ? aclnnLayerNormWithImplMode : aclnnLayerNorm;
  a.check = [c, exact] { compare(*c, *exact); };
  return a;
}

}  // namespace aclgrad::fuzz

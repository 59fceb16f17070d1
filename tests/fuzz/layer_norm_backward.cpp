// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "aclnnop/aclnn_layer_norm_backward.h"
#include "fuzz/operators.h"
#include "ops/layer_norm_backward/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

enum Index : size_t { kDy, kX, kMean, kRstd, kGamma, kBeta, kDx, kDgamma, kDbeta, kCount };
constexpr const char* kNames[kCount] = {"gradOut",      "input",          "mean",
                                        "rstd",         "weightOptional", "biasOptional",
                                        "gradInputOut", "gradWeightOut",  "gradBiasOut"};

struct Call {
  Dims normalized;
  std::vector<bool> mask;
  bool no_normalized = false;
  bool no_mask = false;
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

aclTensor* writable(const aclTensor* handle) { return const_cast<aclTensor*>(handle); }

aclnnStatus plan(const Call& c, uint64_t* size, aclOpExecutor** executor) {
  const test::IntArray normalized(c.normalized);
  const test::BoolArray mask(c.mask);
  return aclnnLayerNormBackwardGetWorkspaceSize(
      c.handles[kDy], c.handles[kX], c.no_normalized ? nullptr : normalized.handle(),
      c.handles[kMean], c.handles[kRstd], c.handles[kGamma], c.handles[kBeta],
      c.no_mask ? nullptr : mask.handle(), writable(c.handles[kDx]), writable(c.handles[kDgamma]),
      writable(c.handles[kDbeta]), size, executor);
}

void draw_inputs(Random& random, Call& c) {
  const auto rank = static_cast<size_t>(random.integer(1, 5));
  const Dims dims = draw_dims(random, rank, 5000);
  const auto split = random.integer(0, static_cast<int64_t>(rank) - 1);
  c.normalized.assign(dims.begin() + split, dims.end());
  const int64_t rows = product(Dims(dims.begin(), dims.begin() + split));
  c.rows = static_cast<size_t>(rows);
  c.cols = static_cast<size_t>(product(c.normalized));
  const aclDataType dtype = random.pick(kFloats);
  c.use(kDy, draw_input(random, dims, dtype));
  c.use(kX, draw_input(random, dims, dtype));
  const Dims stats = draw_factors(random, rows);
  c.use(kMean, draw_input(random, stats, random.pick(kFloats)));
  c.use(kRstd, draw_input(random, stats, random.pick(kFloats)));
  if (random.chance(0.7)) {
    c.use(kGamma, draw_input(random, c.normalized, random.chance(0.5) ? ACL_FLOAT : dtype));
  }
  if (random.chance(0.5)) c.use(kBeta, draw_input(random, c.normalized, random.pick(kFloats)));
  for (const size_t i : {kDy, kX}) fill_floats(random, *c.tensors[i]);
  // Beside Inf a factor that underflows would turn Inf into NaN.
  const bool finite = all_finite(*c.tensors[kDy]) && all_finite(*c.tensors[kX]);
  for (const size_t i : {kMean, kRstd, kGamma}) {
    if (c.tensors[i] != nullptr) fill_finite(random, *c.tensors[i], finite);
  }
}

void draw_outputs(Random& random, Call& c) {
  const auto cols = static_cast<int64_t>(c.cols);
  const Dims& dims = c.tensors[kX]->dims();
  for (size_t i = 0; i < 3; ++i) c.mask.push_back(random.chance(0.85));
  const bool given[3] = {c.mask[0] || random.chance(0.5), c.mask[1] || random.chance(0.5),
                         c.mask[2] || random.chance(0.5)};
  if (given[0]) {
    // In place where an input of the same view can be written.
    const size_t place = random.chance(0.5) ? kDy : kX;
    bool repeats = false;
    for (size_t i = 0; i < dims.size(); ++i) {
      repeats |= dims[i] > 1 && c.tensors[place]->strides()[i] == 0;
    }
    const bool in_place = c.mask[0] && !repeats && random.chance(0.1);
    c.use(kDx, in_place ? c.tensors[place] : draw_output(random, dims, random.pick(kFloats)));
  }
  for (size_t i = 1; i < 3; ++i) {
    if (!given[i]) continue;
    const Dims sums = draw_factors(random, cols);
    c.use(kDx + i, draw_output(random, sums, random.pick(kFloats)));
  }
}

// A tensor like the one there with one dim changed.
TensorPointer with_another_dim(Random& random, const Tensor& tensor) {
  Dims dims = tensor.dims();
  const auto place = static_cast<size_t>(random.integer(0, static_cast<int64_t>(dims.size()) - 1));
  dims[place] += dims[place] > 0 && random.chance(0.5) ? -1 : 1;
  return std::make_shared<Tensor>(dims, tensor.dtype());
}

void break_call(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 9);
  a.text += " defect " + std::to_string(kind);
  if (kind == 0) {
    std::vector<size_t> required = {kDy, kX, kMean, kRstd};
    for (size_t i = 0; i < 3; ++i) {
      if (c.mask[i]) required.push_back(kDx + i);
    }
    const size_t index = random.pick(required);
    BrokenTensor broken = break_tensor(random, *c.tensors[index], kNames[index], a);
    c.handles[index] = broken.handle;
    c.kept.push_back(broken.kept);
  } else if (kind == 1) {
    c.no_normalized = true;
    a.refuse(kParamNullptr, "normalizedShape");
  } else if (kind == 2) {
    c.no_mask = true;
    a.refuse(kParamNullptr, "outputMask");
  } else if (kind == 3) {
    c.mask.resize(random.pick(std::vector<size_t>{0, 1, 2, 4, 7}));
    a.refuse(kParamInvalid, "outputMask");
  } else if (kind == 4) {
    const int64_t last = static_cast<int64_t>(c.normalized.size()) - 1;
    ++c.normalized[static_cast<size_t>(random.integer(0, last))];
    a.refuse(kParamInvalid, "normalizedShape");
  } else if (kind == 5) {
    c.normalized = random.chance(0.5) ? Dims{} : Dims(c.tensors[kX]->dims().size() + 1, 1);
    a.refuse(kParamInvalid, "normalizedShape");
  } else if (kind == 6) {
    c.replace(kDy, with_another_dim(random, *c.tensors[kDy]));
    a.refuse(kParamInvalid, "gradOut");
  } else if (kind == 7) {
    const aclDataType dtype = c.tensors[kX]->dtype() == ACL_FLOAT ? ACL_BF16 : ACL_FLOAT;
    c.replace(kDy, std::make_shared<Tensor>(c.tensors[kDy]->dims(), dtype));
    a.refuse(kParamInvalid, "gradOut");
  } else if (kind == 8) {
    const size_t index = random.chance(0.5) ? kMean : kRstd;
    const Dims dims = {static_cast<int64_t>(c.rows) + random.integer(1, 3)};
    c.replace(index, std::make_shared<Tensor>(dims, ACL_FLOAT));
    a.refuse(kParamInvalid, index == kRstd ? "rstd" : "mean");
  } else {
    Dims dims = c.normalized;
    dims.insert(dims.begin(), 1);  // as many elements, but not exactly the shape
    c.replace(kGamma, std::make_shared<Tensor>(dims, ACL_FLOAT));
    a.refuse(kParamInvalid, "weightOptional");
  }
}

void compare(const Call& c, const layer_norm_backward::Reference& exact) {
  const std::string name = "aclnnLayerNormBackward ";
  const auto rows = static_cast<double>(c.rows);
  if (c.mask[0]) {
    test::expect_close(name + "dx", *c.tensors[kDx], exact.dx, exact.dx_magnitude, 8);
  }
  if (c.mask[1]) {
    test::expect_close(name + "dgamma", *c.tensors[kDgamma], exact.dgamma, exact.dgamma_magnitude,
                       rows);
  }
  if (c.mask[2]) {
    test::expect_close(name + "dbeta", *c.tensors[kDbeta], exact.dbeta, exact.dbeta_magnitude,
                       rows);
  }
  for (size_t i = 0; i < 3; ++i) {
    if (c.mask[i] || c.tensors[kDx + i] == nullptr) continue;
    EXPECT_TRUE(c.tensors[kDx + i]->untouched()) << kNames[kDx + i] << " is masked off";
  }
}

}  // namespace

Attempt draw_layer_norm_backward(Random& random) {
  Attempt a;
  a.function = "aclnnLayerNormBackward";
  auto c = std::make_shared<Call>();
  draw_inputs(random, *c);
  draw_outputs(random, *c);
  for (size_t i = 0; i < kCount; ++i) {
    if (c->tensors[i] == nullptr) continue;
    a.describe(kNames[i], *c->tensors[i]);
    (i < kDx ? a.inputs : a.outputs).push_back(c->tensors[i]);
  }
  a.text += " rows=" + std::to_string(c->rows) + " cols=" + std::to_string(c->cols);
  if (random.chance(0.2)) break_call(random, *c, a);
  const auto values = [&](size_t i) {
    return c->tensors[i] == nullptr ? std::vector<double>() : c->tensors[i]->values();
  };
  const auto exact =
      std::make_shared<layer_norm_backward::Reference>(layer_norm_backward::reference(
          c->rows, c->cols, values(kDy), values(kX), values(kMean), values(kRstd), values(kGamma)));
  a.plan = [c](uint64_t* size, aclOpExecutor** executor) { return plan(*c, size, executor); };
  a.execute = aclnnLayerNormBackward;
  a.check = [c, exact] { compare(*c, *exact); };
  return a;
}

}  // namespace aclgrad::fuzz

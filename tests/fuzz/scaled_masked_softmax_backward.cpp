// SPDX-License-Identifier: Apache-2.0
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"
#include "fuzz/attempt.h"
#include "ops/scaled_masked_softmax_backward/reference.h"
#include "support/compare.h"

namespace aclgrad::fuzz {
namespace {

constexpr const char* kNames[] = {"gradOutput", "y", "mask", "out"};

struct Call {
  TensorPointer tensors[4];
  const aclTensor* handles[4] = {};
  double scale = 1;
  bool triangular = false;
  std::vector<std::shared_ptr<void>> kept;

  void use(size_t index, TensorPointer tensor) {
    tensors[index] = std::move(tensor);
    handles[index] = tensors[index]->handle();
  }
  void replace(size_t index, TensorPointer tensor) {
    handles[index] = tensor->handle();
    kept.push_back(std::move(tensor));
  }
};

bool repeats(const Tensor& tensor) {
  for (size_t i = 0; i < tensor.dims().size(); ++i) {
    if (tensor.dims()[i] > 1 && tensor.strides()[i] == 0) return true;
  }
  return false;
}

void fill_mask(Random& random, Tensor& mask) {
  const double share = random.pick(std::vector<double>{0.0, 0.1, 0.5, 1.0});
  std::vector<uint8_t> bytes(static_cast<size_t>(mask.numel()));
  for (uint8_t& byte : bytes) {
    byte = random.chance(share) ? static_cast<uint8_t>(random.integer(1, 255)) : 0;
  }
  mask.fill_bits(bytes);
}

void draw_call(Random& random, Call& c) {
  Dims dims = draw_dims(random, 4, 6000);
  dims[3] = std::min<int64_t>(dims[3], 4096);
  const aclDataType dtype = random.pick(kFloats);
  Dims mask = dims;
  if (random.chance(0.5)) mask[0] = 1;
  if (random.chance(0.5)) mask[1] = 1;
  c.use(0, draw_input(random, dims, dtype));
  c.use(1, draw_input(random, dims, dtype));
  c.use(2, draw_input(random, mask, ACL_BOOL));
  const auto place = static_cast<size_t>(random.integer(0, 1));
  const bool in_place = random.chance(0.15) && !repeats(*c.tensors[place]);
  c.use(3, in_place ? c.tensors[place] : draw_output(random, dims, dtype));
  fill_floats(random, *c.tensors[0]);
  fill_floats(random, *c.tensors[1]);
  fill_mask(random, *c.tensors[2]);
  c.scale =
      random.pick(std::vector<double>{1.0, 0.125, -2.5, 0.0, 1e-3, 1e9, 1e-40, random.normal()});
}

void break_call(Random& random, Call& c, Attempt& a) {
  const int64_t kind = random.integer(0, 5);
  a.text += " defect " + std::to_string(kind);
  const auto index = static_cast<size_t>(random.integer(0, 3));
  Dims dims = c.tensors[index]->dims();
  if (kind == 0) {
    BrokenTensor broken = break_tensor(random, *c.tensors[index], kNames[index], a);
    c.handles[index] = broken.handle;
    c.kept.push_back(broken.kept);
  } else if (kind == 1) {
    c.triangular = true;
    a.refuse(kParamInvalid, "fixTriuMask");
  } else if (kind == 2) {
    ++dims[static_cast<size_t>(random.integer(2, 3))];
    c.replace(index, std::make_shared<Tensor>(dims, c.tensors[index]->dtype()));
    a.refuse(kParamInvalid, index == 0 ? "" : kNames[index]);
  } else if (kind == 3) {
    dims = c.tensors[0]->dims();
    dims[static_cast<size_t>(random.integer(0, 1))] += 2;  // never 1
    c.replace(2, std::make_shared<Tensor>(dims, ACL_BOOL));
    a.refuse(kParamInvalid, "mask");
  } else if (kind == 4) {
    constexpr size_t kFloating[] = {0, 1, 3};
    const size_t which = random.pick(kFloating);
    const aclDataType dtype = c.tensors[0]->dtype() == ACL_FLOAT ? ACL_FLOAT16 : ACL_FLOAT;
    c.replace(which, std::make_shared<Tensor>(c.tensors[which]->dims(), dtype));
    a.refuse(kParamInvalid, which == 0 ? "" : kNames[which]);
  } else {
    dims.pop_back();
    c.replace(index, std::make_shared<Tensor>(dims, c.tensors[index]->dtype()));
    a.refuse(kParamInvalid, kNames[index]);
  }
}

}  // namespace

Attempt draw_scaled_masked_softmax_backward(Random& random) {
  Attempt a;
  a.function = "aclnnScaledMaskedSoftmaxBackward";
  auto c = std::make_shared<Call>();
  draw_call(random, *c);
  a.inputs = {c->tensors[0], c->tensors[1], c->tensors[2]};
  a.outputs = {c->tensors[3]};
  for (size_t i = 0; i < 4; ++i) a.describe(kNames[i], *c->tensors[i]);
  a.text += " scale=" + std::to_string(c->scale);
  if (random.chance(0.2)) break_call(random, *c, a);
  const auto size = [](const Tensor& tensor, size_t i) {
    return static_cast<size_t>(tensor.dims()[i]);
  };
  const Tensor& y = *c->tensors[1];
  const Tensor& mask = *c->tensors[2];
  const auto exact = std::make_shared<scaled_masked_softmax_backward::Reference>(
      scaled_masked_softmax_backward::reference(
          {size(y, 0), size(y, 1), size(y, 2), size(y, 3), size(mask, 0), size(mask, 1)},
          c->tensors[0]->values(), y.values(), mask.values(), c->scale));
  const auto terms = static_cast<double>(y.dims()[3] + 2);
  a.plan = [c](uint64_t* workspace, aclOpExecutor** executor) {
    return aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
        c->handles[0], c->handles[1], c->handles[2], c->scale, c->triangular,
        const_cast<aclTensor*>(c->handles[3]), workspace, executor);
  };
  a.execute = aclnnScaledMaskedSoftmaxBackward;
  a.check = [c, exact, terms] {
    test::expect_close("aclnnScaledMaskedSoftmaxBackward", *c->tensors[3], exact->dx,
                       exact->dx_magnitude, terms);
  };
  return a;
}

}  // namespace aclgrad::fuzz

// SPDX-License-Identifier: Apache-2.0
#include "tensor/operand.h"

#include "tensor/boundary.h"
#include "tensor/tensor.h"

namespace aclgrad {

extern "C" {

Status aclgrad_read_tensor(const char* op, const char* name, const aclTensor* tensor,
                           Operand& out) {
  out.name = name;
  out.handle = tensor;
  if (tensor == nullptr) return kOk;
  const bool live = tensors.read(tensor, [&](const Tensor& object) { object.read(out); });
  return live ? kOk : refuse_handle(op, name, tensor, Kind::kTensor, kParamInvalid);
}

std::string aclgrad_shape_text(const int64_t* dims, uint64_t rank) {
  std::string text = "[";
  for (uint64_t i = 0; i < rank; ++i) {
    if (i == kMaxRank) {
      text += ",...";
      break;
    }
    if (i > 0) text += ',';
    text += std::to_string(dims[i]);
  }
  return text += ']';
}

}  // extern "C"
}  // namespace aclgrad

// SPDX-License-Identifier: Apache-2.0
#include "fuzz/attempt.h"

namespace aclgrad::fuzz {
namespace {

// Another description of the tensor's memory, destroyed with the pointer.
BrokenTensor described(const Dims& dims, aclDataType dtype, aclFormat format, void* address) {
  aclTensor* handle =
      aclCreateTensor(dims.data(), dims.size(), dtype, nullptr, 0, format, nullptr, 0, address);
  return {handle, std::shared_ptr<void>(handle, [](void* each) {
            static_cast<void>(aclDestroyTensor(static_cast<aclTensor*>(each)));
          })};
}

}  // namespace

BrokenTensor break_tensor(Random& random, const Tensor& tensor, const std::string& name,
                          Attempt& attempt) {
  const Dims& dims = tensor.dims();
  const int64_t kind = random.integer(0, 4);
  attempt.text += " broken(" + name + "," + std::to_string(kind) + ")";
  attempt.refuse(kind == 0 ? kParamNullptr : kParamInvalid, name);
  if (kind == 0) return {};
  if (kind == 1) {
    const aclTensor* dead = tensor.make_handle();
    static_cast<void>(aclDestroyTensor(dead));
    return {dead, nullptr};
  }
  if (kind == 2) {
    constexpr aclFormat kPrivate[] = {ACL_FORMAT_NC1HWC0, ACL_FORMAT_FRACTAL_Z,
                                      ACL_FORMAT_FRACTAL_NZ, ACL_FRACTAL_Z_3D, ACL_FORMAT_NDC1HWC0};
    return described(dims, tensor.dtype(), random.pick(kPrivate), tensor.address());
  }
  if (kind == 3) {
    constexpr aclDataType kNobodys[] = {ACL_DT_UNDEFINED, ACL_STRING, ACL_COMPLEX32, ACL_INT4,
                                        ACL_FLOAT8_E5M2};
    return described(dims, random.pick(kNobodys), ACL_FORMAT_ND, tensor.address());
  }
  Dims many(9, 1);
  many[static_cast<size_t>(random.integer(0, 8))] = tensor.numel();
  return described(many, tensor.dtype(), ACL_FORMAT_ND, tensor.address());
}

}  // namespace aclgrad::fuzz

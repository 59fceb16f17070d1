// SPDX-License-Identifier: Apache-2.0
// Loaded before the training program, this stands between it and the toolkit: the gradient operator
// that ZEROED_OPERATOR names runs as ever, and then all of its outputs are set to zero.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_embedding_dense_backward.h"
#include "aclnnop/aclnn_grouped_bias_add_grad.h"
#include "aclnnop/aclnn_layer_norm_backward.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "aclnnop/aclnn_scaled_masked_softmax_backward.h"

namespace {

struct Output {
  void* memory;
  size_t bytes;
};

// The outputs of planned calls. Never destroyed: the program may plan until its end.
std::map<const aclOpExecutor*, std::vector<Output>>& planned() {
  static auto* all = new std::map<const aclOpExecutor*, std::vector<Output>>;
  return *all;
}

template <class Function>
Function* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    std::fprintf(stderr, "zeroed_operator: no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

Output output_of(const aclTensor* tensor) {
  Output out = {nullptr, 0};
  int64_t* dims = nullptr;
  uint64_t rank = 0;
  aclDataType dtype = ACL_FLOAT;
  if (aclGetRawTensorAddr(tensor, &out.memory) != 0 || aclGetDataType(tensor, &dtype) != 0 ||
      aclGetViewShape(tensor, &dims, &rank) != 0) {
    std::abort();
  }
  out.bytes = aclDataTypeSize(dtype);
  for (uint64_t i = 0; i < rank; ++i) out.bytes *= static_cast<size_t>(dims[i]);
  delete[] dims;
  return out;
}

aclnnStatus remember(aclnnStatus status, aclOpExecutor* const* executor,
                     std::initializer_list<const aclTensor*> outputs) {
  if (status != 0) return status;
  std::vector<Output>& list = planned()[*executor];
  list.clear();
  for (const aclTensor* tensor : outputs) list.push_back(output_of(tensor));
  return status;
}

using PhaseTwo = aclnnStatus(void*, uint64_t, aclOpExecutor*, aclrtStream);

aclnnStatus run(const char* name, void* workspace, uint64_t size, aclOpExecutor* executor,
                aclrtStream stream) {
  const aclnnStatus status = next<PhaseTwo>(name)(workspace, size, executor, stream);
  const char* zeroed = std::getenv("ZEROED_OPERATOR");
  if (status != 0 || zeroed == nullptr || std::strcmp(zeroed, name) != 0) return status;
  for (const Output& output : planned()[executor]) {
    if (output.bytes == 0) continue;
    if (aclrtMemsetAsync(output.memory, output.bytes, 0, output.bytes, stream) != 0) std::abort();
  }
  return status;
}

}  // namespace

extern "C" {

aclnnStatus aclnnLayerNormBackwardGetWorkspaceSize(
    const aclTensor* grad_out, const aclTensor* input, const aclIntArray* normalized,
    const aclTensor* mean, const aclTensor* rstd, const aclTensor* weight, const aclTensor* bias,
    const aclBoolArray* mask, aclTensor* grad_input, aclTensor* grad_weight, aclTensor* grad_bias,
    uint64_t* size, aclOpExecutor** executor) {
  const auto real = next<decltype(aclnnLayerNormBackwardGetWorkspaceSize)>(__func__);
  return remember(real(grad_out, input, normalized, mean, rstd, weight, bias, mask, grad_input,
                       grad_weight, grad_bias, size, executor),
                  executor, {grad_input, grad_weight, grad_bias});
}
aclnnStatus aclnnLayerNormBackward(void* workspace, uint64_t size, aclOpExecutor* executor,
                                   aclrtStream stream) {
  return run(__func__, workspace, size, executor, stream);
}

aclnnStatus aclnnEmbeddingDenseBackwardGetWorkspaceSize(const aclTensor* grad,
                                                        const aclTensor* indices,
                                                        uint64_t num_weights, uint64_t padding,
                                                        bool scale, const aclTensor* out,
                                                        uint64_t* size, aclOpExecutor** executor) {
  const auto real = next<decltype(aclnnEmbeddingDenseBackwardGetWorkspaceSize)>(__func__);
  return remember(real(grad, indices, num_weights, padding, scale, out, size, executor), executor,
                  {out});
}
aclnnStatus aclnnEmbeddingDenseBackward(void* workspace, uint64_t size, aclOpExecutor* executor,
                                        const aclrtStream stream) {
  return run(__func__, workspace, size, executor, stream);
}

aclnnStatus aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize(
    const aclTensor* grad, const aclTensor* y, const aclTensor* mask, double scale, bool triangular,
    aclTensor* out, uint64_t* size, aclOpExecutor** executor) {
  const auto real = next<decltype(aclnnScaledMaskedSoftmaxBackwardGetWorkspaceSize)>(__func__);
  return remember(real(grad, y, mask, scale, triangular, out, size, executor), executor, {out});
}
aclnnStatus aclnnScaledMaskedSoftmaxBackward(void* workspace, uint64_t size,
                                             aclOpExecutor* executor, aclrtStream stream) {
  return run(__func__, workspace, size, executor, stream);
}

aclnnStatus aclnnGroupedBiasAddGradGetWorkspaceSize(const aclTensor* grad, const aclTensor* groups,
                                                    aclTensor* out, uint64_t* size,
                                                    aclOpExecutor** executor) {
  const auto real = next<decltype(aclnnGroupedBiasAddGradGetWorkspaceSize)>(__func__);
  return remember(real(grad, groups, out, size, executor), executor, {out});
}
aclnnStatus aclnnGroupedBiasAddGrad(void* workspace, uint64_t size, aclOpExecutor* executor,
                                    aclrtStream stream) {
  return run(__func__, workspace, size, executor, stream);
}

aclnnStatus aclnnNsaCompressGradGetWorkspaceSize(const aclTensor* output_grad,
                                                 const aclTensor* input, const aclTensor* weight,
                                                 const aclIntArray* ends, int64_t block,
                                                 int64_t stride, int64_t type, char* layout,
                                                 const aclTensor* input_grad,
                                                 const aclTensor* weight_grad, uint64_t* size,
                                                 aclOpExecutor** executor) {
  const auto real = next<decltype(aclnnNsaCompressGradGetWorkspaceSize)>(__func__);
  return remember(real(output_grad, input, weight, ends, block, stride, type, layout, input_grad,
                       weight_grad, size, executor),
                  executor, {input_grad, weight_grad});
}
aclnnStatus aclnnNsaCompressGrad(void* workspace, uint64_t size, aclOpExecutor* executor,
                                 aclrtStream stream) {
  return run(__func__, workspace, size, executor, stream);
}

}  // extern "C"

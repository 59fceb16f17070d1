// SPDX-License-Identifier: Apache-2.0
// aclnnNsaCompressGrad: the gradients of compressing windows of 32 tokens, one every 16 tokens, in
// two sequences of 48 and 40 tokens: two windows and one. All ones in, so a token's gradient counts
// the windows that cover it.
#include "aclnnop/aclnn_nsa_compress_grad.h"

#include "device_tensor.h"

int main() {
  Device device;
  const int64_t tokens = 88, heads = 1, width = 16, block = 32, stride = 16, windows = 3;
  const auto ones = [](int64_t count) {
    return std::vector<uint16_t>(static_cast<size_t>(count), aclFloatToFloat16(1.0f));
  };
  DeviceTensor<uint16_t> output_grad({windows, heads, width}, ACL_FLOAT16,
                                     ones(windows * heads * width));
  DeviceTensor<uint16_t> input({tokens, heads, width}, ACL_FLOAT16, ones(tokens * heads * width));
  DeviceTensor<uint16_t> weight({block, heads}, ACL_FLOAT16, ones(block * heads));
  DeviceTensor<uint16_t> input_grad({tokens, heads, width}, ACL_FLOAT16);
  DeviceTensor<uint16_t> weight_grad({block, heads}, ACL_FLOAT16);
  const int64_t ends[] = {48, 88};  // where the sequences end
  aclIntArray* sequence_ends = aclCreateIntArray(ends, 2);
  char layout[] = "TND";

  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnNsaCompressGradGetWorkspaceSize(
            output_grad.get(), input.get(), weight.get(), sequence_ends, block, stride, 0, layout,
            input_grad.get(), weight_grad.get(), &workspace_size, &executor),
        "aclnnNsaCompressGradGetWorkspaceSize");
  run("aclnnNsaCompressGrad", aclnnNsaCompressGrad, workspace_size, executor);

  const std::vector<uint16_t> tokens_grad = input_grad.read();
  std::printf("gradient of tokens 0, 16, 32, ...:");
  for (size_t token = 0; token < 88; token += 16) {
    std::printf(" %g", static_cast<double>(aclFloat16ToFloat(tokens_grad[token * 16])));
  }
  std::printf("\ngradient of weight 0: %g\n",
              static_cast<double>(aclFloat16ToFloat(weight_grad.read()[0])));
  aclDestroyIntArray(sequence_ends);
  return 0;
}

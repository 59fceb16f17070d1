// SPDX-License-Identifier: Apache-2.0
// The compression of sparse attention and its gradients: aclnnNsaCompress sums windows of 32
// tokens, one every 16 tokens, with a weight for each place of the window; aclnnNsaCompressGrad
// goes back. Two sequences of 48 and 40 tokens lie end to end: no window crosses from one into the
// other.
//
// Every operator is called in two phases. The first, ...GetWorkspaceSize, gets all tensors, checks
// them and says how many bytes of scratch memory the work needs; it computes nothing. The second
// gets that memory and puts the work on a stream. run() of device_tensor.h does the second phase.
#include "aclnnop/aclnn_nsa_compress.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"

#include "../device_tensor.h"

namespace {

const int64_t kTokens = 88, kHeads = 1, kWidth = 16, kBlock = 32, kStride = 16;
const int64_t kWindows = 3;  // tokens 0-31 and 16-47 of the first sequence, 48-79 of the second

// These operators compute in half precision. Sixteen bits travel as uint16_t.
std::vector<uint16_t> halves(int64_t count, float value) {
  return std::vector<uint16_t>(static_cast<size_t>(count), aclFloatToFloat16(value));
}

struct Example {
  DeviceTensor<uint16_t> input{
      {kTokens, kHeads, kWidth}, ACL_FLOAT16, halves(kTokens* kHeads* kWidth, 2.0f)};
  DeviceTensor<uint16_t> weight{{kBlock, kHeads}, ACL_FLOAT16, halves(kBlock* kHeads, 0.25f)};
  DeviceTensor<uint16_t> output{{kWindows, kHeads, kWidth}, ACL_FLOAT16};
};

// Where the sequences end. The list is read in phase one, on the host.
aclIntArray* sequence_ends() {
  const int64_t ends[] = {48, 88};
  return aclCreateIntArray(ends, 2);
}

void forward(Example& e) {
  aclIntArray* ends = sequence_ends();
  char layout[] = "TND";  // tokens, heads, width of a head
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnNsaCompressGetWorkspaceSize(e.input.get(), e.weight.get(), ends, layout, kBlock,
                                         kStride, 0, e.output.get(), &workspace_size, &executor),
        "aclnnNsaCompressGetWorkspaceSize");
  run("aclnnNsaCompress", aclnnNsaCompress, workspace_size, executor);
  aclDestroyIntArray(ends);
}

// The loss is any number made of the output. Here it is the sum of all of it, so that its gradient
// is one everywhere.
double loss(const Example& e) {
  double sum = 0;
  for (const uint16_t value : e.output.read()) sum += static_cast<double>(aclFloat16ToFloat(value));
  return sum;
}

}  // namespace

int main() {
  Device device;
  Example e;
  forward(e);
  const double before = loss(e);
  std::printf("first number of each window:");
  for (size_t window = 0; window < 3; ++window) {
    std::printf(" %g", static_cast<double>(aclFloat16ToFloat(e.output.read()[window * 16])));
  }

  DeviceTensor<uint16_t> output_grad({kWindows, kHeads, kWidth}, ACL_FLOAT16,
                                     halves(kWindows * kHeads * kWidth, 1.0f));
  DeviceTensor<uint16_t> input_grad({kTokens, kHeads, kWidth}, ACL_FLOAT16);
  DeviceTensor<uint16_t> weight_grad({kBlock, kHeads}, ACL_FLOAT16);
  aclIntArray* ends = sequence_ends();
  char layout[] = "TND";
  uint64_t workspace_size = 0;
  aclOpExecutor* executor = nullptr;
  check(aclnnNsaCompressGradGetWorkspaceSize(output_grad.get(), e.input.get(), e.weight.get(), ends,
                                             kBlock, kStride, 0, layout, input_grad.get(),
                                             weight_grad.get(), &workspace_size, &executor),
        "aclnnNsaCompressGradGetWorkspaceSize");
  run("aclnnNsaCompressGrad", aclnnNsaCompressGrad, workspace_size, executor);

  // Tokens that two windows cover get twice as much; the last eight are in none.
  const std::vector<uint16_t> tokens_grad = input_grad.read();
  std::printf("\ngradient of tokens 0, 16, 32, ...:");
  for (size_t token = 0; token < 88; token += 16) {
    std::printf(" %g", static_cast<double>(aclFloat16ToFloat(tokens_grad[token * 16])));
  }

  // The round trip: nudge one weight and see how the loss answers.
  std::vector<uint16_t> weight = e.weight.read();
  weight[7] = aclFloatToFloat16(0.75f);
  e.weight.write(weight);
  forward(e);
  std::printf("\ngradient of weight 7: %g, by difference %g\n",
              static_cast<double>(aclFloat16ToFloat(weight_grad.read()[7])),
              (loss(e) - before) / 0.5);
  aclDestroyIntArray(ends);
  return 0;
}

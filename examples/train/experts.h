// SPDX-License-Identifier: Apache-2.0
// A mixture of experts: a router gives each byte to one expert, and
//
//     out = p[e] * (silu(x w_in[e] + b_in[e]) w_out[e] + b_out[e]),   p = softmax(x router), e =
//     argmax p
//
// The bytes of an expert are made neighbours; the biases' gradients are GroupedBiasAddGrad over
// these uneven groups, some of them empty.
#ifndef ACLGRAD_TRAIN_EXPERTS_H_
#define ACLGRAD_TRAIN_EXPERTS_H_

#include <string>

#include "layers.h"
#include "parameters.h"

namespace aclgrad::train {

class Experts {
 public:
  Experts(Operators& operators, Parameters& parameters, const ModelSize& size, size_t batch,
          const std::string& prefix);

  // Adds the experts' output for x, [batch * context, width], to `stream`.
  void forward(const float* x, float* stream);
  // From the gradient of the stream: dx, and the parameters' gradients.
  void backward(const float* x, const float* dstream, float* dx);

  const std::vector<uint32_t>& choices() const { return choices_; }
  size_t empty_groups() const;

 private:
  // Up to kTileRows places of one expert, all in one row of the batch.
  struct Tile {
    size_t expert = 0, begin = 0, end = 0;
  };
  void route();
  void cut_tiles();
  void forward_tile(const Tile& tile, const float* x, float* stream);
  void backward_tile(const Tile& tile, const float* dstream, float* dx);
  void weight_gradients(size_t expert);

  Operators& operators_;
  Workers& workers_;
  ModelSize size_;
  size_t tokens_;
  const float *router_, *in_, *in_bias_, *out_, *out_bias_;
  float *drouter_, *din_, *dout_;
  Array<float> logits_, chances_, dchances_;  // [tokens, experts]
  Array<uint8_t> no_mask_;
  std::vector<uint32_t> choices_;  // of each token
  std::vector<size_t> tokens_of_;  // the token at each place of the sorted order
  std::vector<Tile> tiles_;
  Array<int64_t> ends_;
  // In sorted order: input, before and after the activation, output; gradients.
  Array<float> sorted_, before_, after_, result_;
  Array<float> dbefore_, dresult_;
  MaskedSoftmax softmax_;
  GroupedBias in_bias_gradient_, out_bias_gradient_;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_EXPERTS_H_

// SPDX-License-Identifier: Apache-2.0
// The language model: bytes in, for each the scores of the byte that follows.
//
//     h = token_table[byte] + position_table[position]
//     for each block:  h += attention(layer_norm(h));  h += experts(layer_norm(h))
//     scores = layer_norm(h) head
#ifndef ACLGRAD_TRAIN_MODEL_H_
#define ACLGRAD_TRAIN_MODEL_H_

#include <memory>
#include <vector>

#include "attention.h"
#include "experts.h"

namespace aclgrad::train {

class Model {
 public:
  Model(Operators& operators, Parameters& parameters, const ModelSize& size, size_t batch);

  // `bytes` are batch * context; the rows' sequences end at `ends`.
  void forward(const uint8_t* bytes, const std::vector<int64_t>& ends);
  // Mean cross entropy of the scores, in nats; the gradient of the scores replaces them.
  double loss(const uint8_t* targets);
  // After loss(): all parameters' gradients.
  void backward();

  size_t tokens() const { return tokens_; }
  const float* scores() const { return scores_.data(); }  // [tokens, 256]
  size_t empty_groups() const;                            // experts without a byte, of all blocks
  // The expert of each token, block after block.
  std::vector<uint32_t> choices() const;
  // What the compressions read and wrote in BF16, block after block.
  std::vector<uint16_t> rounded() const;

 private:
  struct Block {
    Block(Operators& operators, Parameters& parameters, const ModelSize& size, size_t batch,
          const std::string& prefix, float* in, float* dnorm, const Windows& windows,
          const uint8_t* causal);
    void forward(Workers& workers);
    void backward(Workers& workers, float* dstream, float* dnormal);

    float* in;                              // the stream before the block
    Array<float> middle, out;               // and after attention, after the experts
    Array<float> attention_in, experts_in;  // normalised
    Array<float> dattention_in, dexperts_in;
    LayerNorm attention_norm, experts_norm;
    Attention attention;
    Experts experts;
  };

  Operators& operators_;
  Workers& workers_;
  ModelSize size_;
  size_t tokens_;
  Windows windows_;
  Array<uint8_t> causal_mask_;
  Array<int64_t> bytes_, positions_;
  Array<float> token_rows_, position_rows_;  // what the tables give
  Array<float> stream_, normal_, scores_;    // at the start; after the last norm
  Array<float> dstream_, dnormal_, dfinal_;
  const float* head_;
  float* dhead_;
  Embedding tokens_table_, positions_table_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<LayerNorm> final_norm_;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_MODEL_H_

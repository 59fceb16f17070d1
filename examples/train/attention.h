// SPDX-License-Identifier: Apache-2.0
// Causal attention with a compressed branch. For each head of a row of `context` bytes
//
//     out = softmax(q k' / sqrt(d) - distance / 4^head, causal) v  +  seen * softmax(q ck' /
//     sqrt(d), past) cv
//
// where ck and cv are the row's windows of keys and values, compressed by NsaCompress inside each
// sequence (a paragraph, or what of it lies in the row). A query sees the windows that end at or
// before it. Where there are none all of its row is masked, the softmax comes out uniform, and
// `seen` is 0: nothing of the future leaks.
#ifndef ACLGRAD_TRAIN_ATTENTION_H_
#define ACLGRAD_TRAIN_ATTENTION_H_

#include <string>

#include "layers.h"
#include "parameters.h"

namespace aclgrad::train {

// Where the windows of a batch lie; the same for all blocks.
struct Windows {
  std::vector<int64_t> sequence_ends;  // over the rows of the batch, end to end
  struct Window {
    size_t row = 0, slot = 0;  // of the batch, and among the row's windows
  };
  std::vector<Window> list;  // in the order in which the operator numbers them
  Array<uint8_t> mask;       // [batch, 1, context, most_windows], true where the query is too early
  std::vector<uint8_t> seen;  // [batch * context]: whether the query sees a window

  explicit Windows(const ModelSize& size, size_t batch);
  void place(const ModelSize& size, const std::vector<int64_t>& ends);
};

class Attention {
 public:
  // `prefix` names the parameters, "block0.". x and dx are [batch * context, width].
  Attention(Operators& operators, Parameters& parameters, const ModelSize& size, size_t batch,
            const std::string& prefix, const Windows& windows, const uint8_t* causal_mask);

  // Adds the attention of x to `stream`.
  void forward(const float* x, float* stream);
  // From the gradient of the stream: dx, and the parameters' gradients.
  void backward(const float* x, const float* dstream, float* dx);

  // What NsaCompress read and wrote, of keys and then of values.
  void append_rounded(std::vector<uint16_t>& to) const {
    keys_.append_rounded(to);
    values_.append_rounded(to);
  }

 private:
  void gather_windows(const Compression& compression, Array<float>& padded) const;
  void scatter_gradients(const Array<float>& padded, Compression& compression) const;
  void prefer_near();
  void mix_head(size_t head_of_row);
  void unmix_head(size_t head_of_row);

  Operators& operators_;
  Workers& workers_;
  ModelSize size_;
  size_t batch_, tokens_;
  const Windows& windows_;
  const float *query_key_value_, *attention_out_;
  float *dquery_key_value_, *dattention_out_;
  std::vector<float> near_;                 // [heads, context, context], added to the scores
  Array<float> qkv_, dqkv_;                 // [tokens, 3 width]: queries, keys, values
  Array<float> scores_, shares_, dshares_;  // [batch, heads, context, context]
  Array<float> window_scores_, window_shares_, dwindow_shares_;  // [.., context, most_windows]
  Array<float> window_keys_, window_values_;                     // [batch, most_windows, width]
  Array<float> dwindow_keys_, dwindow_values_;
  Array<float> mixed_, dmixed_;  // [tokens, width]
  MaskedSoftmax softmax_, window_softmax_;
  Compression keys_, values_;
};

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_ATTENTION_H_

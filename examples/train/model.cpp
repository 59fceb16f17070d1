// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <cmath>

#include "product.h"

namespace aclgrad::train {
namespace {

// to = a + b.
void add(Workers& workers, const float* a, const float* b, float* to, size_t count) {
  workers.run_chunks(count, [=](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) to[i] = a[i] + b[i];
  });
}

void copy(Workers& workers, const float* from, float* to, size_t count) {
  workers.run_chunks(
      count, [=](size_t begin, size_t end) { std::copy(from + begin, from + end, to + begin); });
}

// A layer norm with its parameters, `name`_gamma and `name`_beta.
LayerNorm::Memory norm_memory(Parameters& parameters, const std::string& name, float* x, float* y,
                              float* dy, float* dx) {
  return {x,  parameters.weights(name + "_gamma"),   parameters.weights(name + "_beta"),  y, dy,
          dx, parameters.gradients(name + "_gamma"), parameters.gradients(name + "_beta")};
}

}  // namespace

Model::Block::Block(Operators& operators, Parameters& parameters, const ModelSize& s, size_t batch,
                    const std::string& prefix, float* stream_in, float* dnorm,
                    const Windows& windows, const uint8_t* causal)
    : in(stream_in),
      middle(batch * s.context * s.width),
      out(middle.size()),
      attention_in(middle.size()),
      experts_in(middle.size()),
      dattention_in(middle.size()),
      dexperts_in(middle.size()),
      attention_norm(operators, batch * s.context, s.width,
                     norm_memory(parameters, prefix + "attention", in, attention_in.data(),
                                 dattention_in.data(), dnorm)),
      experts_norm(operators, batch * s.context, s.width,
                   norm_memory(parameters, prefix + "experts", middle.data(), experts_in.data(),
                               dexperts_in.data(), dnorm)),
      attention(operators, parameters, s, batch, prefix, windows, causal),
      experts(operators, parameters, s, batch, prefix) {}

void Model::Block::forward(Workers& workers) {
  attention_norm.forward();
  copy(workers, in, middle.data(), middle.size());
  attention.forward(attention_in.data(), middle.data());
  experts_norm.forward();
  copy(workers, middle.data(), out.data(), out.size());
  experts.forward(experts_in.data(), out.data());
}

// The gradient of what the block adds to the stream joins the stream's own.
void Model::Block::backward(Workers& workers, float* dstream, float* dnormal) {
  experts.backward(experts_in.data(), dstream, dexperts_in.data());
  experts_norm.backward();
  add(workers, dstream, dnormal, dstream, middle.size());
  attention.backward(attention_in.data(), dstream, dattention_in.data());
  attention_norm.backward();
  add(workers, dstream, dnormal, dstream, middle.size());
}

Model::Model(Operators& operators, Parameters& parameters, const ModelSize& s, size_t batch)
    : operators_(operators),
      workers_(operators.workers()),
      size_(s),
      tokens_(batch * s.context),
      windows_(s, batch),
      causal_mask_(s.context * s.context),
      bytes_(tokens_),
      positions_(tokens_),
      token_rows_(tokens_ * s.width),
      position_rows_(token_rows_.size()),
      stream_(token_rows_.size()),
      normal_(token_rows_.size()),
      scores_(tokens_ * kBytes),
      dstream_(token_rows_.size()),
      dnormal_(token_rows_.size()),
      dfinal_(token_rows_.size()),
      head_(parameters.weights("head")),
      dhead_(parameters.gradients("head")),
      tokens_table_(operators, tokens_, s.width, kBytes, parameters.weights("token_table"),
                    bytes_.data(), token_rows_.data(), dstream_.data(),
                    parameters.gradients("token_table")),
      positions_table_(operators, tokens_, s.width, s.context, parameters.weights("position_table"),
                       positions_.data(), position_rows_.data(), dstream_.data(),
                       parameters.gradients("position_table")) {
  for (size_t i = 0; i < causal_mask_.size(); ++i) {
    causal_mask_[i] = i % s.context > i / s.context ? 1 : 0;
  }
  for (size_t i = 0; i < tokens_; ++i) positions_[i] = static_cast<int64_t>(i % s.context);
  float* in = stream_.data();
  for (size_t i = 0; i < s.blocks; ++i) {
    blocks_.push_back(std::make_unique<Block>(operators, parameters, s, batch,
                                              "block" + std::to_string(i) + ".", in,
                                              dnormal_.data(), windows_, causal_mask_.data()));
    in = blocks_.back()->out.data();
  }
  final_norm_ = std::make_unique<LayerNorm>(
      operators, tokens_, s.width,
      norm_memory(parameters, "final", in, normal_.data(), dfinal_.data(), dstream_.data()));
}

void Model::forward(const uint8_t* bytes, const std::vector<int64_t>& ends) {
  std::copy_n(bytes, tokens_, bytes_.data());
  windows_.place(size_, ends);
  tokens_table_.forward();
  positions_table_.forward();
  add(workers_, token_rows_.data(), position_rows_.data(), stream_.data(), stream_.size());
  for (const auto& block : blocks_) block->forward(workers_);
  final_norm_->forward();
  product(workers_, {tokens_, kBytes, size_.width}, {normal_.data(), size_.width}, {head_, kBytes},
          scores_.data(), kBytes);
}

double Model::loss(const uint8_t* targets) {
  std::vector<double> losses(tokens_);
  const float share = 1.0f / static_cast<float>(tokens_);
  workers_.run_rows(tokens_, [&](size_t token) {
    float* scores = scores_.data() + token * kBytes;
    const float largest = *std::max_element(scores, scores + kBytes);
    const float of_target = scores[targets[token]] - largest;
    float sum = 0;
    for (size_t i = 0; i < kBytes; ++i) {
      scores[i] = std::exp(scores[i] - largest);
      sum += scores[i];
    }
    losses[token] = std::log(static_cast<double>(sum)) - static_cast<double>(of_target);
    const float scale = share / sum;
    for (size_t i = 0; i < kBytes; ++i) scores[i] *= scale;
    scores[targets[token]] -= share;
  });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum / static_cast<double>(tokens_);
}

void Model::backward() {
  product(workers_, {size_.width, kBytes, tokens_}, transpose(normal_.data(), size_.width),
          {scores_.data(), kBytes}, dhead_, kBytes);
  product(workers_, {tokens_, size_.width, kBytes}, {scores_.data(), kBytes},
          transpose(head_, kBytes), dfinal_.data(), size_.width);
  final_norm_->backward();
  for (size_t i = blocks_.size(); i-- > 0;) {
    blocks_[i]->backward(workers_, dstream_.data(), dnormal_.data());
  }
  tokens_table_.backward();
  positions_table_.backward();
}

size_t Model::empty_groups() const {
  size_t empty = 0;
  for (const auto& block : blocks_) empty += block->experts.empty_groups();
  return empty;
}

std::vector<uint32_t> Model::choices() const {
  std::vector<uint32_t> out;
  for (const auto& block : blocks_) {
    const auto& choices = block->experts.choices();
    out.insert(out.end(), choices.begin(), choices.end());
  }
  return out;
}

std::vector<uint16_t> Model::rounded() const {
  std::vector<uint16_t> out;
  for (const auto& block : blocks_) block->attention.append_rounded(out);
  return out;
}

}  // namespace aclgrad::train

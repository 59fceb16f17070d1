// SPDX-License-Identifier: Apache-2.0
#include "attention.h"

#include <cmath>

#include "product.h"

namespace aclgrad::train {
namespace {

Dims four(size_t a, size_t b, size_t c, size_t d) {
  return {static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c),
          static_cast<int64_t>(d)};
}

Compression::Size compression_size(const ModelSize& s, size_t batch) {
  Compression::Size out;
  out.tokens = batch * s.context;
  out.heads = s.heads;
  out.width = s.head_width();
  out.block = s.window;
  out.stride = s.stride;
  out.most_windows = batch * s.most_windows();
  return out;
}

}  // namespace

Windows::Windows(const ModelSize& size, size_t batch)
    : mask(batch * size.context * size.most_windows()), seen(batch * size.context) {}

void Windows::place(const ModelSize& size, const std::vector<int64_t>& ends) {
  sequence_ends = ends;
  list.clear();
  mask.fill(1);
  std::fill(seen.begin(), seen.end(), uint8_t{0});
  std::vector<size_t> used(seen.size() / size.context);
  size_t begin = 0;
  for (const int64_t end : ends) {
    for (; begin + size.window <= static_cast<size_t>(end); begin += size.stride) {
      const size_t row = begin / size.context, slot = used[row]++;
      list.push_back({row, slot});
      for (size_t query = begin + size.window - 1; query < (row + 1) * size.context; ++query) {
        mask[query * size.most_windows() + slot] = 0;
        seen[query] = 1;
      }
    }
    begin = static_cast<size_t>(end);
  }
}

Attention::Attention(Operators& operators, Parameters& parameters, const ModelSize& s, size_t batch,
                     const std::string& prefix, const Windows& windows, const uint8_t* causal_mask)
    : operators_(operators),
      workers_(operators.workers()),
      size_(s),
      batch_(batch),
      tokens_(batch * s.context),
      windows_(windows),
      query_key_value_(parameters.weights(prefix + "query_key_value")),
      attention_out_(parameters.weights(prefix + "attention_out")),
      dquery_key_value_(parameters.gradients(prefix + "query_key_value")),
      dattention_out_(parameters.gradients(prefix + "attention_out")),
      near_(s.heads * s.context * s.context),
      qkv_(tokens_ * 3 * s.width),
      dqkv_(qkv_.size()),
      scores_(tokens_ * s.heads * s.context),
      shares_(scores_.size()),
      dshares_(scores_.size()),
      window_scores_(tokens_ * s.heads * s.most_windows()),
      window_shares_(window_scores_.size()),
      dwindow_shares_(window_scores_.size()),
      window_keys_(batch * s.most_windows() * s.width),
      window_values_(window_keys_.size()),
      dwindow_keys_(window_keys_.size()),
      dwindow_values_(window_keys_.size()),
      mixed_(tokens_ * s.width),
      dmixed_(mixed_.size()),
      softmax_(operators, four(batch, s.heads, s.context, s.context), scores_.data(),
               shares_.data(), dshares_.data(), four(1, 1, s.context, s.context), causal_mask,
               1.0 / std::sqrt(static_cast<double>(s.head_width()))),
      window_softmax_(operators, four(batch, s.heads, s.context, s.most_windows()),
                      window_scores_.data(), window_shares_.data(), dwindow_shares_.data(),
                      four(batch, 1, s.context, s.most_windows()), windows.mask.data(),
                      1.0 / std::sqrt(static_cast<double>(s.head_width()))),
      keys_(operators, compression_size(s, batch), parameters.weights(prefix + "compress_keys"),
            parameters.gradients(prefix + "compress_keys")),
      values_(operators, compression_size(s, batch), parameters.weights(prefix + "compress_values"),
              parameters.gradients(prefix + "compress_values")) {
  prefer_near();
}

// Head h begins with a taste for what is near: e^(-distance / 4^h) before anything is learnt. The
// operator scales the scores, so the slope is divided by its scale.
void Attention::prefer_near() {
  const size_t context = size_.context;
  const double unscale = std::sqrt(static_cast<double>(size_.head_width()));
  for (size_t head = 0; head < size_.heads; ++head) {
    const double slope = unscale * std::pow(4.0, -static_cast<double>(head));
    for (size_t query = 0; query < context; ++query) {
      for (size_t key = 0; key <= query; ++key) {
        near_[(head * context + query) * context + key] =
            static_cast<float>(-slope * static_cast<double>(query - key));
      }
    }
  }
}

// Slots that a row does not use keep zeros.
void Attention::gather_windows(const Compression& compression, Array<float>& padded) const {
  padded.fill(0);
  for (size_t i = 0; i < windows_.list.size(); ++i) {
    const auto [row, slot] = windows_.list[i];
    std::copy_n(compression.y() + i * size_.width, size_.width,
                padded.data() + (row * size_.most_windows() + slot) * size_.width);
  }
}

void Attention::scatter_gradients(const Array<float>& padded, Compression& compression) const {
  for (size_t i = 0; i < windows_.list.size(); ++i) {
    const auto [row, slot] = windows_.list[i];
    std::copy_n(padded.data() + (row * size_.most_windows() + slot) * size_.width, size_.width,
                compression.dy() + i * size_.width);
  }
}

void Attention::forward(const float* x, float* stream) {
  const size_t width = size_.width, context = size_.context, slots = size_.most_windows();
  const size_t depth = size_.head_width();
  product(workers_, {tokens_, 3 * width, width}, {x, width}, {query_key_value_, 3 * width},
          qkv_.data(), 3 * width);
  keys_.forward(qkv_.data() + width, 3 * width, windows_.sequence_ends, windows_.list.size());
  values_.forward(qkv_.data() + 2 * width, 3 * width, windows_.sequence_ends, windows_.list.size());
  gather_windows(keys_, window_keys_);
  gather_windows(values_, window_values_);

  workers_.run(batch_ * size_.heads, [&](size_t i) {
    const size_t row = i / size_.heads, head = i % size_.heads;
    const float* q = qkv_.data() + row * context * 3 * width + head * depth;
    const float* window_k = window_keys_.data() + row * slots * width + head * depth;
    float* scores = scores_.data() + i * context * context;
    std::copy_n(near_.data() + head * context * context, context * context, scores);
    product({context, context, depth}, {q, 3 * width}, transpose(q + width, 3 * width), scores,
            context, Into::add);
    product({context, slots, depth}, {q, 3 * width}, transpose(window_k, width),
            window_scores_.data() + i * context * slots, slots);
  });
  softmax_.forward();
  window_softmax_.forward();
  workers_.run(batch_ * size_.heads, [&](size_t i) { mix_head(i); });
  product(workers_, {tokens_, width, width}, {mixed_.data(), width}, {attention_out_, width},
          stream, width, Into::add);
}

// The two branches of one head of one row, summed.
void Attention::mix_head(size_t i) {
  const size_t width = size_.width, context = size_.context, slots = size_.most_windows();
  const size_t row = i / size_.heads, head = i % size_.heads, depth = size_.head_width();
  const float* v = qkv_.data() + row * context * 3 * width + 2 * width + head * depth;
  const float* window_v = window_values_.data() + row * slots * width + head * depth;
  float* window_shares = window_shares_.data() + i * context * slots;
  for (size_t query = 0; query < context; ++query) {
    if (windows_.seen[row * context + query] != 0) continue;
    std::fill_n(window_shares + query * slots, slots, 0.0f);
  }
  float* mixed = mixed_.data() + row * context * width + head * depth;
  product({context, depth, context}, {shares_.data() + i * context * context, context},
          {v, 3 * width}, mixed, width);
  product({context, depth, slots}, {window_shares, slots}, {window_v, width}, mixed, width,
          Into::add);
}

void Attention::backward(const float* x, const float* dstream, float* dx) {
  const size_t width = size_.width, context = size_.context, slots = size_.most_windows();
  const size_t depth = size_.head_width();
  product(workers_, {width, width, tokens_}, transpose(mixed_.data(), width), {dstream, width},
          dattention_out_, width);
  product(workers_, {tokens_, width, width}, {dstream, width}, transpose(attention_out_, width),
          dmixed_.data(), width);
  workers_.run(batch_ * size_.heads, [&](size_t i) { unmix_head(i); });
  softmax_.backward();
  window_softmax_.backward();

  workers_.run(batch_ * size_.heads, [&](size_t i) {
    const size_t row = i / size_.heads, head = i % size_.heads;
    const float* q = qkv_.data() + row * context * 3 * width + head * depth;
    const float* window_k = window_keys_.data() + row * slots * width + head * depth;
    const float* dscores = dshares_.data() + i * context * context;
    const float* dwindow_scores = dwindow_shares_.data() + i * context * slots;
    float* dq = dqkv_.data() + row * context * 3 * width + head * depth;
    product({context, depth, context}, {dscores, context}, {q + width, 3 * width}, dq, 3 * width);
    product({context, depth, slots}, {dwindow_scores, slots}, {window_k, width}, dq, 3 * width,
            Into::add);
    product({context, depth, context}, transpose(dscores, context), {q, 3 * width}, dq + width,
            3 * width);
    product({slots, depth, context}, transpose(dwindow_scores, slots), {q, 3 * width},
            dwindow_keys_.data() + row * slots * width + head * depth, width);
  });
  scatter_gradients(dwindow_keys_, keys_);
  scatter_gradients(dwindow_values_, values_);
  keys_.backward(dqkv_.data() + width, 3 * width);
  values_.backward(dqkv_.data() + 2 * width, 3 * width);
  product(workers_, {width, 3 * width, tokens_}, transpose(x, width), {dqkv_.data(), 3 * width},
          dquery_key_value_, 3 * width);
  product(workers_, {tokens_, width, 3 * width}, {dqkv_.data(), 3 * width},
          transpose(query_key_value_, 3 * width), dx, width);
}

// The gradients of the shares, and of the values through them.
void Attention::unmix_head(size_t i) {
  const size_t width = size_.width, context = size_.context, slots = size_.most_windows();
  const size_t row = i / size_.heads, head = i % size_.heads, depth = size_.head_width();
  const float* v = qkv_.data() + row * context * 3 * width + 2 * width + head * depth;
  const float* window_v = window_values_.data() + row * slots * width + head * depth;
  const float* dmixed = dmixed_.data() + row * context * width + head * depth;
  const float* shares = shares_.data() + i * context * context;
  const float* window_shares = window_shares_.data() + i * context * slots;
  float* dwindow_shares = dwindow_shares_.data() + i * context * slots;
  product({context, context, depth}, {dmixed, width}, transpose(v, 3 * width),
          dshares_.data() + i * context * context, context);
  product({context, slots, depth}, {dmixed, width}, transpose(window_v, width), dwindow_shares,
          slots);
  for (size_t query = 0; query < context; ++query) {
    if (windows_.seen[row * context + query] != 0) continue;
    std::fill_n(dwindow_shares + query * slots, slots, 0.0f);
  }
  product({context, depth, context}, transpose(shares, context), {dmixed, width},
          dqkv_.data() + row * context * 3 * width + 2 * width + head * depth, 3 * width);
  product({slots, depth, context}, transpose(window_shares, slots), {dmixed, width},
          dwindow_values_.data() + row * slots * width + head * depth, width);
}

}  // namespace aclgrad::train

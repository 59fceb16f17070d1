// SPDX-License-Identifier: Apache-2.0
#include "experts.h"

#include <cmath>

#include "product.h"

namespace aclgrad::train {
namespace {

// An expert's bytes go through the BLAS in tiles of exactly this many, filled up with zeros: were
// the shape of a product to follow the size of the group, a byte's bits would depend on where the
// bytes after it are sent. OpenBLAS's kernels for AVX2 also give a row other bits at another place
// in its tile, so no tile has bytes of two rows of the batch: a byte's place follows from the bytes
// before it in its own row alone. 16 is what an expert gets of a row of the base model on average;
// tiles of 32 cost 12 % of the training speed by their zeros.
constexpr size_t kTileRows = 16;

Dims plane(size_t rows, size_t cols) {
  return {1, 1, static_cast<int64_t>(rows), static_cast<int64_t>(cols)};
}

}  // namespace

Experts::Experts(Operators& operators, Parameters& parameters, const ModelSize& s, size_t batch,
                 const std::string& prefix)
    : operators_(operators),
      workers_(operators.workers()),
      size_(s),
      tokens_(batch * s.context),
      router_(parameters.weights(prefix + "router")),
      in_(parameters.weights(prefix + "expert_in")),
      in_bias_(parameters.weights(prefix + "expert_in_bias")),
      out_(parameters.weights(prefix + "expert_out")),
      out_bias_(parameters.weights(prefix + "expert_out_bias")),
      drouter_(parameters.gradients(prefix + "router")),
      din_(parameters.gradients(prefix + "expert_in")),
      dout_(parameters.gradients(prefix + "expert_out")),
      logits_(tokens_ * s.experts),
      chances_(logits_.size()),
      dchances_(logits_.size()),
      no_mask_(logits_.size()),
      choices_(tokens_),
      tokens_of_(tokens_),
      ends_(s.experts),
      sorted_(tokens_ * s.width),
      before_(tokens_ * s.hidden),
      after_(before_.size()),
      result_(sorted_.size()),
      dbefore_(before_.size()),
      dresult_(sorted_.size()),
      softmax_(operators, plane(tokens_, s.experts), logits_.data(), chances_.data(),
               dchances_.data(), plane(tokens_, s.experts), no_mask_.data(), 1.0),
      in_bias_gradient_(operators, tokens_, s.hidden, s.experts, dbefore_.data(), ends_.data(),
                        parameters.gradients(prefix + "expert_in_bias")),
      out_bias_gradient_(operators, tokens_, s.width, s.experts, dresult_.data(), ends_.data(),
                         parameters.gradients(prefix + "expert_out_bias")) {}

size_t Experts::empty_groups() const {
  size_t empty = 0;
  for (size_t e = 0; e < size_.experts; ++e) empty += ends_[e] == (e == 0 ? 0 : ends_[e - 1]);
  return empty;
}

// Chooses the most likely expert of each token, the first of equals, and sorts tokens by expert.
void Experts::route() {
  std::vector<size_t> count(size_.experts);
  for (size_t token = 0; token < tokens_; ++token) {
    const float* chances = chances_.data() + token * size_.experts;
    const auto best = std::max_element(chances, chances + size_.experts) - chances;
    choices_[token] = static_cast<uint32_t>(best);
    ++count[static_cast<size_t>(best)];
  }
  std::vector<size_t> place(size_.experts);
  size_t begin = 0;
  for (size_t expert = 0; expert < size_.experts; ++expert) {
    const size_t end = begin + count[expert];
    place[expert] = begin;
    ends_[expert] = static_cast<int64_t>(end);
    begin = end;
  }
  for (size_t token = 0; token < tokens_; ++token) tokens_of_[place[choices_[token]]++] = token;
  cut_tiles();
}

void Experts::cut_tiles() {
  tiles_.clear();
  size_t begin = 0;
  for (size_t expert = 0; expert < size_.experts; ++expert) {
    const auto end = static_cast<size_t>(ends_[expert]);
    while (begin < end) {
      const size_t row = tokens_of_[begin] / size_.context;
      const size_t most = std::min(end, begin + kTileRows);
      size_t last = begin + 1;
      while (last < most && tokens_of_[last] / size_.context == row) ++last;
      tiles_.push_back({expert, begin, last});
      begin = last;
    }
  }
}

void Experts::forward(const float* x, float* stream) {
  product(workers_, {tokens_, size_.experts, size_.width}, {x, size_.width},
          {router_, size_.experts}, logits_.data(), size_.experts);
  softmax_.forward();
  route();
  workers_.run(tiles_.size(), [&](size_t i) { forward_tile(tiles_[i], x, stream); });
}

void Experts::forward_tile(const Tile& tile, const float* x, float* stream) {
  const size_t width = size_.width, hidden = size_.hidden, rows = tile.end - tile.begin;
  std::vector<float> in(kTileRows * width), middle(kTileRows * hidden), out(kTileRows * width);
  for (size_t r = 0; r < rows; ++r) {
    std::copy_n(x + tokens_of_[tile.begin + r] * width, width, &in[r * width]);
  }
  std::copy_n(in.data(), rows * width, sorted_.data() + tile.begin * width);
  product({kTileRows, hidden, width}, {in.data(), width},
          {in_ + tile.expert * width * hidden, hidden}, middle.data(), hidden);
  const float* in_bias = in_bias_ + tile.expert * hidden;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t h = 0; h < hidden; ++h) {
      const float before = middle[r * hidden + h] + in_bias[h];
      const float after = before / (1.0f + std::exp(-before));
      before_[(tile.begin + r) * hidden + h] = before;
      after_[(tile.begin + r) * hidden + h] = after;
      middle[r * hidden + h] = after;
    }
  }
  product({kTileRows, width, hidden}, {middle.data(), hidden},
          {out_ + tile.expert * hidden * width, width}, out.data(), width);
  const float* out_bias = out_bias_ + tile.expert * width;
  for (size_t r = 0; r < rows; ++r) {
    const size_t token = tokens_of_[tile.begin + r];
    const float chance = chances_[token * size_.experts + tile.expert];
    for (size_t c = 0; c < width; ++c) {
      const float result = out[r * width + c] + out_bias[c];
      result_[(tile.begin + r) * width + c] = result;
      stream[token * width + c] += chance * result;
    }
  }
}

void Experts::backward(const float* x, const float* dstream, float* dx) {
  dchances_.fill(0);
  workers_.run(tiles_.size(), [&](size_t i) { backward_tile(tiles_[i], dstream, dx); });
  workers_.run(2 * size_.experts, [&](size_t i) { weight_gradients(i); });
  in_bias_gradient_.backward();
  out_bias_gradient_.backward();
  softmax_.backward();
  product(workers_, {size_.width, size_.experts, tokens_}, transpose(x, size_.width),
          {dchances_.data(), size_.experts}, drouter_, size_.experts);
  product(workers_, {tokens_, size_.width, size_.experts}, {dchances_.data(), size_.experts},
          transpose(router_, size_.experts), dx, size_.width, Into::add);
}

void Experts::backward_tile(const Tile& tile, const float* dstream, float* dx) {
  const size_t width = size_.width, hidden = size_.hidden, rows = tile.end - tile.begin;
  float* dresult = dresult_.data() + tile.begin * width;
  float* dbefore = dbefore_.data() + tile.begin * hidden;
  for (size_t r = 0; r < rows; ++r) {
    const size_t token = tokens_of_[tile.begin + r];
    const size_t choice = token * size_.experts + tile.expert;
    float sum = 0;
    for (size_t c = 0; c < width; ++c) {
      sum += dstream[token * width + c] * result_[(tile.begin + r) * width + c];
      dresult[r * width + c] = chances_[choice] * dstream[token * width + c];
    }
    dchances_[choice] = sum;
  }
  product({rows, hidden, width}, {dresult, width},
          transpose(out_ + tile.expert * hidden * width, width), dbefore, hidden);
  for (size_t i = 0; i < rows * hidden; ++i) {
    const float before = before_[tile.begin * hidden + i];
    const float gate = 1.0f / (1.0f + std::exp(-before));
    dbefore[i] *= gate * (1.0f + before * (1.0f - gate));
  }
  std::vector<float> dsorted(rows * width);
  product({rows, width, hidden}, {dbefore, hidden},
          transpose(in_ + tile.expert * width * hidden, hidden), dsorted.data(), width);
  for (size_t r = 0; r < rows; ++r) {
    std::copy_n(&dsorted[r * width], width, dx + tokens_of_[tile.begin + r] * width);
  }
}

// Of the matrix into (even i) or out of (odd i) expert i / 2: zero for an expert without tokens.
void Experts::weight_gradients(size_t i) {
  const size_t width = size_.width, hidden = size_.hidden, expert = i / 2;
  const auto begin = static_cast<size_t>(expert == 0 ? 0 : ends_[expert - 1]);
  const size_t rows = static_cast<size_t>(ends_[expert]) - begin;
  if (i % 2 == 0) {
    product({width, hidden, rows}, transpose(sorted_.data() + begin * width, width),
            {dbefore_.data() + begin * hidden, hidden}, din_ + expert * width * hidden, hidden);
  } else {
    product({hidden, width, rows}, transpose(after_.data() + begin * hidden, hidden),
            {dresult_.data() + begin * width, width}, dout_ + expert * hidden * width, width);
  }
}

}  // namespace aclgrad::train

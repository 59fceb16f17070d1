// SPDX-License-Identifier: Apache-2.0
#include "parameters.h"

#include <cmath>
#include <cstdio>
#include <numbers>
#include <stdexcept>

#include "bfloat16.h"

namespace aclgrad::train {

ModelSize model_size(const std::string& name) {
  ModelSize size;
  size.blocks = 2;
  size.window = 32;
  size.stride = 16;
  if (name == "small") {
    size.width = 32;
    size.heads = 2;
    size.context = 64;
    size.batch = 4;
    size.experts = 4;
    size.hidden = 48;
  } else if (name == "base") {
    size.width = 128;
    size.heads = 4;
    size.context = 128;
    size.batch = 16;
    size.experts = 8;
    size.hidden = 256;
  } else {
    throw std::invalid_argument("--size is small or base, not '" + name + "'");
  }
  return size;
}

std::string describe(const ModelSize& s) {
  const auto text = [](size_t number) { return std::to_string(number); };
  return text(s.blocks) + " blocks, width " + text(s.width) + ", " + text(s.heads) + " heads, " +
         text(s.experts) + " experts of " + text(s.hidden) + ", context " + text(s.context) +
         ", batch " + text(s.batch) + ", windows of " + text(s.window) + " every " + text(s.stride);
}

Parameters::Parameters(const ModelSize& s, aclDataType dtype) : dtype_(dtype) {
  constexpr double kSmall = 0.02;
  const double into_stream = 1.0 / std::sqrt(2.0 * static_cast<double>(s.blocks));
  const auto fan_in = [](size_t inputs) { return 1.0 / std::sqrt(static_cast<double>(inputs)); };
  add("token_table", {kBytes, s.width}, 0.1);
  add("position_table", {s.context, s.width}, kSmall);
  for (size_t i = 0; i < s.blocks; ++i) {
    const std::string block = "block" + std::to_string(i) + ".";
    const double even = 1.0 / static_cast<double>(s.window);  // the mean of a window
    add(block + "attention_gamma", {s.width}, 0, 1);
    add(block + "attention_beta", {s.width}, 0);
    add(block + "query_key_value", {s.width, 3 * s.width}, fan_in(s.width));
    add(block + "compress_keys", {s.window, s.heads}, 0.5 * even, even);
    add(block + "compress_values", {s.window, s.heads}, 0.5 * even, even);
    add(block + "attention_out", {s.width, s.width}, into_stream * fan_in(s.width));
    add(block + "experts_gamma", {s.width}, 0, 1);
    add(block + "experts_beta", {s.width}, 0);
    add(block + "router", {s.width, s.experts}, fan_in(s.width));
    add(block + "expert_in", {s.experts, s.width, s.hidden}, fan_in(s.width));
    add(block + "expert_in_bias", {s.experts, s.hidden}, kSmall);
    add(block + "expert_out", {s.experts, s.hidden, s.width}, into_stream * fan_in(s.hidden));
    add(block + "expert_out_bias", {s.experts, s.width}, kSmall);
  }
  add("final_gamma", {s.width}, 0, 1);
  add("final_beta", {s.width}, 0);
  add("head", {s.width, kBytes}, 0.5 * fan_in(s.width));
  master_ = Array<float>(total_);
  used_ = Array<float>(total_);
  gradients_ = Array<float>(total_);
  first_moments_ = Array<float>(total_);
  second_moments_ = Array<float>(total_);
}

void Parameters::add(const std::string& name, const std::vector<size_t>& dims, double spread,
                     double mean) {
  constexpr size_t kAlign = 16;  // floats: each parameter begins on a cache line
  Parameter p;
  p.name = name;
  p.dims = dims;
  p.offset = total_;
  p.count = 1;
  for (const size_t dim : dims) p.count *= dim;
  p.spread = static_cast<float>(spread);
  p.mean = static_cast<float>(mean);
  // Matrices decay; tables, vectors and the biases of experts do not.
  const bool bias = name.ends_with("_bias") || name.ends_with("_table");
  p.decays = dims.size() > 1 && !bias;
  total_ += (p.count + kAlign - 1) / kAlign * kAlign;
  list_.push_back(p);
}

const Parameter& Parameters::at(const std::string& name) const {
  for (const Parameter& p : list_) {
    if (p.name == name) return p;
  }
  throw std::logic_error("no parameter " + name);
}

void Parameters::start(uint64_t seed) {
  for (size_t number = 0; number < list_.size(); ++number) {
    const Parameter& p = list_[number];
    for (size_t i = 0; i < p.count; ++i) {
      // Two even numbers make a normal one (Box and Muller).
      const double radius = std::sqrt(-2.0 * std::log(1.0 - fraction(seed, 2 * number, i)));
      const double angle = 2.0 * std::numbers::pi * fraction(seed, 2 * number + 1, i);
      const auto normal = static_cast<float>(radius * std::cos(angle));
      master_[p.offset + i] = p.mean + p.spread * normal;
    }
  }
}

void Parameters::refresh(Workers& workers) {
  workers.run_chunks(total_, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      used_[i] = dtype_ == ACL_BF16 ? from_bfloat16(to_bfloat16(master_[i])) : master_[i];
    }
  });
}

std::string Parameters::hash() const {
  char text[17];
  std::snprintf(
      text, sizeof(text), "%016llx",
      static_cast<unsigned long long>(hash_bytes(master_.data(), total_ * sizeof(float))));
  return text;
}

uint64_t hash_bytes(const void* bytes, size_t count, uint64_t hash) {
  const auto* byte = static_cast<const unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) hash = (hash ^ byte[i]) * 0x100000001B3u;
  return hash;
}

uint64_t scramble(uint64_t seed, uint64_t a, uint64_t b) {
  // Three rounds of splitmix64, one for each argument.
  uint64_t z = 0;
  for (const uint64_t word : {seed, a, b}) {
    z += word + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
  }
  return z;
}

double fraction(uint64_t seed, uint64_t a, uint64_t b) {
  return static_cast<double>(scramble(seed, a, b) >> 11) * 0x1p-53;
}

}  // namespace aclgrad::train

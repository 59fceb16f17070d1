// SPDX-License-Identifier: Apache-2.0
// The sizes of a model, and its parameters: one flat array of FP32 master weights, a second one
// that the model computes with (the same values, rounded where the model runs in BF16), their
// gradients and the moments of AdamW.
#ifndef ACLGRAD_TRAIN_PARAMETERS_H_
#define ACLGRAD_TRAIN_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "device.h"
#include "workers.h"

namespace aclgrad::train {

inline constexpr size_t kBytes = 256;  // the vocabulary

struct ModelSize {
  size_t width = 0;  // of the residual stream
  size_t heads = 0;
  size_t blocks = 0;
  size_t context = 0;  // bytes of a row
  size_t batch = 0;    // rows of a training step
  size_t experts = 0;
  size_t hidden = 0;  // of an expert
  size_t window = 0;  // bytes that are compressed to one key and value
  size_t stride = 0;  // from one window to the next

  size_t head_width() const { return width / heads; }
  size_t most_windows() const { return (context - window) / stride + 1; }  // of a row
  bool operator==(const ModelSize&) const = default;
};

// "small" (for tests) or "base"; throws for another name.
ModelSize model_size(const std::string& name);
std::string describe(const ModelSize& size);

struct Parameter {
  std::string name;
  std::vector<size_t> dims;
  size_t offset = 0;  // in the flat arrays
  size_t count = 0;
  float spread = 0;  // standard deviation at the start
  float mean = 0;
  bool decays = false;
};

class Parameters {
 public:
  Parameters(const ModelSize& size, aclDataType dtype);

  const std::vector<Parameter>& list() const { return list_; }
  const Parameter& at(const std::string& name) const;
  float* weights(const std::string& name) { return used_.data() + at(name).offset; }
  float* gradients(const std::string& name) { return gradients_.data() + at(name).offset; }
  size_t total() const { return total_; }

  // Draws all weights; a function of the seed alone.
  void start(uint64_t seed);
  // After the master weights changed.
  void refresh(Workers& workers);

  Array<float>& master() { return master_; }
  Array<float>& gradients() { return gradients_; }
  Array<float>& first_moments() { return first_moments_; }
  Array<float>& second_moments() { return second_moments_; }
  // Of the master weights, as 16 hexadecimal digits.
  std::string hash() const;

 private:
  void add(const std::string& name, const std::vector<size_t>& dims, double spread,
           double mean = 0);
  aclDataType dtype_;
  std::vector<Parameter> list_;
  size_t total_ = 0;
  Array<float> master_, used_, gradients_, first_moments_, second_moments_;
};

// FNV-1a of bytes, continued from `hash`.
uint64_t hash_bytes(const void* bytes, size_t count, uint64_t hash = 0xCBF29CE484222325u);

// A number that depends on its arguments alone, each bit as good as any other.
uint64_t scramble(uint64_t seed, uint64_t a, uint64_t b = 0);
// The same as a number in [0, 1).
double fraction(uint64_t seed, uint64_t a, uint64_t b = 0);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_PARAMETERS_H_

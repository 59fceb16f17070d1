// SPDX-License-Identifier: Apache-2.0
#include "optimizer.h"

#include <algorithm>
#include <cmath>

namespace aclgrad::train {

double AdamW::rate(uint64_t step) const {
  const auto number = static_cast<double>(step);
  return peak_rate * std::min(number / warm_up, std::sqrt(warm_up / number));
}

void AdamW::update(Workers& workers, Parameters& parameters, uint64_t step) const {
  const auto number = static_cast<double>(step);
  const auto step_size = static_cast<float>(rate(step) / (1 - std::pow(first_decay, number)));
  const auto root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(second_decay, number)));
  const auto keep_first = static_cast<float>(first_decay);
  const auto keep_second = static_cast<float>(second_decay);
  const auto take_first = static_cast<float>(1 - first_decay);
  const auto take_second = static_cast<float>(1 - second_decay);
  const auto least = static_cast<float>(epsilon);
  for (const Parameter& p : parameters.list()) {
    const float keep = p.decays ? static_cast<float>(1 - rate(step) * weight_decay) : 1.0f;
    float* weights = parameters.master().data() + p.offset;
    float* first = parameters.first_moments().data() + p.offset;
    float* second = parameters.second_moments().data() + p.offset;
    const float* gradients = parameters.gradients().data() + p.offset;
    workers.run_chunks(p.count, [=](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const float g = gradients[i];
        first[i] = keep_first * first[i] + take_first * g;
        second[i] = keep_second * second[i] + take_second * g * g;
        const float root = std::sqrt(second[i]) * root_scale + least;
        weights[i] = keep * weights[i] - step_size * (first[i] / root);
      }
    });
  }
}

}  // namespace aclgrad::train

// SPDX-License-Identifier: Apache-2.0
// The loss over the steps as a picture (SVG), with the text's entropies as lines.
#ifndef ACLGRAD_TRAIN_CURVE_H_
#define ACLGRAD_TRAIN_CURVE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::train {

struct Point {
  uint64_t step = 0;
  double loss = 0;
};

struct Curve {
  std::vector<Point> training, validation;
  double unigram = 0, bigram = 0, goal = 0;
};

// Throws std::runtime_error when it cannot be written; the last picture is still there then.
void draw_curve(const std::string& path, const Curve& curve);

}  // namespace aclgrad::train

#endif  // ACLGRAD_TRAIN_CURVE_H_

// SPDX-License-Identifier: Apache-2.0
// The shapes that test and bench go through.
#ifndef ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CASES_H_
#define ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::grouped_bias_add_grad {

struct Case {
  int64_t cols;
  std::vector<int64_t> sizes;  // rows of each group
};

// Around the lanes (16), the chains (16), the wide rows (256 elements) and the blocks (256 wide
// rows); empty groups; groups of one row; columns enough to be shared.
inline const std::vector<Case>& test_cases() {
  static const std::vector<Case> cases = {
      {1, {1}},
      {1, {0, 255, 256, 257, 0, 1, 5000}},
      {1, {65535, 1, 65537, 0, 131100}},
      {2, {127, 128, 129, 40000}},
      {3, {1, 2, 3, 0, 85, 86, 2047, 2048, 2049}},
      {3, {32767, 32769, 70000}},
      {8, {31, 32, 33, 8191, 8193}},
      {10, {5, 10, 15, 10}},
      {15, {0, 0, 7, 16, 17, 18}},
      {16, {15, 16, 17, 4095, 4097}},
      {24, {10, 11, 4096, 4097, 9000}},
      {33, {7, 8, 9, 300, 2047, 2049}},
      {100, {1, 3, 4, 5, 1023, 1025, 0, 2100}},
      {127, {1, 2, 3, 511, 513}},
      {128, {31, 32, 33, 512, 1030}},
      {129, {500, 12}},
      {255, {1, 2, 512, 513}},
      {256, {0, 1, 15, 16, 17, 255, 256, 257}},
      {257, {16, 31, 32, 33, 600}},
      {271, {100, 300}},
      {512, {0, 0, 700, 0}},
      {1000, {5, 290}},
      {2880, {33, 0, 100}},
      {4097, {17, 70}},
      {70001, {3, 0, 1}},
  };
  return cases;
}

// Equal groups, [groups, rows, cols].
inline const std::vector<std::vector<int64_t>>& equal_cases() {
  static const std::vector<std::vector<int64_t>> cases = {
      {1, 1, 1},     {10, 100, 30}, {300, 3, 8},   {3, 9000, 17}, {5, 1, 256},
      {2, 600, 300}, {40, 16, 511}, {7, 257, 260}, {1, 2, 40000}};
  return cases;
}

// Shapes of mixture-of-experts models (rows x cols -g groups; "giant": all rows in one of the
// groups) and of dense biases.
inline const std::vector<std::string>& bench_shapes() {
  static const std::vector<std::string> shapes = {
      "f32/32768x2880-g32",         "f16/32768x2880-g32",         "bf16/32768x2880-g32",
      "f32/32768x2880-g2048-giant", "f16/32768x2880-g2048-giant", "bf16/32768x2880-g2048-giant",
      "f32/16384x7168-g256",        "f16/16384x7168-g256",        "bf16/16384x7168-g256",
      "f32/131072x512-g128",        "bf16/131072x512-g128",       "f32/4000000x8-g64",
      "bf16/4000000x8-g64",         "f32/1000000x24-g8",          "bf16/1000000x24-g8",
      "f32/30000000x1-g4",          "bf16/30000000x1-g4",         "f32/16x2048x2048",
      "bf16/16x2048x2048",          "f32/64x1000000-g2",          "bf16/64x1000000-g2"};
  return shapes;
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CASES_H_

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

// Around the lanes (16), the chains (16), registers, tiles and the blocks of FP32 and of 16-bit
// data (tree.h); empty groups; groups of one row; columns enough to be shared.
inline const std::vector<Case>& test_cases() {
  static const std::vector<Case> cases = {
      {1, {1}},
      {1, {0, 255, 2079, 2080, 2081, 0, 1, 33300}},
      {1, {133120, 1, 133121}},
      {1, {267000}},
      {2, {1040, 4161, 70000}},
      {3, {1, 2, 15, 16, 17, 0, 703, 704, 705}},
      {3, {2113}},
      {3, {45055, 45057}},
      {8, {31, 260, 272, 273, 17409}},
      {10, {5, 10, 15, 10}},
      {15, {0, 0, 7, 16, 17, 18}},
      {16, {15, 16, 17, 130, 131, 8321}},
      {24, {86, 87, 88, 5567, 5569, 11137}},
      {17, {7748}},
      {33, {7, 64, 65, 300, 2047, 4100}},
      {65, {17, 40, 300}},
      {80, {33, 16, 100}},
      {96, {1, 250}},
      {100, {1, 21, 22, 42, 43, 1344, 1345, 0, 2689}},
      {127, {1, 17, 33, 1089}},
      {129, {500, 12}},
      {145, {40, 600}},
      {160, {17, 300}},
      {161, {17, 300}},
      {170, {12, 1409}},
      {193, {63, 64, 70}},
      {200, {191, 705, 1409}},
      {240, {80, 256, 300}},
      {257, {1, 9, 17, 577, 1089}},
      {300, {0, 7, 14, 15, 224, 225, 448, 449, 897}},
      {390, {191, 192, 700}},
      {460, {192, 193}},
      {512, {0, 0, 321, 577, 0}},
      {1000, {3, 5, 289, 321}},
      {2047, {40}},
      {2048, {17, 40}},
      {2079, {1, 2, 3, 33, 257}},
      {2080, {15, 17, 257}},
      {2880, {33, 0, 100}},
      {2881, {4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 300, 260, 272}},
      {4097, {17, 70}},
      {4111, {17, 5}},
      {8719, {272}},
      {70001, {3, 0, 1}},
  };
  return cases;
}

// Equal groups, [groups, rows, cols].
inline const std::vector<std::vector<int64_t>>& equal_cases() {
  static const std::vector<std::vector<int64_t>> cases = {
      {1, 1, 1},     {10, 100, 30}, {300, 3, 8},   {3, 9000, 17}, {5, 1, 256}, {2, 600, 300},
      {40, 16, 511}, {7, 257, 260}, {1, 2, 40000}, {50, 1, 1},    {33, 5, 1},  {40, 16, 1},
      {700, 17, 1},  {70, 256, 1},  {20, 257, 1},  {6000, 3, 1},  {90, 1, 7},  {3000, 1, 24},
      {400, 9, 1},   {41, 513, 1},  {20, 700, 3}};
  return cases;
}

// Rows of equal groups of narrow rows: around one vector, four (few rows), one chain and several,
// for each number of rows in a vector that there is.
inline const std::vector<int64_t>& narrow_rows() {
  static const std::vector<int64_t> rows = {1,  2,  3,  4,  5,  7,  8,   9,   16,  17, 24,
                                            31, 32, 33, 63, 64, 65, 129, 256, 257, 600};
  return rows;
}

// Shapes of mixture-of-experts models (rows x cols -g groups; "giant": all rows in one of the
// groups) and of dense biases.
inline const std::vector<std::string>& bench_shapes() {
  static const std::vector<std::string> shapes = {
      "32768x2880-g1", "32768x2880-g32", "32768x2880-g2048", "32768x2880-g2048-giant",
      "32x1024x2880",  "13000x7168-g32", "4000000x24-g32",   "90000000x1-g32",
      "1000000x17x1",  "65536x512x1",    "200000x64x2"};
  return shapes;
}

}  // namespace aclgrad::grouped_bias_add_grad

#endif  // ACLGRAD_OPS_GROUPED_BIAS_ADD_GRAD_CASES_H_

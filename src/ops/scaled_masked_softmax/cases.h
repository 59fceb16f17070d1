// SPDX-License-Identifier: Apache-2.0
// The shapes that test and bench go through.
#ifndef ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_CASES_H_
#define ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::scaled_masked_softmax {

struct Shape {
  int64_t batches, heads, rows, cols;
};

// Around the lanes (16), the pairs (32), the chains (16 vectors, four at a time: 1024 elements),
// the pieces of the stage and the blocks.
inline const std::vector<Shape>& test_shapes() {
  static const std::vector<Shape> shapes = {
      {1, 1, 1, 1},    {2, 3, 5, 1},    {2, 2, 2, 2},     {3, 1, 40, 3},   {1, 2, 33, 7},
      {2, 2, 9, 8},    {1, 1, 20, 15},  {2, 1, 3, 16},    {1, 3, 7, 17},   {1, 2, 3, 31},
      {1, 1, 4, 32},   {2, 2, 2, 33},   {1, 1, 3, 63},    {1, 1, 2, 64},   {1, 2, 2, 65},
      {1, 1, 5, 80},   {1, 1, 2, 127},  {2, 3, 4, 197},   {1, 1, 2, 256},  {1, 1, 1, 1000},
      {1, 1, 2, 1023}, {1, 1, 2, 1024}, {1, 1, 2, 1025},  {1, 1, 1, 1039}, {1, 1, 1, 1041},
      {1, 1, 2, 1500}, {1, 1, 1, 2048}, {1, 2, 1, 2049},  {1, 1, 1, 2063}, {1, 1, 1, 4095},
      {1, 1, 2, 4096}, {4, 40, 1, 3},   {3, 5, 1, 37},    {2, 3, 150, 97}, {1, 70, 33, 40},
      {70, 2, 20, 30}, {1, 4, 70, 300}, {300, 30, 1, 11}, {2, 9, 16, 513}, {1, 2, 40, 129},
      {2, 1, 20, 145}, {1, 1, 33, 160}, {1, 1, 20, 161}};
  return shapes;
}

// Shapes of real models, odd and small rows.
inline const std::vector<std::string>& bench_shapes() {
  static const std::vector<std::string> shapes = {
      "8x16x512x512",  "1x8x2048x2048", "1x4x4096x4096", "64x12x197x197", "256x12x77x77",
      "1x1x4000000x1", "1x1x4000000x3", "1x1x4000000x8", "1x1x4000000x17"};
  return shapes;
}

}  // namespace aclgrad::scaled_masked_softmax

#endif  // ACLGRAD_OPS_SCALED_MASKED_SOFTMAX_CASES_H_

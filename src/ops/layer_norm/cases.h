// SPDX-License-Identifier: Apache-2.0
// The shapes that test and bench go through.
#ifndef ACLGRAD_OPS_LAYER_NORM_CASES_H_
#define ACLGRAD_OPS_LAYER_NORM_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::layer_norm {

struct Shape {
  int64_t rows, cols;
};

// Around the lanes (16), the chains (16 vectors, four at a time), the panels (4096 columns), the
// tasks (32768 elements) and the wide problems (under 32 rows of more).
inline const std::vector<Shape>& test_shapes() {
  static const std::vector<Shape> shapes = {
      {1, 1},      {2, 2},    {3, 5},     {1, 16},   {7, 15},    {16, 16},   {17, 17},   {5, 33},
      {4, 63},     {4, 64},   {9, 65},    {2, 1023}, {3, 1024},  {2, 1041},  {64, 1000}, {100, 513},
      {1025, 48},  {9, 4095}, {31, 4097}, {1, 8192}, {1, 40000}, {31, 8193}, {3, 36865}, {9, 32800},
      {33, 40001}, {5000, 3}, {4100, 24}, {1000, 1}, {900, 7}};
  return shapes;
}

// Shapes of real models, and what users reported as slow.
inline const std::vector<std::string>& bench_shapes() {
  static const std::vector<std::string> shapes = {"8192x4096",  "2048x12288", "32768x768",
                                                  "200704x192", "400000x24",  "400000x64"};
  return shapes;
}

}  // namespace aclgrad::layer_norm

#endif  // ACLGRAD_OPS_LAYER_NORM_CASES_H_

// SPDX-License-Identifier: Apache-2.0
// The shapes that test and bench go through.
#ifndef ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_CASES_H_
#define ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::embedding_dense_backward {

struct Shape {
  int64_t rows, table_rows, cols;
};

// Around the lanes (16), the chains (16 rows), the tiles (1024 columns), the panels (65536), the
// long runs (320 rows), the segments, the scratch on the stack (256 indices), one, two and three
// passes of the sort, and its blocks (4096 positions and more).
inline const std::vector<Shape>& test_shapes() {
  static const std::vector<Shape> shapes = {
      {1, 1, 1},      {2, 4, 3},       {5, 3, 16},      {16, 1, 15},      {17, 1, 17},
      {33, 2, 33},    {100, 5, 128},   {256, 40, 65},   {257, 40, 31},    {300, 7, 40},
      {257, 2047, 9}, {257, 2048, 9},  {700, 3, 1025},  {900, 2, 1041},   {3000, 2, 1030},
      {6000, 2, 20},  {7000, 1, 1030}, {16384, 300, 1}, {16385, 5000, 2}, {40000, 9, 7},
      {90, 9000, 48}, {1, 3000, 100},  {5, 3, 140001},  {320, 1, 130}};
  return shapes;
}

// rows x table rows x columns: language models and their position and type tables.
inline const std::vector<std::string>& bench_shapes() {
  static const std::vector<std::string> shapes = {
      "16384x50304x768", "16384x50304x768-uniform", "16384x32000x4096",    "16384x128256x2048",
      "65536x2x768",     "65536x1000x768-equal",    "65536x50304x768-freq"};
  return shapes;
}

}  // namespace aclgrad::embedding_dense_backward

#endif  // ACLGRAD_OPS_EMBEDDING_DENSE_BACKWARD_CASES_H_

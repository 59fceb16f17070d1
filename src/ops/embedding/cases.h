// SPDX-License-Identifier: Apache-2.0
// The shapes that test and bench go through.
#ifndef ACLGRAD_OPS_EMBEDDING_CASES_H_
#define ACLGRAD_OPS_EMBEDDING_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::embedding {

struct Shape {
  int64_t rows, table_rows, cols;
};

// Around single elements, cache lines, the tasks (256 KiB, 8192 rows) and the panels of a row
// (1 MiB).
inline const std::vector<Shape>& test_shapes() {
  static const std::vector<Shape> shapes = {
      {1, 1, 1},   {2, 4, 3},     {17, 5, 2},       {33, 7, 4},     {100, 9, 16},   {50, 11, 63},
      {64, 3, 64}, {129, 70, 65}, {1000, 300, 130}, {20000, 50, 1}, {300, 40, 513}, {3, 2, 270001}};
  return shapes;
}

// rows x table rows x columns: language models and their position and type tables.
inline const std::vector<std::string>& bench_shapes() {
  static const std::vector<std::string> shapes = {
      "16384x50304x768", "16384x50304x768-uniform", "16384x32000x4096", "16384x128256x2048",
      "65536x2x768",     "65536x1000x768-equal",    "65536x50304x768",  "1000000x100000x64"};
  return shapes;
}

}  // namespace aclgrad::embedding

#endif  // ACLGRAD_OPS_EMBEDDING_CASES_H_

// SPDX-License-Identifier: Apache-2.0
// The shapes that test and bench go through.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_CASES_H_
#define ACLGRAD_OPS_NSA_COMPRESS_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::nsa_compress {

struct Case {
  int64_t tokens, heads, width;
  int64_t window, step;
  std::vector<int64_t> ends;
};

// One window; windows of one step, of two (the usual), of a step and a bit, of up to eight steps;
// every number of chains a window can have; widths around a pair of vectors (32); more heads than a
// tile; sequences of all kinds; several blocks of windows and of heads.
inline const std::vector<Case>& test_cases() {
  static const std::vector<Case> cases = {
      {32, 1, 16, 32, 16, {32}},
      {16, 1, 16, 16, 16, {16}},
      {100, 2, 48, 16, 16, {37, 100}},
      {47, 1, 32, 32, 16, {47}},
      {272, 3, 48, 32, 16, {120, 140, 272}},
      {272, 2, 64, 32, 16, {0, 128, 272}},
      {300, 2, 128, 64, 16, {300}},
      {300, 1, 256, 64, 32, {100, 100, 100, 290}},
      {500, 1, 240, 48, 32, {500}},
      {500, 1, 240, 48, 48, {490}},
      {260, 17, 16, 48, 16, {65, 66, 131, 131, 259}},
      {400, 5, 80, 80, 48, {399}},
      {333, 2, 192, 128, 16, {333}},
      {411, 1, 96, 112, 16, {200, 411}},
      {411, 3, 96, 96, 64, {411}},
      {600, 1, 256, 128, 112, {300, 600}},
      {600, 3, 176, 128, 128, {600}},
      {100, 128, 16, 32, 16, {100}},
      {40, 2, 16, 64, 32, {40}},
      {90, 2, 16, 32, 16, {30, 61, 90}},
      {4200, 2, 64, 32, 16, {1000, 4100}},
      {9000, 2, 64, 128, 16, {64, 8999}},
      {3000, 9, 256, 32, 16, {700, 3000}},
      {4400, 5, 256, 32, 16, {150, 4400}},
      {300, 17, 256, 32, 16, {90, 300}},
  };
  return cases;
}

// Shapes of native sparse attention: 4 or 8 key heads, -l window, -d step, -s equal sequences.
inline const std::vector<std::string>& bench_shapes() {
  static const std::vector<std::string> shapes = {
      "65536x4x128-l32-d16",  "65536x4x128-l64-d32",
      "65536x4x128-l64-d16",  "65536x4x128-l128-d16",
      "262144x1x128-l32-d16", "8192x32x128-l32-d16",
      "65536x4x192-l32-d16",  "65536x4x128-l32-d16-s200-uneven"};
  return shapes;
}

}  // namespace aclgrad::nsa_compress

#endif  // ACLGRAD_OPS_NSA_COMPRESS_CASES_H_

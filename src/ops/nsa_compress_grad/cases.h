// SPDX-License-Identifier: Apache-2.0
// The shapes that test and bench go through.
#ifndef ACLGRAD_OPS_NSA_COMPRESS_GRAD_CASES_H_
#define ACLGRAD_OPS_NSA_COMPRESS_GRAD_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace aclgrad::nsa_compress_grad {

struct Case {
  int64_t tokens, heads, width;
  int64_t window, step;
  std::vector<int64_t> ends;  // none: one sequence of all tokens
};

// One window; windows of two steps (the usual), of a step and a bit, of a part of a step too much,
// of up to 8 steps (taken together), up to 16 (one chain of dx) and more; widths around a pair of
// vectors (32) and a segment (256); more heads than a tile; sequences of all kinds; several slabs,
// blocks of heads and blocks of uncovered tokens.
inline const std::vector<Case>& test_cases() {
  static const std::vector<Case> cases = {
      {32, 1, 16, 32, 16, {}},
      {47, 1, 32, 32, 16, {}},
      {272, 3, 48, 32, 16, {120, 140, 272}},
      {272, 2, 64, 32, 16, {0, 128, 272}},
      {300, 2, 128, 64, 16, {}},
      {300, 1, 256, 64, 32, {100, 100, 100, 290}},
      {500, 1, 272, 48, 32, {}},
      {260, 17, 16, 48, 16, {65, 66, 131, 131, 259}},
      {400, 5, 80, 80, 48, {399}},
      {333, 2, 192, 128, 16, {}},
      {411, 1, 96, 112, 16, {200, 411}},
      {300, 2, 32, 144, 16, {}},
      {600, 1, 288, 256, 16, {300, 600}},
      {700, 2, 48, 272, 16, {}},
      {900, 1, 16, 512, 16, {860}},
      {700, 1, 528, 336, 16, {}},
      {512, 1, 16, 256, 240, {}},
      {411, 3, 16, 112, 16, {200, 411}},
      {333, 5, 16, 128, 16, {}},
      {333, 3, 32, 128, 16, {130, 333}},
      {260, 2, 32, 80, 16, {}},
      {130, 40, 32, 48, 16, {}},
      {100, 130, 16, 32, 16, {}},
      {40, 2, 16, 64, 32, {}},
      {90, 2, 16, 32, 16, {30, 61, 90}},
      {4200, 2, 64, 32, 16, {1000, 4100}},
      {70, 9, 1024, 32, 16, {}},
      {9000, 2, 64, 32, 16, {64}},
      {130, 16, 128, 48, 16, {61}},
      {100, 128, 48, 64, 16, {}},
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

}  // namespace aclgrad::nsa_compress_grad

#endif  // ACLGRAD_OPS_NSA_COMPRESS_GRAD_CASES_H_

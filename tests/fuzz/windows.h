// SPDX-License-Identifier: Apache-2.0
// Random calls on sequences of tokens [T, N, D] with windows over them.
#ifndef ACLGRAD_TESTS_FUZZ_WINDOWS_H_
#define ACLGRAD_TESTS_FUZZ_WINDOWS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/drawn_tensors.h"

namespace aclgrad::fuzz {

template <size_t n>
struct WindowCall : DrawnTensors<n> {
  std::vector<int64_t> ends;
  int64_t window = 0;
  int64_t step = 0;
  int64_t type = 0;
  std::string layout;  // "": null

  std::string text() const {
    std::string out = " window=" + std::to_string(window) + " step=" + std::to_string(step);
    out += " ends=";
    for (const int64_t end : ends) out += std::to_string(end) + ",";
    return out;
  }
};

// Ends of sequences, some of them empty or shorter than a window; rows may be left over.
inline std::vector<int64_t> draw_ends(Random& random, int64_t tokens) {
  std::vector<int64_t> ends;
  for (int64_t i = random.integer(1, 6); i > 0; --i) ends.push_back(random.integer(0, tokens));
  if (random.chance(0.5)) ends.push_back(tokens);
  if (random.chance(0.2)) ends.push_back(0);
  std::sort(ends.begin(), ends.end());
  return ends;
}

// Dims of the tokens, of at most 16 * `most_groups` columns.
inline Dims draw_tokens(Random& random, int64_t most_groups) {
  const int64_t heads = random.chance(0.03) ? 0 : random.integer(1, random.chance(0.1) ? 20 : 3);
  const int64_t width =
      random.chance(0.03) ? 0 : 16 * random.integer(1, random.chance(0.1) ? most_groups : 4);
  const int64_t most = std::max<int64_t>(20000 / std::max<int64_t>(heads * width, 1), 40);
  const int64_t tokens = random.chance(0.03) ? 0 : random.integer(1, std::min<int64_t>(most, 600));
  return {tokens, heads, width};
}

// `wrong_step` more than the window, and each of `wrong_windows`, are to be refused.
template <size_t n>
void break_sizes(Random& random, WindowCall<n>& c, int64_t wrong_step,
                 const std::vector<int64_t>& wrong_windows, Attempt& a) {
  const int64_t kind = random.integer(0, 3);
  if (kind == 0) {
    c.window += random.integer(1, 15);
    a.refuse(kParamInvalid, "compressBlockSize");
  } else if (kind == 1) {
    c.step = random.pick(std::vector<int64_t>{0, -16, 8, 17});
    a.refuse(kParamInvalid, "compressStride");
  } else if (kind == 2) {
    c.step = c.window + wrong_step;
    a.refuse(kParamInvalid, "compressStride");
  } else {
    c.window = random.pick(wrong_windows);
    a.refuse(kParamInvalid, "compressBlockSize");
  }
}

// Breaks what no operator's own rule is about: kinds 0 to 3.
template <size_t n>
void break_alike(Random& random, WindowCall<n>& c, const Names<n>& names, int64_t kind,
                 Attempt& a) {
  const auto index = static_cast<size_t>(random.integer(0, n - 1));
  const aclDataType dtype = c.tensors[index]->dtype();
  if (kind == 0) {
    c.break_one(random, index, names, a);
  } else if (kind == 1) {
    c.type = random.pick(std::vector<int64_t>{1, -1, 2});
    a.refuse(kParamInvalid, "actSeqLenType");
  } else if (kind == 2) {
    c.layout = random.pick(std::vector<std::string>{"BSND", "tnd", "TNDX", "T"});
    a.refuse(kParamInvalid, "layout");
  } else {
    const aclDataType other = dtype == ACL_BF16 ? ACL_FLOAT16 : ACL_BF16;
    c.replace(index, c.tensors[index]->dims(), random.chance(0.5) ? ACL_FLOAT : other);
    a.refuse(kParamInvalid, "");
  }
}

}  // namespace aclgrad::fuzz

#endif  // ACLGRAD_TESTS_FUZZ_WINDOWS_H_

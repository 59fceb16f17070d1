// SPDX-License-Identifier: Apache-2.0
// Random calls on [B, N, S1, S2] with a mask, of any number of tensors: the last one is the output,
// the mask comes before it.
#ifndef ACLGRAD_TESTS_FUZZ_ATTENTION_H_
#define ACLGRAD_TESTS_FUZZ_ATTENTION_H_

#include <algorithm>

#include "fuzz/drawn_tensors.h"

namespace aclgrad::fuzz {

template <size_t n>
struct AttentionCall : DrawnTensors<n> {
  static constexpr size_t kMask = n - 2, kOut = n - 1;
  double scale = 1;
  bool triangular = false;
};

inline void fill_mask(Random& random, Tensor& mask) {
  const double share = random.pick(std::vector<double>{0.0, 0.1, 0.5, 1.0});
  std::vector<uint8_t> bytes(static_cast<size_t>(mask.numel()));
  for (uint8_t& byte : bytes) {
    byte = random.chance(share) ? static_cast<uint8_t>(random.integer(1, 255)) : 0;
  }
  mask.fill_bits(bytes);
}

// All but the output's memory, which may be that of an input; returns the dims.
template <size_t n>
Dims draw_inputs(Random& random, AttentionCall<n>& c) {
  Dims dims = draw_dims(random, 4, 6000);
  dims[3] = std::min<int64_t>(dims[3], 4096);
  const aclDataType dtype = random.pick(kFloats);
  for (size_t i = 0; i < c.kMask; ++i) {
    c.use(i, draw_input(random, dims, dtype));
    fill_floats(random, *c.tensors[i]);
  }
  Dims mask = dims;
  if (random.chance(0.5)) mask[0] = 1;
  if (random.chance(0.5)) mask[1] = 1;
  c.use(c.kMask, draw_input(random, mask, ACL_BOOL));
  fill_mask(random, *c.tensors[c.kMask]);
  return dims;
}

// `flag`: the parameter that may not be true.
template <size_t n>
void break_call(Random& random, AttentionCall<n>& c, const Names<n>& names, const char* flag,
                Attempt& a) {
  const int64_t kind = random.integer(0, 5);
  a.text += " defect " + std::to_string(kind);
  const auto index = static_cast<size_t>(random.integer(0, n - 1));
  const aclDataType dtype = c.tensors[index]->dtype();
  Dims dims = c.tensors[index]->dims();
  if (kind == 0) {
    c.break_one(random, index, names, a);
  } else if (kind == 1) {
    c.triangular = true;
    a.refuse(kParamInvalid, flag);
  } else if (kind == 2) {
    ++dims[static_cast<size_t>(random.integer(2, 3))];
    c.replace(index, dims, dtype);
    a.refuse(kParamInvalid, index == 0 ? "" : names[index]);
  } else if (kind == 3) {
    dims = c.tensors[0]->dims();
    dims[static_cast<size_t>(random.integer(0, 1))] += 2;  // never 1
    c.replace(c.kMask, dims, ACL_BOOL);
    a.refuse(kParamInvalid, "mask");
  } else if (kind == 4) {
    const size_t which = index == c.kMask ? 0 : index;
    const aclDataType other = c.tensors[0]->dtype() == ACL_FLOAT ? ACL_FLOAT16 : ACL_FLOAT;
    c.replace(which, c.tensors[which]->dims(), other);
    a.refuse(kParamInvalid, which == 0 ? "" : names[which]);
  } else {
    dims.pop_back();
    c.replace(index, dims, dtype);
    a.refuse(kParamInvalid, names[index]);
  }
}

}  // namespace aclgrad::fuzz

#endif  // ACLGRAD_TESTS_FUZZ_ATTENTION_H_
